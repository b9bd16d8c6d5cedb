package recording

import (
	"slices"

	"fulgur/internal/profile"
	"fulgur/internal/unwind/stackend"
)

// Sum adds up the events of a recording that was read from a file, with the values, tasks and tables of its
// profile: the sum of the whole recording is that profile. Values that no event has are 0. It fails if the
// events cannot be read.
func Sum(line *profile.Timeline) (*profile.Profile, error) {
	p := *line.Profile
	s := sum{p: &p, rows: map[row]int{}, tasks: tasksOf(&p), columns: map[profile.ValueType]int{}, ends: endsOf(&p)}
	for i, v := range slices.Backward(p.ValueTypes) {
		s.columns[v] = i // the first one of a type
	}
	perThread := HasThreads(&p)
	p.Samples = nil
	stacks := stacksOf(line)
	for id := range line.Threads {
		task := taskAt(line, profile.ThreadID(id), perThread)
		if err := stacks.events(profile.ThreadID(id), func(e *event) { s.add(e, s.tasks.of(task(e.at, e.ofProcess))) }); err != nil {
			return nil, err
		}
	}
	p.Tasks = s.tasks.list
	return &p, nil
}

// endsOf returns the ends of the stacks of samples.
func endsOf(p *profile.Profile) map[profile.StackID]stackend.End {
	ends := map[profile.StackID]stackend.End{}
	for _, s := range slices.Backward(p.Samples) {
		ends[s.Stack] = s.End
	}
	return ends
}

// HasThreads reports whether the tasks of a profile are threads.
func HasThreads(p *profile.Profile) bool {
	return slices.ContainsFunc(p.Tasks, func(t profile.Task) bool { return t.TID != 0 })
}

// sum adds up events.
type sum struct {
	p       *profile.Profile
	rows    map[row]int // indexes of samples
	tasks   tasks
	columns map[profile.ValueType]int
	ends    map[profile.StackID]stackend.End
}

// row identifies a sample.
type row struct {
	stack profile.StackID
	task  profile.TaskID
}

// add adds an event of a task.
func (s *sum) add(e *event, task profile.TaskID) {
	at := row{e.stack, task}
	i, ok := s.rows[at]
	if !ok {
		i = len(s.p.Samples)
		s.rows[at] = i
		s.p.Samples = append(s.p.Samples, profile.Sample{Stack: e.stack, Task: task, CPU: -1, End: s.ends[e.stack], Values: make([]int64, len(s.p.ValueTypes))})
	}
	for _, a := range e.amounts {
		if column, ok := s.columns[a.of]; ok {
			s.p.Samples[i].Values[column] += a.n
		}
	}
}

// tasks are the tasks of a profile, and more. Their owners and labels are those of the profile.
type tasks struct {
	list  []profile.Task
	index map[profile.Task]profile.TaskID // without owners and labels
}

// tasksOf returns the tasks of a profile.
func tasksOf(p *profile.Profile) tasks {
	t := tasks{slices.Clone(p.Tasks), map[profile.Task]profile.TaskID{}}
	for i, task := range slices.Backward(t.list) {
		t.index[profile.Task{PID: task.PID, TID: task.TID, Comm: task.Comm}] = profile.TaskID(i)
	}
	return t
}

// of returns the ID of a task without owner and labels.
func (t *tasks) of(task profile.Task) profile.TaskID {
	id, ok := t.index[task]
	if !ok {
		id = profile.TaskID(len(t.list))
		t.index[task] = id
		t.list = append(t.list, task)
	}
	return id
}
