package text

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/describe"
	"fulgur/internal/profile/encode/encodetest"
	"fulgur/internal/profile/own"
	"fulgur/internal/unwind/stackend"
)

func TestWrite(t *testing.T) {
	for _, c := range []struct {
		golden string
		p      *profile.Profile
		o      Options
	}{
		{"typical.txt", encodetest.Typical(), Options{}},
		{"typical-annotate.txt", encodetest.Typical(), Options{Annotate: true}},
		{"typical-delimited.txt", encodetest.Typical(), Options{Delimited: true}},
		{"typical-value1.txt", encodetest.Typical(), Options{Value: 1}},
		{"threads.txt", encodetest.Threads(), Options{}},
		{"symbols.txt", encodetest.Symbols(), Options{}},
		{"symbols-annotate.txt", encodetest.Symbols(), Options{Annotate: true}},
		{"owners.txt", encodetest.Owners(), Options{}},
		{"hostile.txt", encodetest.Hostile(), Options{}},
		{"empty.txt", encodetest.Empty(), Options{}},
		{"typical-largest.txt", encodetest.Typical(), Options{Screen: Screen{Stacks: 2}}},
		{"typical-40.txt", encodetest.Typical(), Options{Screen: Screen{Columns: 40}}},
	} {
		t.Run(c.golden, func(t *testing.T) {
			var out bytes.Buffer
			if err := Write(&out, c.p, c.o); err != nil {
				t.Fatal(err)
			}
			encodetest.Golden(t, c.golden, out.Bytes())
			checkPrintable(t, out.String())
		})
	}
}

// TestWriteCut checks that a cut stack is marked even if none of its frames is known.
func TestWriteCut(t *testing.T) {
	b := profile.NewBuilder(profile.ValueType{Type: "samples", Unit: "count"})
	task := b.Task(profile.Task{PID: 1, Comm: "init"})
	b.Add(profile.Sample{Task: task, CPU: -1, End: stackend.Fault, Values: []int64{1}})
	var out bytes.Buffer
	if err := Write(&out, b.Profile(profile.Meta{}, profile.Losses{}), Options{}); err != nil {
		t.Fatal(err)
	}
	want := "    [truncated: unreadable stack]\n    -                init (1)\n        1\n\n"
	if got := out.String(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestSummary(t *testing.T) {
	for _, c := range []struct {
		golden string
		p      *profile.Profile
		n      int
	}{
		{"typical-summary.txt", encodetest.Typical(), 10},
		{"typical-summary3.txt", encodetest.Typical(), 3},
		{"threads-summary.txt", encodetest.Threads(), 10},
		{"symbols-summary.txt", encodetest.Symbols(), 10},
		{"hostile-summary.txt", encodetest.Hostile(), 20},
		{"large-summary.txt", encodetest.Large(100), 5},
		{"empty-summary.txt", encodetest.Empty(), 10},
	} {
		t.Run(c.golden, func(t *testing.T) {
			var out bytes.Buffer
			if err := Summary(&out, c.p, SummaryOptions{Functions: c.n, Verbose: true}); err != nil {
				t.Fatal(err)
			}
			encodetest.Golden(t, c.golden, out.Bytes())
			checkPrintable(t, out.String())
		})
	}
}

// A short summary has at most eight lines, whatever it has to say, and no losses.
func TestShortSummary(t *testing.T) {
	long := strings.Repeat("word ", 25)
	for name, answers := range map[string][]string{"none": nil, "one": {"short"}, "many": {"a", "b", "c", "d"}, "long": {long, long, long}} {
		for _, p := range []*profile.Profile{encodetest.Typical(), encodetest.Large(100), encodetest.Hostile(), encodetest.Empty(), manyNotes()} {
			var out strings.Builder
			if err := Summary(&out, p, SummaryOptions{Functions: 10, Answers: answers}); err != nil {
				t.Fatal(err)
			}
			text := strings.ReplaceAll(out.String(), "\n\n", "\n")
			if n := lines(text, answerWidth); n > AnswerLines {
				t.Errorf("%s: got %d lines, want at most %d:\n%s", name, n, AnswerLines, text)
			}
			if len(answers) > 0 && !strings.Contains(text, "  "+answers[0]+"\n") {
				t.Errorf("%s: no %q in\n%s", name, answers[0], text)
			}
			if strings.Contains(text, "lost") {
				t.Errorf("%s: a loss in\n%s", name, text)
			}
		}
	}
}

// manyNotes returns a profile whose stacks end in many notes, below many functions.
func manyNotes() *profile.Profile {
	b := profile.NewBuilder(profile.ValueType{Type: "waits", Unit: "count"})
	for _, name := range strings.Fields("a b c d e f g h") {
		caller := b.Frame(profile.Frame{Function: b.Function(profile.Function{Name: name})})
		note := b.Frame(profile.Frame{Function: b.Function(profile.Function{Name: "[" + name + "]"}), Kind: profile.KindMarker})
		b.Add(profile.Sample{Stack: b.Push(b.Push(0, caller), note), CPU: -1, Values: []int64{1}})
	}
	return b.Profile(profile.Meta{}, profile.Losses{})
}

// Everything that a file says about its run and machine is untrusted.
func TestSummaryHostile(t *testing.T) {
	for _, name := range encodetest.HostileNames {
		p := *encodetest.Hostile()
		encodetest.NameAll(&p, name)
		p.Meta.Grouping = profile.GroupLabel
		noun := describe.NounOfProfile(&p)
		var out strings.Builder
		if err := Summary(&out, &p, SummaryOptions{Functions: 20, All: true, Verbose: true}); err != nil {
			t.Fatal(err)
		}
		lines := append(Stripped(p.Meta.Stripped, noun), describe.Machine(p.Meta), describe.LabelHint(&p))
		checkPrintable(t, out.String()+strings.Join(lines, "\n"))
	}
}

// A summary shows the amounts of the first value and of the selected one, or of all.
func TestSummaryAmounts(t *testing.T) {
	p := encodetest.Typical()
	p.ValueTypes = []profile.ValueType{{Type: "samples", Unit: "count"}, {Type: "cpu", Unit: "nanoseconds"}, {Type: "faults", Unit: "count"}}
	for i := range p.Samples {
		p.Samples[i].Values = []int64{1, 0, 0}
	}
	p.Samples[0].Values = []int64{1, 3e6, 7}
	for _, test := range []struct {
		SummaryOptions
		want string
	}{
		{SummaryOptions{}, " samples ("},
		{SummaryOptions{Value: 2}, " samples, 7 faults ("},
		{SummaryOptions{Value: 2, All: true}, "10.0 s: 3.0 ms on CPU, 7 page faults (whole system, cpu-clock at 99 Hz)\n"},
	} {
		var out bytes.Buffer
		if err := Summary(&out, p, test.SummaryOptions); err != nil || !strings.Contains(out.String(), test.want) {
			t.Errorf("%+v: %v, want %q in\n%s", test.SummaryOptions, err, test.want, &out)
		}
	}
}

// leafRows returns the rows of p by leaf.
func leafRows(p *profile.Profile) []row {
	return sorted(tally(p, 0, own.Leaves(p).Frames), len(p.Frames))
}

// TestHottestCountsRecursionOnce checks that a recursive function counts once per stack.
func TestHottestCountsRecursionOnce(t *testing.T) {
	for _, r := range leafRows(encodetest.Typical()) {
		if r.name == "walk" {
			if r.self != 9 || r.total != 9 {
				t.Errorf("walk: got self %d, total %d, want 9 and 9", r.self, r.total)
			}
			return
		}
	}
	t.Error("got no row for walk")
}

// TestHottestIgnoresFiles checks that a function with lines from several files is one
// row, and that functions of the same name in other modules have separate rows.
func TestHottestIgnoresFiles(t *testing.T) {
	b := profile.NewBuilder(profile.ValueType{Type: "samples", Unit: "count"})
	module := b.Mapping(profile.Mapping{Path: "/bin/app"})
	frame := func(f profile.Function, line int) profile.FrameID {
		return b.Frame(profile.Frame{Function: b.Function(f), Mapping: module, Line: line})
	}
	parse := profile.Function{Name: "parse", SystemName: "_Z5parsev", File: "parse.cc"}
	header, none, other := parse, parse, parse
	header.File, none.File, other.SystemName = "vector.h", "", "_Z5parsei"
	outer := b.Push(0, frame(parse, 1))
	for i, stack := range []profile.StackID{
		outer, b.Push(0, frame(header, 2)), b.Push(outer, frame(none, 0)), b.Push(0, frame(other, 3)),
	} {
		b.Add(profile.Sample{Stack: stack, CPU: -1, Values: []int64{int64(1) << i}})
	}
	want := []row{
		{name: "parse", module: "app", self: 8, total: 8, leaf: 8},
		{name: "parse", module: "app", self: 7, total: 7, leaf: 7},
	}
	if got := leafRows(b.Profile(profile.Meta{}, profile.Losses{})); !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// If most stacks end in notes, or all in a few functions of the kernel, the functions of programs
// are listed.
func TestHottestOfPrograms(t *testing.T) {
	for _, test := range []struct {
		waits bool
		want  string
	}{
		{false, `   inner   total  function  module
   62.5%   62.5%  load      app
   37.5%  100.0%  main      app
`},
		{true, `   inner   total  function       module
   68.0%   68.0%  load           app
   12.0%   80.0%  main           app
   12.0%   12.0%  worker_thread  kernel.kallsyms
    8.0%   88.0%  read           libc.so.6

   share  stack ends in
   48.0%  [disk read]
   12.0%  [idle worker]
    8.0%  [futex]
`},
	} {
		p := waiting(test.waits)
		var out strings.Builder
		if err := Summary(&out, p, SummaryOptions{Functions: 4, Verbose: true}); err != nil {
			t.Fatal(err)
		}
		if _, got, _ := strings.Cut(out.String(), "\n\n"); got != test.want {
			t.Errorf("waits %v: got\n%swant\n%s", test.waits, got, test.want)
		}
	}
}

// waiting returns a profile whose stacks all end in two functions of the kernel, or with more
// waits than that.
func waiting(waits bool) *profile.Profile {
	b := profile.NewBuilder(profile.ValueType{Type: "waits", Unit: "count"})
	frame := func(name, path string, kind profile.Kind) profile.FrameID {
		return b.Frame(profile.Frame{Function: b.Function(profile.Function{Name: name}), Mapping: b.Mapping(profile.Mapping{Path: path}), Kind: kind})
	}
	main, read := frame("main", "/bin/app", profile.KindUser), frame("load", "/bin/app", profile.KindUser)
	libc, golang := frame("read", "/lib/libc.so.6", profile.KindUser), frame("runtime.park", "/bin/go", profile.KindUser)
	kernel, worker := frame("vfs_read", "[kernel.kallsyms]", profile.KindKernel), frame("worker_thread", "[kernel.kallsyms]", profile.KindKernel)
	event, exit := frame("syscall_trace_enter", "[kernel.kallsyms]", profile.KindKernel), frame("syscall_exit_work", "[kernel.kallsyms]", profile.KindKernel)
	add := func(n int64, frames ...profile.FrameID) {
		var stack profile.StackID
		for _, f := range frames {
			stack = b.Push(stack, f)
		}
		b.Add(profile.Sample{Stack: stack, CPU: -1, Values: []int64{n}})
	}
	add(5, main, read, libc, kernel, event)
	add(3, main, libc, exit)
	if !waits {
		return b.Profile(profile.Meta{}, profile.Losses{})
	}
	note := func(name string) profile.FrameID {
		return b.Frame(profile.Frame{Function: b.Function(profile.Function{Name: name}), Kind: profile.KindMarker})
	}
	add(12, main, read, libc, kernel, note("[disk read]"))
	add(2, golang, libc, kernel, note("[futex]"))
	schedule := frame("__schedule", "[kernel.kallsyms]", profile.KindKernel)
	add(3, worker, schedule, note("[idle worker]"))
	return b.Profile(profile.Meta{}, profile.Losses{})
}

func TestErrors(t *testing.T) {
	p := encodetest.Typical()
	for _, v := range []int{-1, 2} {
		if err := Write(io.Discard, p, Options{Value: v}); err == nil {
			t.Errorf("got no error for value %d of 2", v)
		}
	}
	if err := Write(encodetest.FullDisk{}, p, Options{}); !errors.Is(err, encodetest.ErrFullDisk) {
		t.Errorf("Write: got error %v, want the writer's", err)
	}
	if err := Summary(encodetest.FullDisk{}, p, SummaryOptions{Functions: 10}); !errors.Is(err, encodetest.ErrFullDisk) {
		t.Errorf("Summary: got error %v, want the writer's", err)
	}
}

// checkPrintable fails the test unless s consists of lines of printable UTF-8.
func checkPrintable(t *testing.T, s string) {
	t.Helper()
	if !utf8.ValidString(s) {
		t.Error("got output that is not UTF-8")
	}
	for line := range strings.Lines(s) {
		for _, r := range strings.TrimSuffix(line, "\n") {
			if !strconv.IsPrint(r) {
				t.Errorf("got %[2]q in %[1]q", line, r)
			}
		}
	}
}

func BenchmarkWrite(b *testing.B) {
	p := encodetest.Large(20_000)
	for b.Loop() {
		if err := Write(io.Discard, p, Options{}); err != nil {
			b.Fatal(err)
		}
	}
}

// On a narrow terminal, rows of the table fit.
func TestSummaryColumns(t *testing.T) {
	for columns, want := range map[int]int{60: 60, 80: 80, 200: 100} {
		var out bytes.Buffer
		if err := Summary(&out, encodetest.Typical(), SummaryOptions{Functions: 20, Columns: columns, Verbose: true}); err != nil {
			t.Fatal(err)
		}
		_, table, _ := strings.Cut(out.String(), "\n\n")
		longest := 0
		for line := range strings.Lines(table) {
			longest = max(longest, utf8.RuneCountInString(strings.TrimRight(line, "\n")))
		}
		if longest > want || longest < 50 {
			t.Errorf("%d columns: got a row of %d, want at most %d:\n%s", columns, longest, want, table)
		}
	}
}

func BenchmarkSummary(b *testing.B) {
	p := encodetest.Large(20_000)
	for b.Loop() {
		if err := Summary(io.Discard, p, SummaryOptions{Functions: 10}); err != nil {
			b.Fatal(err)
		}
	}
}

func TestWriteIsLinear(t *testing.T) {
	encodetest.Linear(t, func(w io.Writer, p *profile.Profile) error { return Write(w, p, Options{}) })
}

// Functions and reasons are those of the thread that waited, not of the waker on top of it.
func TestHottestOfWoken(t *testing.T) {
	b := profile.NewBuilder(profile.ValueType{Type: "waits", Unit: "count"})
	var stack profile.StackID
	for _, name := range []string{"main", "serve", "[epoll]", profile.WokenBy, "send", "client_main", "[client-7]"} {
		kind := profile.KindUser
		if name[0] == '[' {
			kind = profile.KindMarker
		}
		stack = b.Push(stack, b.Frame(profile.Frame{Function: b.Function(profile.Function{Name: name}), Kind: kind}))
	}
	b.Add(profile.Sample{Stack: stack, Task: b.Task(profile.Task{PID: 1, Comm: "server"}), CPU: -1, Values: []int64{3}})
	h := HottestOf(b.Profile(profile.Meta{}, profile.Losses{}), 5, 0, false)
	if len(h.Programs) != 1 || h.Programs[0].Name != "serve" || len(h.Reasons) != 1 || h.Reasons[0].Name != "[epoll]" {
		t.Errorf("got programs %+v and reasons %+v, want serve and [epoll]", h.Programs, h.Reasons)
	}
}

// scripted returns a profile of a Python program, with the stacks root first.
func scripted() *profile.Profile {
	b := profile.NewBuilder(profile.ValueType{Type: "samples", Unit: "count"})
	script := func(name string, line int) profile.FrameID {
		f := profile.Function{Name: name, SystemName: name, File: "/srv/app.py", StartLine: 3}
		return b.Frame(profile.Frame{Function: b.Function(f), Mapping: b.Mapping(profile.Mapping{Path: "[python]"}), Line: line, Kind: profile.KindJIT})
	}
	native := func(name, path string) profile.FrameID {
		return b.Frame(profile.Frame{Function: b.Function(profile.Function{Name: name, SystemName: name}), Mapping: b.Mapping(profile.Mapping{Path: path}), Address: 64})
	}
	const python = "/usr/bin/python3.11"
	start, eval, sorted := native("_start", python), native("_PyEval_EvalFrameDefault", python), native("builtin_sorted", python)
	for n, stack := range [][]profile.FrameID{
		1: {start, eval, script("main", 20)},
		2: {start, eval, script("main", 20), eval},
		3: {start, eval, script("main", 21), eval, script("parse", 5), eval},
		4: {start, eval, script("main", 21), eval, script("parse", 6), eval, sorted},
		5: {start, eval, script("main", 21), eval, script("parse", 7), eval, native("zlib_compress", python), native("deflate_slow", "/lib/libz.so.1")},
		6: {start, eval, sorted},
	} {
		var at profile.StackID
		for _, f := range stack {
			at = b.Push(at, f)
		}
		if at != 0 {
			b.Add(profile.Sample{Stack: at, Task: b.Task(profile.Task{PID: 1, Comm: "app"}), CPU: -1, Values: []int64{int64(n)}})
		}
	}
	return b.Profile(profile.Meta{}, profile.Losses{})
}

// Script functions own the time of their interpreter, by lines, too, unless Native is set.
func TestSummaryOfScripts(t *testing.T) {
	for _, test := range []struct {
		native bool
		want   string
	}{
		{false, `     own   total  function              module
   33.3%   57.1%  parse                 python
   28.6%   47.6%  builtin_sorted        python3.11
   23.8%   23.8%  deflate_slow ← parse  libz.so.1
   14.3%   71.4%  main                  python

     own  line       function
   19.0%  app.py:6   parse
   14.3%  app.py:5   parse
   14.3%  app.py:20  main
`},
		{true, `    self   total  function                  module
   47.6%   47.6%  builtin_sorted            python3.11
   23.8%  100.0%  _PyEval_EvalFrameDefault  python3.11
   23.8%   23.8%  deflate_slow              libz.so.1
    4.8%   71.4%  main                      python
`},
	} {
		var out strings.Builder
		if err := Summary(&out, scripted(), SummaryOptions{Functions: 5, Native: test.native, Verbose: true}); err != nil {
			t.Fatal(err)
		}
		if _, got, _ := strings.Cut(out.String(), "\n\n"); got != test.want {
			t.Errorf("native %v: got\n%swant\n%s", test.native, got, test.want)
		}
	}
}
