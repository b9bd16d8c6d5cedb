package profile

import (
	"slices"
	"strings"
)

// Label is a key and a value that a program gives to its code while it runs. Both are untrusted.
type Label struct{ Key, Value string }

// Labels is a set of labels with distinct keys, in the order of their keys.
type Labels []Label

// NewLabels returns the set of the labels in list, which it sorts. Of several labels with the same
// key, it keeps the first.
func NewLabels(list []Label) Labels {
	slices.SortStableFunc(list, func(a, b Label) int { return strings.Compare(a.Key, b.Key) })
	return slices.CompactFunc(list, func(a, b Label) bool { return a.Key == b.Key })
}

// Value returns the value of a key, and false if the set has no such label.
func (l Labels) Value(key string) (string, bool) {
	for _, label := range l {
		if label.Key == key {
			return label.Value, true
		}
	}
	return "", false
}

// Identity returns a text that differs between different sets.
func (l Labels) Identity() string {
	var b strings.Builder
	for _, label := range l {
		for _, text := range []string{label.Key, label.Value} {
			b.WriteString(text)
			b.WriteByte(byte(len(text)))
			b.WriteByte(byte(len(text) >> 8))
		}
	}
	return b.String()
}

// LabelsOf returns the labels of a task.
func (p *Profile) LabelsOf(t TaskID) Labels { return p.LabelsAt(p.Tasks[t].Labels) }

// LabelsAt returns the labels with an ID, none for 0.
func (p *Profile) LabelsAt(id LabelsID) Labels {
	if int(id) < len(p.Labels) { // profiles without labels may lack row 0
		return p.Labels[id]
	}
	return nil
}
