package profile

import (
	"encoding/hex"
	"math"
	"slices"
	"strconv"
	"strings"

	"fulgur/internal/unwind/stackend"
)

// Label is a key and a value that a program gives to its code while it runs. All texts are untrusted.
type Label struct {
	Key, Value string
	// Numeric is set for numbers: Value then has decimal digits. Unit is the unit of the number, ""
	// if it has none.
	Numeric bool
	Unit    string
}

// Number returns the value of a numeric label.
func (l Label) Number() int64 {
	n, _ := strconv.ParseInt(l.Value, 10, 64) // readers made it from a number
	return n
}

// NumberLabel returns a label with a number.
func NumberLabel(key string, n int64, unit string) Label {
	return Label{Key: key, Value: strconv.FormatInt(n, 10), Numeric: true, Unit: unit}
}

// Keys of labels with the IDs of the trace and span that the code works on, in lower-case
// hexadecimal digits. Tracing libraries for Go use the same keys.
const (
	TraceID = "trace_id" // 16 bytes
	SpanID  = "span_id"  // 8 bytes
)

// Labels is a set of labels in the order of their keys. Only files of other tools have several
// labels with one key.
type Labels []Label

// AllLabels returns the set of all labels in list, which it sorts. Labels with the same key keep
// their order.
func AllLabels(list []Label) Labels {
	slices.SortStableFunc(list, func(a, b Label) int { return strings.Compare(a.Key, b.Key) })
	return list
}

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
		for _, text := range []string{label.Key, label.Value, label.Unit, strconv.FormatBool(label.Numeric)} {
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

// pprofTexts and pprofNumbers are the keys of labels in pprof files that are facts of fulgur's model
// rather than labels of programs.
var (
	pprofTexts   = []string{"comm", "stack_end", "container", "container_id", "image", "pod", "namespace", "unit"}
	pprofNumbers = []string{"pid", "tid", "cpu"}
)

// isPprofFact reports whether a label in a pprof file is a fact rather than a label of a program,
// if it is the only one with its key.
func (l Label) isPprofFact() bool {
	switch {
	case l.Numeric:
		n := l.Number()
		return slices.Contains(pprofNumbers, l.Key) && (l.Unit == "" || l.Unit == l.Key) && n >= 0 && n <= math.MaxInt32
	case l.Key == "stack_end":
		return stackend.Parse(l.Value).Cut()
	}
	return slices.Contains(pprofTexts, l.Key)
}

// pprofPrefix is before keys of labels that would mean something else in a pprof file.
const pprofPrefix = "label."

// isPrefixed reports whether a key in a pprof file is another one after the prefix.
func isPrefixed(key string) bool {
	rest, ok := strings.CutPrefix(key, pprofPrefix)
	return ok && (isPrefixed(rest) || slices.Contains(pprofTexts, rest) || slices.Contains(pprofNumbers, rest))
}

// PprofKey returns the key in pprof files for a program's label.
func (l Label) PprofKey() string {
	if l.isPprofFact() || isPrefixed(l.Key) {
		return pprofPrefix + l.Key
	}
	return l.Key
}

// FromPprof returns the program's label that is l in a pprof file. alone means that it is the only
// one with its key. ok is false for a fact of fulgur's model.
func (l Label) FromPprof(alone bool) (of Label, ok bool) {
	if alone && l.isPprofFact() {
		return l, false
	}
	if isPrefixed(l.Key) {
		l.Key = strings.TrimPrefix(l.Key, pprofPrefix)
	}
	return l, true
}

// Unlabeled returns p without the labels of programs, for formats that have no place for them.
// Samples that differ only in them are added up.
func (p *Profile) Unlabeled() *Profile {
	if len(p.Labels) <= 1 {
		return p
	}
	q := *p
	q.Labels, q.Tasks, q.Samples = nil, nil, nil
	tasks, ids := make([]TaskID, len(p.Tasks)), map[Task]TaskID{}
	for i, t := range p.Tasks {
		t.Labels = 0
		tasks[i] = Intern(&q.Tasks, ids, t)
	}
	known := map[sampleKey]int{}
	for _, s := range p.Samples {
		s.Task = tasks[s.Task]
		key := sampleKey{s.Stack, s.Task, s.CPU, s.End}
		i, ok := known[key]
		if !ok {
			known[key] = len(q.Samples)
			s.Values = slices.Clone(s.Values)
			q.Samples = append(q.Samples, s)
			continue
		}
		for v, n := range s.Values {
			q.Samples[i].Values[v] += n
		}
	}
	return &q
}
