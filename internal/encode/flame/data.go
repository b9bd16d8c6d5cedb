package flame

import (
	"bufio"
	"cmp"
	"encoding/json"
	"io"
	"slices"
	"strconv"
	"time"

	"fulgur/internal/profile"
)

// dataVersion is the version of the page's data. Adding a column to a table
// or a table beside the others does not change it; changing the meaning of
// one does.
const dataVersion = 1

// header is the part of the page's data that is small.
type header struct {
	Version int         `json:"version"`
	Title   string      `json:"title"`
	Meta    meta        `json:"meta"`
	Losses  []loss      `json:"losses"`
	Values  []valueType `json:"values"`
	// Value is the index of the value type that boxes are sorted by and
	// shown as at first.
	Value int `json:"value"`
	// Compare says that the first two values are a base and what became of it,
	// and that colours show the change.
	Compare bool     `json:"compare,omitempty"`
	Kinds   []string `json:"kinds"`
}

// meta is [profile.Meta] as the page reads it.
type meta struct {
	Command   string  `json:"command"`
	Scope     string  `json:"scope"`
	Host      string  `json:"host"`
	Kernel    string  `json:"kernel"`
	Arch      string  `json:"arch"`
	CPUs      int     `json:"cpus"`
	Start     string  `json:"start"` // RFC 3339 in UTC, empty if unknown
	Seconds   float64 `json:"seconds"`
	Event     string  `json:"event"`
	Frequency uint64  `json:"frequency"`
	Period    uint64  `json:"period"`
}

type valueType struct {
	Type string `json:"type"`
	Unit string `json:"unit"`
}

// loss is one cause of loss with its count.
type loss struct {
	What  string `json:"what"`
	Count uint64 `json:"count"`
	// Missing tells that something is absent from the picture, and not
	// merely without a name or cut.
	Missing bool `json:"missing"`
}

// losses lists what is missing or incomplete in a profile, worst first, and
// leaves out what was merely delayed.
func losses(l profile.Losses) []loss {
	all := []loss{
		{"samples", l.Samples, true},
		{"stacks", l.Bodies, true},
		{"pauses by throttling", l.Throttled, true},
		{"mapping and fork records", l.Sideband, true},
		{"user stacks cut", l.TruncatedUser, false},
		{"kernel stacks cut", l.TruncatedKernel, false},
		{"user stacks unreadable", l.UserFaults, false},
		{"samples with unresolved frames", l.Unresolved, false},
		{"processes gone early", l.ProcessesGone, false},
	}
	return slices.DeleteFunc(all, func(l loss) bool { return l.Count == 0 })
}

func newHeader(p *profile.Profile, o Options) header {
	m := p.Meta
	h := header{
		Version: dataVersion,
		Title:   o.title(p),
		Meta: meta{
			Command: m.Command, Scope: m.Scope,
			Host: m.Host, Kernel: m.Kernel, Arch: m.Arch, CPUs: m.CPUs,
			Seconds: m.Duration.Seconds(),
			Event:   m.Event, Frequency: m.Frequency, Period: m.Period,
		},
		Losses: losses(p.Losses),
		Value:  o.Value, Compare: o.Compare,
		Kinds: kindNames[:],
	}
	if !m.Start.IsZero() {
		h.Meta.Start = m.Start.UTC().Format(time.RFC3339)
	}
	for _, v := range p.ValueTypes {
		h.Values = append(h.Values, valueType(v))
	}
	return h
}

// writeData writes t as the page's JSON: a header, a string table, and three
// tables held as one array per column:
//
//	frames   name, module, file: indexes of strings; kind: index of kinds;
//	         address: hex, as a string because JSON's numbers are too short
//	         for kernel addresses, "0" for inlined functions; line: where
//	         the function begins; inlined: 0 or 1
//	nodes    frame; depth: 0 for the root. Rows are in preorder, so that the
//	         depth tells the parent
//	samples  node; one column of values for each value type
//
// Characters that could end the element that holds the data are escaped.
func writeData(w io.Writer, h header, p *profile.Profile, t *tree) error {
	j := jsonWriter{w: bufio.NewWriterSize(w, 32<<10)}
	head, err := json.Marshal(h)
	if err != nil {
		return err
	}
	j.w.Write(head[:len(head)-1])

	strs := newStringTable(t.frames)
	j.raw(",\n\"strings\":[\n")
	for i, s := range strs.list {
		if i > 0 {
			j.raw(",\n")
		}
		j.string(s)
	}

	frames := func(f func(frame) int64) func(int) int64 {
		return func(i int) int64 { return f(t.frames[i]) }
	}
	j.raw("],\n\"frames\":{\n")
	n := len(t.frames)
	j.column("name", n, frames(func(f frame) int64 { return strs.index(f.name) }))
	j.column("module", n, frames(func(f frame) int64 { return strs.index(f.module) }))
	j.column("file", n, frames(func(f frame) int64 { return strs.index(f.file) }))
	j.column("line", n, frames(func(f frame) int64 { return int64(f.line) }))
	j.column("kind", n, frames(func(f frame) int64 { return int64(f.kind) }))
	j.column("inlined", n, frames(func(f frame) int64 {
		if f.inlined {
			return 1
		}
		return 0
	}))
	j.raw("\"address\":[")
	for i, f := range t.frames {
		if i > 0 {
			j.raw(",")
		}
		j.string(strconv.FormatUint(f.address, 16))
	}

	j.raw("]},\n\"nodes\":{\n")
	n = len(t.boxes)
	j.column("depth", n, func(i int) int64 { return int64(t.boxes[i].depth) })
	j.array("frame", n, func(i int) int64 { return int64(t.nodes[t.boxes[i].node].frame) })

	nodes, values := samplesByNode(p, t)
	j.raw("},\n\"samples\":{\n")
	j.column("node", len(nodes), func(i int) int64 { return int64(nodes[i]) })
	j.raw("\"values\":[")
	for v := range values {
		if v > 0 {
			j.raw(",\n")
		}
		j.numbers(len(nodes), func(i int) int64 { return values[v][i] })
	}
	j.raw("]}}\n")
	return j.w.Flush()
}

// samplesByNode sums the samples of p that end at one node of t. It returns
// the rows of the nodes, ascending, and a column for each value type.
func samplesByNode(p *profile.Profile, t *tree) (nodes []uint32, values [][]int64) {
	samples := make([]int, len(p.Samples))
	for i := range samples {
		samples[i] = i
	}
	slices.SortFunc(samples, func(a, b int) int { return cmp.Compare(t.endRow(a), t.endRow(b)) })
	values = make([][]int64, len(p.ValueTypes))
	for _, s := range samples {
		row := t.endRow(s)
		if n := len(nodes); n == 0 || nodes[n-1] != row {
			nodes = append(nodes, row)
			for v := range values {
				values[v] = append(values[v], 0)
			}
		}
		for v, add := range p.Samples[s].Values {
			values[v][len(nodes)-1] += add
		}
	}
	return nodes, values
}

// stringTable numbers the strings of frames.
type stringTable struct {
	list []string
	ids  map[string]int64
}

func newStringTable(frames []frame) *stringTable {
	t := &stringTable{ids: map[string]int64{}}
	t.add("")
	for _, f := range frames {
		t.add(f.name)
		t.add(f.module)
		t.add(f.file)
	}
	return t
}

func (t *stringTable) add(s string) {
	if _, ok := t.ids[s]; !ok {
		t.ids[s] = int64(len(t.list))
		t.list = append(t.list, s)
	}
}

func (t *stringTable) index(s string) int64 { return t.ids[s] }

// jsonWriter writes long arrays without holding them as text. Errors stick
// to w and are returned by its Flush.
type jsonWriter struct {
	w   *bufio.Writer
	buf [20]byte
}

func (j *jsonWriter) raw(s string) { j.w.WriteString(s) }

// string writes s as a JSON string in which <, >, & and the line separators
// of JavaScript are escaped and invalid UTF-8 is replaced.
func (j *jsonWriter) string(s string) {
	b, _ := json.Marshal(s) // a string has no way to fail
	j.w.Write(b)
}

// numbers writes n numbers as an array.
func (j *jsonWriter) numbers(n int, at func(int) int64) {
	j.raw("[")
	for i := range n {
		if i > 0 {
			j.w.WriteByte(',')
		}
		j.w.Write(strconv.AppendInt(j.buf[:0], at(i), 10))
	}
	j.raw("]")
}

// array writes an object's member that is an array of numbers.
func (j *jsonWriter) array(name string, n int, at func(int) int64) {
	j.string(name)
	j.raw(":")
	j.numbers(n, at)
}

// column writes an array that is not its object's last member.
func (j *jsonWriter) column(name string, n int, at func(int) int64) {
	j.array(name, n, at)
	j.raw(",\n")
}
