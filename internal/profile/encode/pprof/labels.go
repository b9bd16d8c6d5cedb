package pprof

import "fulgur/internal/profile"

// labelKey is what the labels of a sample, pprof's tags, are made of.
type labelKey struct {
	task profile.TaskID
	cpu  int
	end  profile.End
}

// labeler encodes labels, once for samples that agree in what they tell.
type labeler struct {
	tasks   []profile.Task
	strings *stringTable
	seen    map[labelKey]message
}

// of returns the labels of s as they stand in its message.
func (l labeler) of(s profile.Sample) message {
	key := labelKey{s.Task, s.CPU, s.End}
	made, ok := l.seen[key]
	if ok {
		return made
	}
	task := l.tasks[s.Task]
	if task.Comm != "" { // An empty text would be read as no label.
		l.text(&made, "comm", task.Comm)
	}
	l.number(&made, "pid", task.PID)
	if task.TID != 0 {
		l.number(&made, "tid", task.TID)
	}
	if s.CPU >= 0 {
		l.number(&made, "cpu", s.CPU)
	}
	if s.End.Cut() {
		l.text(&made, "stack_end", s.End.String())
	}
	l.seen[key] = made
	return made
}

func (l labeler) text(m *message, key, value string) {
	var label message
	label.int(labelKeyField, l.strings.id(key))
	label.int(labelStr, l.strings.id(value))
	m.message(sampleLabel, label)
}

// number appends a label that is a number. A 0 without a unit would be read as
// no label; the key is the unit that pprof gives to numbers without one.
func (l labeler) number(m *message, key string, value int) {
	var label message
	label.int(labelKeyField, l.strings.id(key))
	label.int(labelNum, int64(value))
	if value == 0 {
		label.int(labelNumUnit, l.strings.id(key))
	}
	m.message(sampleLabel, label)
}
