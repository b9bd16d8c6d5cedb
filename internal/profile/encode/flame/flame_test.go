package flame

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fulgur/internal/message/plain"
	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/describe"
	"fulgur/internal/profile/encode/encodetest"
)

// pageData is the page's data, decoded like its script does.
type pageData struct {
	header
	frame, depth []int // by node
	node, task   []int // by sample
	values       [][]int64
}

// parseData decodes the output of writeData.
func parseData(t testing.TB, data []byte) pageData {
	t.Helper()
	size := binary.LittleEndian.Uint32(data)
	var d pageData
	if err := json.Unmarshal(data[4:4+size], &d.header); err != nil {
		t.Fatal(err)
	}
	columns := data[4+size:]
	next := func() int {
		v, n := binary.Uvarint(columns)
		if n <= 0 {
			t.Fatal("the columns are truncated")
		}
		columns = columns[n:]
		return int(v)
	}
	column := func(rows int) (entries []int) {
		for range rows {
			entries = append(entries, next())
		}
		return entries
	}
	var callees [][]int
	for _, count := range column(len(d.Frames.Name)) {
		callees = append(callees, make([]int, count))
	}
	for _, of := range callees {
		copy(of, column(len(of)))
	}
	lengths, ups, samples, calls := column(d.Chains), column(d.Chains), column(d.Chains), column(d.Nodes)
	var above []int  // depths at which the current chains from the root end
	var frames []int // from the root to the node
	for i, length := range lengths {
		above = above[:len(above)-ups[i]]
		depth := -1
		if len(above) > 0 {
			depth = above[len(above)-1]
		}
		for range length {
			n := len(d.frame)
			f := calls[n]
			if depth >= 0 {
				f = callees[frames[depth]][f]
			}
			depth++
			frames = append(frames[:depth], f)
			d.frame, d.depth = append(d.frame, f), append(d.depth, depth)
		}
		above = append(above, depth)
		for range samples[i] {
			d.node = append(d.node, len(d.frame)-1)
		}
	}
	if len(d.frame) != d.Nodes || len(d.node) != d.Samples {
		t.Fatalf("got chains of %d nodes and %d samples, want %d and %d", len(d.frame), len(d.node), d.Nodes, d.Samples)
	}
	for range d.Samples {
		d.task = append(d.task, next())
	}
	for _, scale := range d.Scales {
		var column []int64
		for range d.Samples {
			v, n := binary.Varint(columns)
			columns = columns[n:]
			column = append(column, v*scale)
		}
		d.values = append(d.values, column)
	}
	if len(columns) != 0 {
		t.Fatalf("got %d bytes after the columns, want 0", len(columns))
	}
	return d
}

// text formats d for golden files: the header, then a line for each node, indented by
// depth, followed by its samples.
func (d pageData) text(t testing.TB) []byte {
	t.Helper()
	var b bytes.Buffer
	head, err := json.MarshalIndent(d.header, "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	// Each row of a table is on one line, so that a difference shows the row.
	b.Write(regexp.MustCompile(`\n\t\t\t+`).ReplaceAll(head, []byte(" ")))
	b.WriteString("\n\n")
	sample := 0
	for n, f := range d.frame {
		indent := strings.Repeat("  ", d.depth[n])
		fmt.Fprintf(&b, "%s%q\n", indent, d.Strings[d.Frames.Name[f]])
		for ; sample < len(d.node) && d.node[sample] == n; sample++ {
			fmt.Fprintf(&b, "%s  =", indent)
			for _, column := range d.values {
				fmt.Fprintf(&b, " %d", column[sample])
			}
			task := d.task[sample]
			fmt.Fprintf(&b, ", %d/%d\n", d.Tasks.PID[task], d.Tasks.TID[task])
		}
	}
	return b.Bytes()
}

// folded returns the sum of samples per "comm;caller;callee".
func (d pageData) folded(column int) map[string]int64 {
	stacks := map[string]int64{}
	var callers []string
	sample := 0
	for n, f := range d.frame {
		callers = append(callers[:d.depth[n]], d.Strings[d.Frames.Name[f]])
		for ; sample < len(d.node) && d.node[sample] == n; sample++ {
			stacks[strings.Join(callers[1:], ";")] += d.values[column][sample]
		}
	}
	return stacks
}

// folded is like pageData.folded for p.
func folded(p *profile.Profile, value int) map[string]int64 {
	stacks := map[string]int64{}
	for _, s := range p.Samples {
		var names []string
		task := p.Tasks[s.Task]
		if s.CPU >= 0 {
			names = append(names, fmt.Sprintf("[CPU %d]", s.CPU))
		}
		if task.TID == 0 {
			names = append(names, task.Comm)
		} else {
			names = append(names, fmt.Sprintf("%s-%d/%d", task.Comm, task.PID, task.TID))
		}
		frames := p.AppendFrames(nil, s.Stack)
		for i := len(frames) - 1; i >= 0; i-- {
			names = append(names, p.FrameName(frames[i]))
		}
		for i, name := range names {
			names[i] = plain.Terminal(name)
		}
		stacks[strings.Join(names, ";")] += s.Values[value]
	}
	return stacks
}

func render(t testing.TB, write func(io.Writer, *profile.Profile, Options) error, p *profile.Profile, o Options) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := write(&b, p, o); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

var dataElement = regexp.MustCompile(`<script id="data" type="application/octet-stream">([A-Za-z0-9+/=]*)</script>`)

// extract returns the data of a page.
func extract(t testing.TB, page []byte) pageData {
	t.Helper()
	m := dataElement.FindSubmatch(page)
	if m == nil {
		t.Fatal("got a page without data")
	}
	z, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, bytes.NewReader(m[1])))
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return parseData(t, data)
}

func TestGolden(t *testing.T) {
	for name, p := range map[string]*profile.Profile{
		"typical": encodetest.Typical(),
		"hostile": encodetest.Hostile(),
		"empty":   encodetest.Empty(),
		"symbols": encodetest.Symbols(),
		"threads": encodetest.Threads(),
		"owners":  encodetest.Owners(),
	} {
		t.Run(name, func(t *testing.T) {
			encodetest.Golden(t, name+".data", extract(t, render(t, WriteHTML, p, Options{})).text(t))
			encodetest.Golden(t, name+".svg", render(t, WriteSVG, p, Options{}))
		})
	}
	encodetest.Golden(t, "wide.svg", render(t, WriteSVG, encodetest.Typical(), Options{Width: 2000, ShortNames: true}))
	encodetest.Golden(t, "inverted.svg", render(t, WriteSVG, encodetest.Typical(), Options{Inverted: true, Value: 1, Title: "A title"}))
}

// The page contains each stack with its exact values.
func TestDataHoldsEveryStack(t *testing.T) {
	for name, p := range map[string]*profile.Profile{
		"typical": encodetest.Typical(),
		"threads": encodetest.Threads(),
		"hostile": encodetest.Hostile(),
		"large":   encodetest.Large(2000),
	} {
		t.Run(name, func(t *testing.T) {
			d := extract(t, render(t, WriteHTML, p, Options{Value: 1}))
			for v := range p.ValueTypes {
				if diff := cmp.Diff(folded(p, v), d.folded(v)); diff != "" {
					t.Errorf("value %d (-profile +page):\n%s", v, diff)
				}
			}
		})
	}
}

// Graphs name the values whose negative amounts they do not draw.
func TestNegativeAmounts(t *testing.T) {
	p := encodetest.Typical()
	if d := extract(t, render(t, WriteHTML, p, Options{})); strings.Contains(fmt.Sprint(d.Lost, d.Losses), "negative") {
		t.Errorf("got losses %q, %q of a profile without negative amounts", d.Lost, d.Losses)
	}
	p.Samples = slices.Clone(p.Samples)
	p.Samples[0].Values = slices.Clone(p.Samples[0].Values)
	p.Samples[0].Values[0] = -1
	want := "negative amounts of " + p.ValueTypes[0].Type
	d := extract(t, render(t, WriteHTML, p, Options{}))
	if !slices.Contains(d.Lost, want) || !slices.ContainsFunc(d.Losses, func(l describe.Loss) bool { return l.What == want }) {
		t.Errorf("got losses %q, %q, want %q", d.Lost, d.Losses, want)
	}
	if picture := render(t, WriteSVG, p, Options{}); !bytes.Contains(picture, []byte(want)) {
		t.Errorf("the picture does not say %q", want)
	}
}

// A comparison contains both profiles in separate columns.
func TestDataHoldsBase(t *testing.T) {
	p, base := encodetest.Typical(), encodetest.Symbols()
	d := extract(t, render(t, WriteHTML, p, Options{Base: base}))
	if !d.Compared || len(d.values) != 4 {
		t.Fatalf("got Compared %v with %d columns, want true with 4", d.Compared, len(d.values))
	}
	for c, want := range []map[string]int64{folded(p, 0), folded(p, 1), folded(base, 0), folded(base, 1)} {
		got := d.folded(c)
		for stack, v := range got {
			if v == 0 {
				delete(got, stack)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("column %d (-profile +page):\n%s", c, diff)
		}
	}
	other := profile.NewBuilder(profile.ValueType{Type: "cycles", Unit: "count"}).Profile(profile.Meta{}, profile.Losses{})
	if err := WriteHTML(io.Discard, p, Options{Base: other}); err == nil {
		t.Error("got no error for comparing samples with cycles")
	}
}

// All samples of a function in one caller are one box, for any address in the function.
// Siblings are sorted by weight, heaviest first.
func TestMerging(t *testing.T) {
	b := profile.NewBuilder(profile.ValueType{Type: "samples", Unit: "count"})
	fn := func(name string) profile.FunctionID { return b.Function(profile.Function{Name: name}) }
	add := func(n int64, frames ...profile.Frame) {
		var s profile.StackID
		for _, f := range frames {
			s = b.Push(s, b.Frame(f))
		}
		b.Add(profile.Sample{Stack: s, Task: b.Task(profile.Task{Comm: "x"}), CPU: -1, Values: []int64{n}})
	}
	for i := range uint64(3) {
		add(1, profile.Frame{Function: fn("f"), Address: 0x100 + i, Offset: i},
			profile.Frame{Function: fn("g"), Address: 0x200 + i, Offset: i})
	}
	add(1, profile.Frame{Function: fn("f"), Address: 0x104, Offset: 4}, profile.Frame{Function: fn("light")})
	add(9, profile.Frame{Function: fn("heavy")})
	p := b.Profile(profile.Meta{}, profile.Losses{})

	tree, err := newTree(0, maxNodes, p)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, box := range tree.boxes {
		n := tree.nodes[box.node]
		f := tree.frames[n.frame]
		got = append(got, fmt.Sprintf("%s%s %d %#x", strings.Repeat(" ", int(box.depth)), f.name, n.total, f.address))
	}
	want := []string{"all 13 0x0", " x 13 0x0", "  heavy 9 0x0", "  f 4 0x100", "   g 3 0x200", "   light 1 0x0"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("boxes (-want +got):\n%s", diff)
	}
}

// The output does not depend on the order of samples.
func TestDeterministic(t *testing.T) {
	p := encodetest.Large(500)
	html := render(t, WriteHTML, p, Options{})
	svg := render(t, WriteSVG, p, Options{})
	reversed := *p
	reversed.Samples = nil
	for i := len(p.Samples) - 1; i >= 0; i-- {
		reversed.Samples = append(reversed.Samples, p.Samples[i])
	}
	if !bytes.Equal(html, render(t, WriteHTML, &reversed, Options{})) {
		t.Error("the page depends on the order of samples")
	}
	if !bytes.Equal(svg, render(t, WriteSVG, &reversed, Options{})) {
		t.Error("the SVG depends on the order of samples")
	}
}

// Names in a profile cannot add tags to the page.
func TestHostileNamesAddNoMarkup(t *testing.T) {
	tags := func(p *profile.Profile) []string {
		page := render(t, WriteHTML, p, Options{})
		if bytes.ContainsFunc(page, func(r rune) bool { return r == '\u2028' }) {
			t.Error("got an unescaped line separator in the page")
		}
		page = bytes.Replace(page, []byte(pageJS()), nil, 1)
		var got []string
		for _, tag := range regexp.MustCompile(`<[!/a-zA-Z][^ >]*`).FindAll(page, -1) {
			got = append(got, string(tag))
		}
		return got
	}
	if diff := cmp.Diff(tags(encodetest.Typical()), tags(encodetest.Hostile())); diff != "" {
		t.Errorf("tags (-typical +hostile):\n%s", diff)
	}
}

func TestSVGIsWellFormed(t *testing.T) {
	d := xml.NewDecoder(bytes.NewReader(render(t, WriteSVG, encodetest.Hostile(), Options{Title: "</svg>&\x00"})))
	for {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestTitle(t *testing.T) {
	for _, c := range []struct {
		o    Options
		m    profile.Meta
		want string
	}{
		{Options{Title: "mine"}, profile.Meta{Command: "sleep 1", Scope: "pid 42"}, "mine"},
		{Options{}, profile.Meta{Command: "sleep 1", Scope: "pid 42"}, "sleep 1"},
		{Options{}, profile.Meta{Scope: "pid 42"}, "pid 42"},
		{Options{}, profile.Meta{}, "profile"},
	} {
		if got := c.o.title(&profile.Profile{Meta: c.m}); got != c.want {
			t.Errorf("title of %+v: got %q, want %q", c, got, c.want)
		}
	}
}

func TestFit(t *testing.T) {
	for _, c := range []struct {
		name  string
		width float64
		want  string
	}{
		{"main", 4 * svgCharWidth, "main"},
		{"main", 3.5 * svgCharWidth, "ma…"},
		{"main", 2.5 * svgCharWidth, ""},
		{"日本語の名", 4 * svgCharWidth, "日本語…"},
		{"main", -6, ""},
	} {
		if got := fit(c.name, c.width); got != c.want {
			t.Errorf("fit(%q, %g): got %q, want %q", c.name, c.width, got, c.want)
		}
	}
}

func TestInvalidValue(t *testing.T) {
	for _, value := range []int{-1, 2} {
		if err := WriteHTML(io.Discard, encodetest.Typical(), Options{Value: value}); err == nil {
			t.Errorf("WriteHTML: got no error for value %d of 2", value)
		}
		if err := WriteSVG(io.Discard, encodetest.Typical(), Options{Value: value}); err == nil {
			t.Errorf("WriteSVG: got no error for value %d of 2", value)
		}
	}
}

// fullWriter fails after n bytes, like a full disk.
type fullWriter struct{ n int }

var errFull = errors.New("full")

func (w *fullWriter) Write(b []byte) (int, error) {
	if w.n -= len(b); w.n < 0 {
		return 0, errFull
	}
	return len(b), nil
}

func TestWriteErrors(t *testing.T) {
	for _, p := range []*profile.Profile{encodetest.Typical(), encodetest.Large(300)} {
		for _, write := range []func(io.Writer, *profile.Profile, Options) error{WriteHTML, WriteSVG} {
			size := len(render(t, write, p, Options{}))
			for _, n := range []int{0, size / 2, size - 1} {
				if err := write(&fullWriter{n}, p, Options{}); !errors.Is(err, errFull) {
					t.Errorf("got error %[3]v after %[1]d of %[2]d bytes, want %[4]v", n, size, err, errFull)
				}
			}
		}
	}
}

func BenchmarkWriteHTML(b *testing.B) {
	for _, n := range []int{2000, 20000} {
		p := encodetest.Large(n)
		b.Run(fmt.Sprintf("%d stacks", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := WriteHTML(io.Discard, p, Options{}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(len(p.Stacks)), "nodes")
		})
	}
}

func TestIsLinear(t *testing.T) {
	encodetest.Linear(t, func(w io.Writer, p *profile.Profile) error { return WriteHTML(w, p, Options{}) })
	encodetest.Linear(t, func(w io.Writer, p *profile.Profile) error { return WriteSVG(w, p, Options{}) })
}

// In a comparison, a box's color shows its change.
func TestCompare(t *testing.T) {
	p := encodetest.Compared()
	base, changed := p.Only(0), p.Only(1)
	base.ValueTypes = changed.ValueTypes
	encodetest.Golden(t, "compared.svg", render(t, WriteSVG, changed, Options{Base: base}))
	if err := WriteSVG(io.Discard, changed, Options{Base: encodetest.Typical()}); err == nil {
		t.Error("WriteSVG: got no error for comparing different values")
	}
	for _, c := range []struct {
		before, total int64
		want          string
	}{{0, 0, "same"}, {5, 5, "same"}, {0, 5, "more4"}, {5, 0, "less4"}, {10, 5, "less2"}, {5, 10, "more2"}, {100, 99, "same"}} {
		if got := changeClass((node{before: c.before, total: c.total}).change()); got != c.want {
			t.Errorf("%d to %d: got %s, want %s", c.before, c.total, got, c.want)
		}
	}
}

// Stacks are drawn without recursion, and the number of boxes is limited: the values of
// other boxes count in their callers.
func TestMaxNodes(t *testing.T) {
	b := profile.NewBuilder(profile.ValueType{Type: "samples", Unit: "count"})
	f := b.Frame(profile.Frame{Function: b.Function(profile.Function{Name: "f", SystemName: "f"})})
	const depth, tasks = 1000, 20
	var s profile.StackID
	for range depth {
		s = b.Push(s, f)
	}
	for i := range tasks {
		b.Add(profile.Sample{Stack: s, Task: b.Task(profile.Task{PID: i, Comm: fmt.Sprint("task", i)}), CPU: -1, Values: []int64{1}})
	}
	p := b.Profile(profile.Meta{}, profile.Losses{})
	for limit, crowded := range map[int]uint64{1 << 20: 0, 5 * depth: 16, 10: 20} {
		tree, err := newTree(0, limit, p)
		if err != nil {
			t.Fatal(err)
		}
		if tree.total() != tasks || len(tree.nodes) > limit+tasks {
			t.Errorf("got %d nodes with a total of %d, want all tasks' total within the limit", len(tree.nodes), tree.total())
		}
		if got := tree.drawn(p).Losses[profile.LossTooMany]; got != crowded {
			t.Errorf("limit of %d nodes: got %d samples too many, want %d", limit, got, crowded)
		}
	}
}
