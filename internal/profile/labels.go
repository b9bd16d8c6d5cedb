package profile

import (
	"encoding/hex"
	"slices"
	"strings"
)

// Label is a key and a value that a program gives to its code while it runs. Both are untrusted.
type Label struct{ Key, Value string }

// Keys of labels with the IDs of the trace and span that the code works on, in lower-case
// hexadecimal digits. Tracing libraries for Go use the same keys.
const (
	TraceID = "trace_id" // 16 bytes
	SpanID  = "span_id"  // 8 bytes
)

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

// IDs returns the IDs of the trace and span in a set, and false unless it has both of them.
func (l Labels) IDs() (trace [16]byte, span [8]byte, ok bool) {
	read := func(key string, id []byte) bool {
		text, _ := l.Value(key)
		n, err := hex.Decode(id, []byte(text[:min(len(text), 2*len(id))]))
		return err == nil && n == len(id) && len(text) == 2*n && text == strings.ToLower(text) && strings.Trim(text, "0") != ""
	}
	ok = read(TraceID, trace[:]) && read(SpanID, span[:])
	return trace, span, ok
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

// pprofLabels are the keys of labels in pprof files that do not come from programs.
var pprofLabels = map[string]bool{
	"comm": true, "pid": true, "tid": true, "cpu": true, "stack_end": true, "container": true, "container_id": true,
	"image": true, "pod": true, "namespace": true, "unit": true,
}

// pprofPrefix is before keys of labels that would mean something else in a pprof file.
const pprofPrefix = "label."

// PprofLabel returns the key in pprof files for a program's label.
func PprofLabel(key string) string {
	if pprofLabels[key] || strings.HasPrefix(key, pprofPrefix) {
		return pprofPrefix + key
	}
	return key
}

// FromPprofLabel returns the key of the program's label that has a key in a pprof file. It is "" for
// labels that are not a program's.
func FromPprofLabel(key string) string {
	if label, ok := strings.CutPrefix(key, pprofPrefix); ok {
		return label
	}
	if pprofLabels[key] {
		return ""
	}
	return key
}
