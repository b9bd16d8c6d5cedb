package pprof

import "fulgur/internal/profile"

// labels are what pprof calls tags of a sample. Samples share them, for as
// maps they would take more memory than all else.
type labels struct {
	text   map[string][]string
	number map[string][]int64
}

// labelKey is what labels are made of.
type labelKey struct {
	task profile.TaskID
	cpu  int
	end  profile.End
}

// labeler makes labels, the same for samples that agree in what they tell.
type labeler struct {
	tasks []profile.Task
	seen  map[labelKey]labels
}

// of returns the labels of s.
func (l labeler) of(s profile.Sample) labels {
	key := labelKey{s.Task, s.CPU, s.End}
	if known, ok := l.seen[key]; ok {
		return known
	}
	task := l.tasks[s.Task]
	made := labels{
		text:   map[string][]string{},
		number: map[string][]int64{"pid": {int64(task.PID)}},
	}
	if task.Comm != "" { // An empty text would be read as the number 0.
		made.text["comm"] = []string{utf8(task.Comm)}
	}
	if task.TID != 0 {
		made.number["tid"] = []int64{int64(task.TID)}
	}
	if s.CPU >= 0 {
		made.number["cpu"] = []int64{int64(s.CPU)}
	}
	switch s.End {
	case profile.EndDepth, profile.EndFault, profile.EndBroken, profile.EndLost:
		made.text["stack_end"] = []string{s.End.String()}
	}
	l.seen[key] = made
	return made
}
