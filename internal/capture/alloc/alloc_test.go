package alloc

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"fulgur/internal/capture/events"
	"fulgur/internal/capture/source"
	"fulgur/internal/capture/target"
	"fulgur/internal/profile"
	"fulgur/internal/symbols/elffile"
)

// found returns the program of each function of the allocators among definitions.
func found(d definitions) map[string]program {
	programs := map[string]program{}
	for _, prefix := range d.prefixes() {
		for _, fn := range d.functions(prefix) {
			programs[fn.name] = fn.program
		}
	}
	return programs
}

func TestFunctions(t *testing.T) {
	for _, test := range []struct {
		name    string
		defined definitions
		want    map[string]program
	}{
		{"nothing", definitions{"realloc": {}, "_Znwm": {}}, map[string]program{}},
		{"C library", definitions{"__libc_start_main": {}, "malloc": {}, "free": {}}, map[string]program{"malloc": leaf, "free": free}},
		{"wrapper", definitions{"malloc": {}, "calloc": {}}, map[string]program{"malloc": size, "calloc": array}},
		{"functions of the same names", definitions{"malloc": {local: true}, "free": {local: true}}, map[string]program{}},
		{
			"jemalloc", definitions{"malloc": {}, "mallctl": {}, "mallocx": {}, "_Znwm": {}, "_ZnamSt11align_val_tRKSt9nothrow_t": {}, "_ZdaPvmSt11align_val_t": {}, "_Znwmx": {}},
			map[string]program{"malloc": leaf, "mallocx": size, "_Znwm": throws, "_ZnamSt11align_val_tRKSt9nothrow_t": size, "_ZdaPvmSt11align_val_t": free},
		},
		{
			"jemalloc with a prefix, beside the C library's", definitions{"je_mallctl": {local: true}, "je_malloc": {local: true}, "je_sdallocx": {local: true}, "malloc": {}},
			map[string]program{"je_malloc": leaf, "je_sdallocx": free, "malloc": size},
		},
	} {
		got := found(test.defined)
		if len(got) != len(test.want) {
			t.Errorf("%s: got %v, want %v", test.name, got, test.want)
		}
		for name, want := range test.want {
			if p, ok := got[name]; !ok || p != want {
				t.Errorf("%s: %s has the program %d, %v, want %d", test.name, name, p, ok, want)
			}
		}
	}
}

func TestIsSpecialized(t *testing.T) {
	for name, want := range map[string]bool{
		"runtime.mallocgcSmallNoScanSC5": true, "runtime.mallocTiny8": true,
		"runtime.mallocgc": false, "runtime.mallocgcTiny": false, "runtime.mallocinit": false, "main.mallocSC1": false,
	} {
		if isSpecialized(name) != want || !isInteresting([]byte("runtime.mallocTiny8")) {
			t.Errorf("%s: got %v, want %v", name, !want, want)
		}
	}
}

// This program's own allocator is found without symbols, and begins with a check of the stack.
func TestOwnAllocator(t *testing.T) {
	f, err := elffile.Open(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	functions, err := find(f, elffile.Tables{f})
	if err != nil {
		t.Fatal(err)
	}
	defined := definitions{}
	if err := defined.addGo(f); err != nil {
		t.Fatal(err)
	}
	for _, fn := range functions {
		if fn.program != inGo || fn.offset <= defined[fn.name].offset {
			t.Errorf("got %+v, want an offset after that of the function, %#x", fn, defined[fn.name].offset)
		}
	}
	if !slices.ContainsFunc(functions, func(fn function) bool { return fn.name == goMalloc || isSpecialized(fn.name) }) {
		t.Errorf("got %v, want Go's functions", functions)
	}
}

// If no allocator of a named process can be measured, "0 allocations" would be wrong.
func TestNothingMeasured(t *testing.T) {
	named := target.Target{Scope: target.Processes, PIDs: []int{1}}
	for _, test := range []struct {
		files  files
		target target.Target
		fails  bool
	}{
		{files{refused: []string{"a: b"}}, named, true},
		{files{refused: []string{"a: b"}, attached: []string{"c"}}, named, false},
		{files{}, named, false}, // it may load one
		{files{refused: []string{"a: b"}}, target.Target{}, false},
	} {
		if err := test.files.check(test.target); (err != nil) != test.fails {
			t.Errorf("%+v of %s: got error %v", test.files, test.target, err)
		}
	}
}

// A window is judged when it is long enough, and by its own hits only.
func TestOverhead(t *testing.T) {
	at := time.Unix(1000, 0)
	now := func(passed, target, trapped, lost time.Duration) state {
		return state{at: at.Add(passed), target: target, trapped: trapped, lost: lost}
	}
	const s = time.Second
	for name, test := range map[string]struct {
		max    float64
		states []state
		want   bool
	}{
		"cheap":             {0.2, []state{now(s, s, s/10, 0), now(2*s, 2*s, s/5, 0)}, false},
		"too short":         {0.2, []state{now(s, s/10, s/10, 0)}, false},
		"expensive":         {0.2, []state{now(s, s, s/2, 0)}, true},
		"expensive later":   {0.2, []state{now(s, 10*s, 0, 0), now(2*s, 11*s, s/2, 0)}, true},
		"no limit":          {1, []state{now(s, s, s, 0)}, false},
		"exited":            {0.2, []state{now(s, s, 0, 0), now(2*s, s/4, s/10, 0)}, false},
		"others pay":        {0.0001, []state{now(s, 0, 0, s)}, true},
		"others hardly pay": {0.9999, []state{now(1000*s, 0, 0, s)}, false},
		"others are early":  {0.9, []state{now(1000*s, s/10, s/10, s)}, false},
	} {
		o := overhead{max: test.max, first: state{at: at}, before: state{at: at}, beforeOthers: state{at: at}, last: state{at: at}}
		for _, n := range test.states {
			o.judge(n, target.Target{})
		}
		if got := o.exceeded != ""; got != test.want {
			t.Errorf("%s: exceeded is %v (%s), want %v", name, got, o.exceeded, test.want)
		}
		if (o.remedy != "") != test.want {
			t.Errorf("%s: the remedy is %q", name, o.remedy)
		}
	}
}

// A file can add a limited number of places, and only while there is room in total.
func TestPlaces(t *testing.T) {
	for _, test := range []struct {
		before, added int
		want          string
	}{
		{0, 0, ""},
		{0, maxFilePlaces, ""},
		{0, maxFilePlaces + 1, "in 65 different places, more than 64"},
		{maxPlaces - maxFilePlaces, maxFilePlaces, ""},
		{maxPlaces - 1, 1, ""},
		{maxPlaces - 1, 2, "of all files are in more than 960"},
	} {
		var before *events.Probe
		if test.before > 0 {
			before = &events.Probe{}
			before.Places = slices.Grow(before.Places, test.before)[:test.before]
		}
		all := &events.Probe{}
		all.Places = slices.Grow(all.Places, test.before+test.added)[:test.before+test.added]
		got := ""
		if err := checkPlaces(all, before); err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, test.want) || (got == "") != (test.want == "") {
			t.Errorf("%d places after %d: got error %q, want %q", test.added, test.before, got, test.want)
		}
	}
}

// Profiles have the rate of samples, unless programs choose it.
func TestPeriod(t *testing.T) {
	for _, test := range []struct {
		config Config
		probed []string
		want   uint64
	}{
		{Config{}, nil, DefaultRate},
		{Config{Rate: 1000}, nil, 1000},
		{Config{Rate: 1000}, []string{"sampler"}, 0},
	} {
		m := New(test.config)
		if err := m.Complete(source.Common{Target: &target.Target{}}); err != nil {
			t.Fatal(err)
		}
		m.source = &Source{probed: probed{names: test.probed}}
		var meta profile.Meta
		if m.Describe(&meta); meta.Period != test.want {
			t.Errorf("%+v, probes of %v: got the period %d, want %d", test.config, test.probed, meta.Period, test.want)
		}
	}
}
