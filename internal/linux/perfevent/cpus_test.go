package perfevent

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseCPUList(t *testing.T) {
	for _, tc := range []struct {
		in   string
		want []int
		ok   bool
	}{
		{"0\n", []int{0}, true},
		{"0-3,8,10-11\n", []int{0, 1, 2, 3, 8, 10, 11}, true},
		{"3,1-2,2", []int{1, 2, 3}, true},
		{"\n", nil, true},
		{"3-1", nil, false},
		{"-1", nil, false},
		{"1,,2", nil, false},
		{"a", nil, false},
		{"0-4294967295", nil, false},
		{"99999999999999999999", nil, false},
	} {
		got, err := ParseCPUList(tc.in)
		if (err == nil) != tc.ok {
			t.Errorf("ParseCPUList(%q): got error %v, want success: %v", tc.in, err, tc.ok)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("ParseCPUList(%q): %s", tc.in, diff)
		}
	}
}

func TestOnlineCPUs(t *testing.T) {
	if cpus, err := OnlineCPUs(); err != nil || len(cpus) == 0 {
		t.Errorf("OnlineCPUs(): got %v, %v; want some", cpus, err)
	}
}

func FuzzParseCPUList(f *testing.F) {
	for _, s := range []string{"", "0", "0-3,8,10-11\n", "0-65535,0-65535", "3-1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		cpus, err := ParseCPUList(s)
		if err != nil {
			return
		}
		if !slices.IsSorted(cpus) || len(cpus) > maxCPU {
			t.Errorf("ParseCPUList(%q): got an unsorted list or CPUs above the limit", s)
		}
	})
}
