package pprof

import "fulgur/internal/profile"

// labelKey holds the inputs of a sample's labels, which are pprof's tags.
type labelKey struct {
	task profile.TaskID
	cpu  int
	end  profile.End
}

// labeler encodes labels once for all samples with the same labelKey.
type labeler struct {
	tasks   []profile.Task
	strings *stringTable
	seen    map[labelKey]message
}

// of returns the encoded labels of s.
func (l labeler) of(s profile.Sample) message {
	key := labelKey{s.Task, s.CPU, s.End}
	made, ok := l.seen[key]
	if ok {
		return made
	}
	task := l.tasks[s.Task]
	if task.Comm != "" { // An empty string would mean no label.
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

// number appends a numeric label. Without a unit, 0 would mean no label; pprof uses the
// key as the unit of numbers without one.
func (l labeler) number(m *message, key string, value int) {
	var label message
	label.int(labelKeyField, l.strings.id(key))
	label.int(labelNum, int64(value))
	if value == 0 {
		label.int(labelNumUnit, l.strings.id(key))
	}
	m.message(sampleLabel, label)
}
