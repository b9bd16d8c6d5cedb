package filter_test

import (
	"encoding/json"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"fulgur/internal/profile"
	"fulgur/internal/profile/decode"
	"fulgur/internal/profile/encode/flame"
	"fulgur/internal/profile/encode/folded"
	"fulgur/internal/profile/filter"
	"fulgur/internal/unwind/stackend"
)

// cases is a table of filters and their results. The test of package flame checks that pages have the
// same. {NAME} stands for the key of a function.
type cases struct {
	Profile string
	Cases   []struct {
		Filters []string
		Want    string
	}
}

// text returns the stacks of a profile, sorted.
func text(t *testing.T, p *profile.Profile) string {
	t.Helper()
	if err := p.Check(); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := folded.Write(&b, p, folded.Options{}); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(b.String()) {
		if !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// list parses filters.
func list(t *testing.T, p *profile.Profile, lines ...string) (l filter.List) {
	t.Helper()
	var keys []string
	for id := 1; id < len(p.Frames); id++ {
		keys = append(keys, "{"+p.FrameName(profile.FrameID(id))+"}", flame.Key(p, profile.FrameID(id)))
	}
	for _, line := range lines {
		f, err := filter.Parse(strings.NewReplacer(keys...).Replace(line))
		if err != nil {
			t.Fatal(err)
		}
		l = append(l, f)
	}
	return l
}

func TestApply(t *testing.T) {
	data, err := os.ReadFile("testdata/cases.json")
	if err != nil {
		t.Fatal(err)
	}
	var table cases
	if err := json.Unmarshal(data, &table); err != nil {
		t.Fatal(err)
	}
	p, _, err := decode.Read(t.Context(), strings.NewReader(table.Profile), "cases")
	if err != nil {
		t.Fatal(err)
	}
	before := text(t, p)
	for _, c := range table.Cases {
		l := list(t, p, c.Filters...)
		if got := text(t, l.Apply(p, flame.Key)); got != c.Want {
			t.Errorf("%q: got\n%s\nwant\n%s", c.Filters, got, c.Want)
		}
		again, err := filter.ParseAddress("http://127.0.0.1/page#view=table&" + l.Address())
		if err != nil || again.Address() != l.Address() {
			t.Errorf("%q: got %q, %v from the address %q", c.Filters, again, err, l.Address())
		}
	}
	if after := text(t, p); after != before {
		t.Errorf("the filters have changed the profile to\n%s", after)
	}
}

// labeled returns a profile with labels, a container, and an inlined function.
func labeled() *profile.Profile {
	b := profile.NewBuilder(profile.ValueType{Type: "samples", Unit: "count"})
	outer := b.Frame(profile.Frame{Function: b.Function(profile.Function{Name: "outer"}), Address: 4})
	inlined := b.Frame(profile.Frame{Function: b.Function(profile.Function{Name: "inlined"}), Address: 4, Inlined: true})
	stack := b.Push(b.Push(0, outer), inlined)
	for i, route := range []string{"/a", "/b", "/c"} {
		t := profile.Task{PID: 10 + i, TID: 20 + i, Comm: "server", Labels: b.Labels(profile.NewLabels([]profile.Label{{Key: "route", Value: route}}))}
		if i == 0 {
			t.Owner = b.Owner(profile.Owner{Container: "web"})
		}
		b.Add(profile.Sample{Stack: stack, Task: b.Task(t), CPU: -1, End: stackend.Complete, Values: []int64{1 << (4 * i)}})
	}
	return b.Profile(profile.Meta{}, profile.Losses{})
}

// Filters of tasks select by ID and label.
func TestTasks(t *testing.T) {
	p := labeled()
	for line, want := range map[string]int64{
		"label:route=^/[ab]$": 0x11, "label:route=/c": 0x100, "label:method=": 0, "label:container=we": 1, "label:pod=.*": 0,
		"process:11": 0x10, "thread:22": 0x100, "process:22": 0, "process:server": 0x111,
	} {
		if got := list(t, p, line).Apply(p, flame.Key).Total(0); got != want {
			t.Errorf("%s: got %#x, want %#x", line, got, want)
		}
	}
}

// A function that was inlined into a hidden one is no longer part of it.
func TestHideOuter(t *testing.T) {
	p := labeled()
	hidden := list(t, p, "hide:outer").Apply(p, flame.Key)
	frames := hidden.AppendFrames(nil, hidden.Samples[0].Stack)
	if len(frames) != 1 || hidden.FrameName(frames[0]) != "inlined" || hidden.Frames[frames[0]].Inlined {
		t.Errorf("got %d frames, want one that is not inlined", len(frames))
	}
	if hidden.Total(0) != p.Total(0) || hidden.Check() != nil {
		t.Errorf("got %d samples, want %d", hidden.Total(0), p.Total(0))
	}
}

// The choice of a process or thread is part of a page's address. What commands cannot apply is an error.
func TestParseAddress(t *testing.T) {
	for address, want := range map[string]string{
		"":                                    "",
		"#":                                   "",
		"view=table&q=x":                      "",
		"#task=p.12":                          "process:12",
		"#task=t.34":                          "thread:34",
		"#task=c.a.out":                       `process:^(?:a\.out)$`,
		"#time=1-2.5":                         "time:1ms,2.5ms",
		"#time=1-2&filter=ignore-time%3A3%2C": "ignore-time:3, time:1ms,2ms",
		"#filter=focus%3Aa%0Ahide%3Amodule%3Ab&task=p.1": "process:1 focus:a hide:module:b",
	} {
		l, err := filter.ParseAddress(address)
		var got []string
		for _, f := range l {
			got = append(got, f.String())
		}
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%q: got %q, %v, want %q", address, got, err, want)
		}
	}
	for address, want := range map[string]string{
		"#time=2-1":              `the range of time "2-1" is not FROM-TO in milliseconds`,
		"#time=1":                "is not FROM-TO in milliseconds",
		"#time=NaN-1":            "is not FROM-TO in milliseconds",
		"#filter=time%3A1":       `"1" is not FROM,TO`,
		"#filter=time%3Ax%2C2":   `"x" is not a time`,
		"#filter=time%3A-1%2C2":  "is negative",
		"#filter=time%3A2%2C1":   "ends before it begins",
		"#task=g.web":            "works only on pages",
		"#filter=library%3Alibc": `"library" works only on pages`,
		"#filter=nonsense":       `unknown filter "nonsense"`,
		"#filter=focus%3A(":      "is not a regular expression",
		"#filter=label%3Aroute":  "is not KEY=EXPRESSION",
		"#filter=" + strings.Repeat("focus%3Aa%0A", 33): "the maximum is 32",
		"#%zz": "not the address of a page",
	} {
		if _, err := filter.ParseAddress(address); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", address, err, want)
		}
	}
}

// Any address is parsed, or is an error; what is parsed has an address with the same filters, and can be
// applied.
func FuzzParseAddress(f *testing.F) {
	f.Add("#filter=focus%3Aa%0Ahide%3Afile%3Ab&task=c.x")
	f.Add("filter=label%3Aa%3Db")
	f.Add("time=1-2.000001&filter=time%3A1%2C%0Aignore-time%3A%2C3h")
	p := labeled()
	f.Fuzz(func(t *testing.T, address string) {
		l, err := filter.ParseAddress(address)
		if err != nil {
			return
		}
		again, err := filter.ParseAddress(l.Address())
		if err != nil || again.Address() != l.Address() {
			t.Fatalf("%q: got %q, %v", l.Address(), again.Address(), err)
		}
		q := l.Apply(p, flame.Key)
		if err := q.Check(); err != nil || q.Total(0) > p.Total(0) {
			t.Fatalf("got %d samples of %d, %v", q.Total(0), p.Total(0), err)
		}
	})
}

// Filters of tasks select the slowest intervals, too. Those of stacks do not.
func TestSlowest(t *testing.T) {
	p := profile.NewBuilder(profile.ValueType{Type: "slow", Unit: "nanoseconds"}).Profile(profile.Meta{Slowest: []profile.SlowInterval{
		{Length: 3, PID: 1, TID: 1, Comm: "app", Fields: []profile.Label{{Key: "route", Value: "/a"}}},
		{Length: 2, PID: 1, TID: 2, Comm: "worker"},
		{Length: 1, PID: 3, TID: 3, Comm: "app", Fields: []profile.Label{{Key: "route", Value: "/b"}}},
	}}, profile.Losses{})
	for text, want := range map[string]string{
		"process:1": "32", "thread:2": "2", "process:app": "31", "thread:^work": "2", "label:route=^/b": "1", "label:other=b": "", "focus:main": "321",
	} {
		f, err := filter.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, i := range (filter.List{f}).Apply(p, func(*profile.Profile, profile.FrameID) string { return "" }).Meta.Slowest {
			got += strconv.Itoa(int(i.Length))
		}
		if got != want {
			t.Errorf("%s: got the intervals %q, want %q", text, got, want)
		}
	}
	if len(p.Meta.Slowest) != 3 {
		t.Errorf("the filters changed their input: %d intervals remain", len(p.Meta.Slowest))
	}
}
