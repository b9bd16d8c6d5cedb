package perfevent

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestParseEvent(t *testing.T) {
	core := []int{0, 1, 2, 3, 4, 5, 6, 7}
	for _, tc := range []struct {
		in   string
		want Spec
	}{
		{"cycles", Spec{Name: "cycles"}},
		{"instructions:u", Spec{Name: "instructions", Config: 1, ExcludeKernel: true}},
		{"cpu-clock:k", Spec{Name: "cpu-clock", Type: 1, ExcludeUser: true}},
		{"page-faults:uk", Spec{Name: "page-faults", Type: 1, Config: 2}},
		{"cycles:ppu", Spec{Name: "cycles", ExcludeKernel: true, Precise: 2}},
		{"r1a8", Spec{Name: "r1a8", Type: 4, Config: 0x1a8}},
		{"ref-cycles", Spec{Name: "ref-cycles", Config: 9}},
		{"cpu_core/cpu-cycles/", Spec{Name: "cpu_core/cpu-cycles/", Type: 4, Config: 0x3c, CPUs: core}},
		{
			"cpu_core/event=0xcd,umask=0x1,edge,ldlat=3/u",
			Spec{Name: "cpu_core/event=0xcd,umask=0x1,edge,ldlat=3/", Type: 4, Config: 0x401cd, Config1: 3, ExcludeKernel: true, CPUs: core},
		},
		{"cpu_core/config=0x1ff,config2=1/:k", Spec{Name: "cpu_core/config=0x1ff,config2=1/", Type: 4, Config: 0x1ff, Config2: 1, ExcludeUser: true, CPUs: core}},
		{"uncore_imc/split=0xa5/", Spec{Name: "uncore_imc/split=0xa5/", Type: 20, Config: 0xa_0000_0005, CPUs: []int{0}}},
		{"uncore_imc//", Spec{Name: "uncore_imc//", Type: 20, CPUs: []int{0}}},
	} {
		got, err := parseEvent("testdata/hybrid", tc.in)
		if err != nil {
			t.Errorf("%s: %v", tc.in, err)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: %s", tc.in, diff)
		}
	}
}

func TestParseEventErrors(t *testing.T) {
	for _, tc := range []struct{ in, want string }{
		{"", "unknown event"},
		{"rxyz", "unknown event"},
		{"cycles:q", `modifier 'q'`},
		{"cycles:pppp", "at most 3"},
		{"nopmu/x/", "no PMU"},
		{"cpu_core/event=1", "slash"},
		{"../hybrid/cpu_core/event=1/", "PMU"},
		{"cpu_core/../x/", "bad term"},
		{"cpu_core/..=1/", "bad term"},
		{"cpu_core/event=0x100/", "8 bits"},
		{"cpu_core/event=moo/", "invalid syntax"},
		{"cpu_core/nothing/", "neither a term nor an alias"},
	} {
		_, err := parseEvent("testdata/hybrid", tc.in)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%q: got error %v, want %q in it", tc.in, err, tc.want)
		}
	}
}

func TestCoreCycles(t *testing.T) {
	for _, tc := range []struct {
		devices string
		want    []Spec
	}{
		{"testdata/hybrid", []Spec{
			{Name: "cpu_atom/cpu-cycles/", Type: 10, Config: 0x3c, CPUs: []int{8, 9, 10, 11, 12, 13, 14, 15}},
			{Name: "cpu_core/cpu-cycles/", Type: 4, Config: 0x3c, CPUs: []int{0, 1, 2, 3, 4, 5, 6, 7}},
		}},
		{"testdata/arm", []Spec{
			{Name: "armv8_pmuv3_0/cpu_cycles/", Type: 8, Config: 0x11, CPUs: []int{0, 1, 2, 3}},
			{Name: "armv8_pmuv3_1/cpu_cycles/", Type: 9, Config: 0x11, CPUs: []int{4, 5}},
		}},
		{"testdata/none", []Spec{{Name: "cycles"}}},
	} {
		got, err := coreCycles(tc.devices)
		if err != nil {
			t.Errorf("%s: %v", tc.devices, err)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: %s", tc.devices, diff)
		}
	}
}

func FuzzParseEvent(f *testing.F) {
	for _, s := range []string{"cycles:u", "r1a8", "cpu_core/event=0xcd,umask=0x1,edge/u", "uncore_imc/split=0xa5/", "//", "a/=/"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if spec, err := parseEvent("testdata/hybrid", s); err == nil && !strings.HasPrefix(s, spec.Name) {
			t.Errorf("%q: got name %q, want a prefix", s, spec.Name)
		}
	})
}

func FuzzParseFormat(f *testing.F) {
	for _, s := range []string{"config:0-7\n", "config1:0", "config:0-3,32-35", "config:64", ":"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		_, bits, err := parseFormat(s)
		if err == nil && (len(bits) == 0 || len(bits) > 64) {
			t.Errorf("%q: got %d bits, want 1 to 64", s, len(bits))
		}
	})
}

func TestName(t *testing.T) {
	seen := map[string]bool{}
	for name, e := range generic {
		got := Name(e.typ, e.config)
		if got != name && !slices.Contains(aliases, name) {
			t.Errorf("%s: got name %s, want the same or an alias", name, got)
		}
		seen[got] = true
	}
	if len(seen) != len(generic)-len(aliases) {
		t.Errorf("got %d names of %d events with %d aliases, want %d", len(seen), len(generic), len(aliases), len(generic)-len(aliases))
	}
	if got := Name(unix.PERF_TYPE_RAW, 0x1a8); got != "4:0x1a8" {
		t.Errorf("raw event: got name %s, want %s", got, "4:0x1a8")
	}
}
