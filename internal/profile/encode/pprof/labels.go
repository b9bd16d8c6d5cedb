package pprof

import (
	"cmp"

	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/proto"
	"fulgur/internal/unwind/stackend"
)

// labelKey holds the inputs of a sample's labels, which are pprof's tags.
type labelKey struct {
	task profile.TaskID
	cpu  int
	end  stackend.End
}

// labeler encodes labels once for all samples with the same labelKey, and those of programs once
// for all tasks with the same ones.
type labeler struct {
	p        *profile.Profile
	strings  *stringTable
	seen     map[labelKey]proto.Message
	programs map[profile.LabelsID]proto.Message
}

// appendTo appends the encoded labels of s to m.
func (l labeler) appendTo(m proto.Message, s profile.Sample) proto.Message {
	key := labelKey{s.Task, s.CPU, s.End}
	own, ok := l.seen[key]
	if !ok {
		own = l.own(s)
		l.seen[key] = own
	}
	id := l.p.Tasks[s.Task].Labels
	programs, ok := l.programs[id]
	if !ok {
		programs = l.ofPrograms(l.p.LabelsAt(id))
		l.programs[id] = programs
	}
	return append(append(m, own...), programs...)
}

// own returns the encoded labels of s that do not come from programs.
func (l labeler) own(s profile.Sample) (made proto.Message) {
	task, owner := l.p.Tasks[s.Task], l.p.Owner(s.Task)
	if task.Comm != "" && !task.Guessed { // An empty string would mean no label.
		l.text(&made, "comm", task.Comm)
	}
	if task.PID != 0 {
		l.number(&made, profile.NumberLabel("pid", int64(task.PID), ""))
	}
	for _, label := range [][2]string{
		{"container", owner.Container}, {"container_id", owner.ContainerID}, {"image", owner.Image},
		{"pod", owner.Pod}, {"namespace", owner.Namespace}, {"unit", owner.Unit},
	} {
		if label[1] != "" {
			l.text(&made, label[0], label[1])
		}
	}
	if task.TID != 0 {
		l.number(&made, profile.NumberLabel("tid", int64(task.TID), ""))
	}
	if s.CPU >= 0 {
		l.number(&made, profile.NumberLabel("cpu", int64(s.CPU), ""))
	}
	if s.End.Cut() {
		l.text(&made, "stack_end", s.End.String())
	}
	return made
}

// ofPrograms returns encoded labels.
func (l labeler) ofPrograms(labels profile.Labels) (made proto.Message) {
	for _, label := range labels {
		key := label.PprofKey()
		switch {
		case label.Numeric:
			label.Key = key
			l.number(&made, label)
		case label.Value != "": // An empty string would mean no label.
			l.text(&made, key, label.Value)
		}
	}
	return made
}

func (l labeler) text(m *proto.Message, key, value string) {
	var label proto.Message
	label.Int(labelKeyField, l.strings.id(key))
	label.Int(labelStr, l.strings.id(value))
	m.Message(sampleLabel, label)
}

// number appends a numeric label. Without a unit, 0 would mean no label; pprof uses the
// key as the unit of numbers without one.
func (l labeler) number(m *proto.Message, of profile.Label) {
	var label proto.Message
	label.Int(labelKeyField, l.strings.id(of.Key))
	label.Int(labelNum, of.Number())
	if of.Number() == 0 {
		of.Unit = cmp.Or(of.Unit, of.Key)
	}
	label.Int(labelNumUnit, l.strings.id(of.Unit))
	m.Message(sampleLabel, label)
}
