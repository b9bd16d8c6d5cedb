package compare

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"fulgur/internal/message/plain"
	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/encodetest"
)

// counted is the number of samples in each function of a run, and work the events that it did.
type counted struct {
	samples map[string]int64
	work    int64
	seconds int
	command string
}

// run returns a run of a server. Each sample is 10 ms of CPU time.
func (c counted) run(name string) Run {
	types := []profile.ValueType{{Type: "samples", Unit: "count"}, {Type: "cpu", Unit: "nanoseconds"}, {Type: "requests", Unit: "count"}}
	b := profile.NewBuilder(types...)
	server, libc, kernel := b.Mapping(profile.Mapping{Path: "/srv/server"}), b.Mapping(profile.Mapping{Path: "/lib/libc.so.6"}), b.Mapping(profile.Mapping{Path: profile.KernelPath})
	frame := func(name string) profile.FrameID {
		f := profile.Frame{Mapping: server, Function: b.Function(profile.Function{Name: name, SystemName: name})}
		switch {
		case strings.HasPrefix(name, "mem"):
			f.Mapping = libc
		case strings.HasPrefix(name, "sys_"):
			f.Mapping, f.Kind = kernel, profile.KindKernel
		}
		return b.Frame(f)
	}
	task := b.Task(profile.Task{Comm: "server"})
	main := b.Push(0, frame("main"))
	for _, name := range slices.Sorted(func(yield func(string) bool) {
		for name := range c.samples {
			if !yield(name) {
				return
			}
		}
	}) {
		n := c.samples[name]
		b.Add(profile.Sample{Stack: b.Push(main, frame(name)), Task: task, CPU: -1, Values: []int64{n, n * 1e7, 0}})
	}
	b.Add(profile.Sample{Stack: main, Task: task, CPU: -1, Values: []int64{0, 0, c.work}})
	meta := profile.Meta{Duration: time.Duration(c.seconds) * time.Second}
	if c.command != "" {
		meta.Scope, meta.Command = "command, pid 7 with children", "fulgur profile -o x.pb.gz -- "+c.command
	}
	return Run{Profile: b.Profile(meta, profile.Losses{}), Name: name, Value: 0, Work: float64(c.work)}
}

// functions are those of a run of 10 s.
func functions(parse, memcpy int64) map[string]int64 {
	return map[string]int64{"parse": parse, "sort": 2000, "handle": 1500, "memcpy": memcpy, "sys_read": 500, "log": 300, "rare": 3}
}

// several returns both sides of three runs: parse takes more, and memcpy less.
func several() (base, changed []Run) {
	for i, d := range []int64{0, 20, -25} {
		base = append(base, counted{functions(1000+d, 800-d), 1000, 10, ""}.run("base.pb.gz"))
		changed = append(changed, counted{functions(1400-d, 500+d), 1000 + int64(i), 10, ""}.run("new.pb.gz"))
	}
	return base, changed
}

func TestWrite(t *testing.T) {
	base, changed := several()
	cpu := func(runs []Run) (list []Run) {
		for _, r := range runs {
			r.Value = 1
			list = append(list, r)
		}
		return list
	}
	limited := New(base, changed, Options{})
	if unknown := limited.Check([]Limit{{Above: 0.03}, {Function: "parse", Above: 0.01}, {Function: "gone", Above: 0.01}}); len(unknown) != 1 || unknown[0].Function != "gone" {
		t.Errorf("got unknown functions %v, want gone", unknown)
	}
	unknown := slices.Clone(base)
	for i := range unknown {
		p := *unknown[i].Profile
		p.ValueTypes = slices.Clone(p.ValueTypes)
		p.ValueTypes[0].Type = "inuse_objects"
		unknown[i].Profile = &p
	}
	for name, c := range map[string]struct {
		c *Comparison
		o WriteOptions
	}{
		"amounts":  {New(base, changed, Options{}), WriteOptions{}},
		"shares":   {New(base, changed, Options{Normalize: Shares}), WriteOptions{All: true}},
		"one-run":  {New(base[:1], changed[:1], Options{Normalize: Shares}), WriteOptions{Functions: 1}},
		"narrow":   {New(base, changed, Options{Normalize: Shares}), WriteOptions{Columns: 80}},
		"by-work":  {New(cpu(base), cpu(changed), Options{Normalize: ByWork, Work: "requests"}), WriteOptions{}},
		"limited":  {limited, WriteOptions{}},
		"equal":    {New(base, base, Options{}), WriteOptions{}},
		"unknown":  {New(unknown[:1], unknown[1:2], Options{}), WriteOptions{}},
		"no-value": {New([]Run{counted{seconds: 10}.run("empty")}, []Run{counted{seconds: 10}.run("empty")}, Options{}), WriteOptions{}},
	} {
		var text, markdown, data bytes.Buffer
		if err := errors.Join(c.c.WriteText(&text, c.o), c.c.WriteMarkdown(&markdown, c.o), c.c.WriteJSON(&data)); err != nil {
			t.Fatal(err)
		}
		encodetest.Golden(t, name+".txt", text.Bytes())
		encodetest.Golden(t, name+".md", markdown.Bytes())
		encodetest.Golden(t, name+".json", data.Bytes())
		if !json.Valid(data.Bytes()) {
			t.Errorf("%s: got invalid JSON", name)
		}
	}
	if err := limited.WriteText(encodetest.FullDisk{}, WriteOptions{}); !errors.Is(err, encodetest.ErrFullDisk) {
		t.Errorf("got error %v, want the writer's", err)
	}
}

// Runs are compared by shares unless they have the same length.
func TestNormalization(t *testing.T) {
	run := func(seconds int, parse int64, command string) Run {
		return counted{functions(parse, 800), 1, seconds, command}.run("x")
	}
	for name, c := range map[string]struct {
		base, changed Run
		want          Normalization
	}{
		"same time":                  {run(10, 1000, ""), run(10, 3000, ""), Amounts},
		"other times":                {run(10, 1000, ""), run(12, 1000, ""), Shares},
		"no times, the same sum":     {run(0, 1000, ""), run(0, 1010, ""), Amounts},
		"no times, other sums":       {run(0, 1000, ""), run(0, 3000, ""), Shares},
		"one time only":              {run(10, 1000, ""), run(0, 3000, ""), Shares},
		"commands of the same time":  {run(10, 1000, "make"), run(10, 1000, "make"), Shares},
		"a command and another time": {run(10, 1000, "make"), run(10, 1000, ""), Shares},
	} {
		if got := New([]Run{c.base}, []Run{c.changed}, Options{}).Normalized; got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
}

// Scale makes sums comparable as the table does.
func TestScale(t *testing.T) {
	base, changed := several()
	for normalize, want := range map[Normalization]float64{Shares: 1.016, Amounts: 1, ByWork: 1.001} {
		got := New(base, changed, Options{Normalize: normalize, Work: "requests"}).Scale()
		if got < want-0.001 || got > want+0.001 {
			t.Errorf("%s: got %v, want about %v", normalize, got, want)
		}
	}
	if got := New(base[:1], changed, Options{Normalize: Amounts}).Scale(); got != 3 {
		t.Errorf("one run and three: got %v, want 3", got)
	}
}

func TestCheck(t *testing.T) {
	base, changed := several()
	for name, c := range map[string]struct {
		normalize Normalization
		limit     string
		want      []string // functions
	}{
		"above":           {Shares, "3%", []string{"parse"}},
		"far above":       {Shares, "10%", nil},
		"no percent sign": {Amounts, "3", []string{"parse"}},
		"function":        {Shares, "parse>1%", []string{"parse"}},
		"smaller":         {Shares, "memcpy>1%", nil},
		"within noise":    {Shares, "sort>0%", nil},
	} {
		parse := ParseLimit
		if strings.Contains(c.limit, ">") {
			parse = ParseFunctionLimit
		}
		l, err := parse(c.limit)
		if err != nil {
			t.Fatal(err)
		}
		compared := New(base, changed, Options{Normalize: c.normalize})
		if unknown := compared.Check([]Limit{l}); len(unknown) > 0 {
			t.Errorf("%s: got unknown functions %v", name, unknown)
		}
		var got []string
		for _, r := range compared.Regressions {
			got = append(got, r.Function)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got regressions of %q, want %q", name, got, c.want)
		}
	}
}

// If runs do the same work, the sum counts, although shares do not show it.
func TestCheckSum(t *testing.T) {
	slower := func(command string, factor int64) (runs []Run) {
		for _, d := range []int64{0, 10, -10} {
			f := functions(1000+d, 800)
			for name := range f {
				f[name] *= factor
			}
			runs = append(runs, counted{f, 1, 10 * int(factor), command}.run("x"))
		}
		return runs
	}
	for command, want := range map[string]int{"make": 1, "": 0} {
		c := New(slower(command, 1), slower(command, 2), Options{Normalize: Shares})
		c.Check([]Limit{{Above: 0.03}})
		if len(c.Regressions) != want {
			t.Errorf("command %q: got %v, want %d regressions", command, c.Regressions, want)
		}
	}
}

func TestParseLimits(t *testing.T) {
	for _, text := range []string{"", "%", "x%", "-1%", "NaN", "Inf%", "3%%"} {
		if l, err := ParseLimit(text); err == nil {
			t.Errorf("%q: got %v, want an error", text, l)
		}
	}
	for _, text := range []string{"", "parse", ">1%", "parse>", "parse>x"} {
		if l, err := ParseFunctionLimit(text); err == nil {
			t.Errorf("%q: got %v, want an error", text, l)
		}
	}
	for _, text := range []string{"parse>1%", "operator>>>0.5%", "std::vector<int>::push>3%"} {
		if l, err := ParseFunctionLimit(text); err != nil || l.String() != text {
			t.Errorf("%q: got %v, %v", text, l, err)
		}
	}
}

// Names of functions, values and files are untrusted.
func TestHostile(t *testing.T) {
	for _, name := range encodetest.HostileNames {
		p := encodetest.Hostile().Only(0)
		p.ValueTypes = []profile.ValueType{{Type: name, Unit: name}}
		run := Run{Profile: p, Name: name}
		c := New([]Run{run}, []Run{run, run}, Options{})
		var out bytes.Buffer
		if err := errors.Join(c.WriteText(&out, WriteOptions{All: true}), c.WriteMarkdown(&out, WriteOptions{All: true})); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(out.String()) {
			if line = strings.TrimSuffix(line, "\n"); line != "" && plain.Terminal(line) != line {
				t.Fatalf("%q: got the line %q", name, line)
			}
		}
		if err := c.WriteJSON(io.Discard); err != nil {
			t.Fatal(err)
		}
	}
}
