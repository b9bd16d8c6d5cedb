package session

import (
	"errors"
	"strings"
	"testing"

	"fulgur/internal/bpf"
	"fulgur/internal/capture/oncpu"
	"fulgur/internal/capture/probe"
	"fulgur/internal/capture/target"
	"fulgur/internal/linux/perfevent"
	"fulgur/internal/message/usage"
	"fulgur/internal/profile"
)

// completeProfile completes the options of a profile like [Measure].
func completeProfile(o *ProfileOptions) error {
	return o.complete(o.Subject())
}

func TestCompleteDefaults(t *testing.T) {
	limit, err := perfevent.MaxStack()
	if err != nil {
		t.Fatal(err)
	}
	o := ProfileOptions{}
	if err := completeProfile(&o); err != nil {
		t.Fatal(err)
	}
	if want := min(limit, bpf.MaxDepth); o.MaxDepth != want {
		t.Errorf("got depth %d, want %d", o.MaxDepth, want)
	}
	cpus, err := perfevent.OnlineCPUs()
	if err != nil {
		t.Fatal(err)
	}
	if o.RingSize != (&ProfileOptions{}).ringPreset(len(cpus)) || o.CountEntries != probe.DefaultCountEntries || o.SeenEntries != probe.DefaultSeenEntries {
		t.Errorf("got sizes %d, %d, %d, want the defaults", o.RingSize, o.CountEntries, o.SeenEntries)
	}
}

// The ring of a whole machine grows with its CPUs if stacks may wait for unwind tables.
func TestRingPreset(t *testing.T) {
	for _, test := range []struct {
		options Options
		cpus    int
		want    uint32
	}{
		{Options{}, 2, 5 << 19},
		{Options{}, 1000, maxCopiesRing},
		{Options{Unwind: "fp"}, 1000, probe.DefaultRingSize},
		{Options{KernelOnly: true}, 1000, probe.DefaultRingSize},
		{Options{Target: target.Target{Scope: target.Processes}}, 1000, probe.DefaultRingSize / 2},
	} {
		if got := test.options.ringPreset(test.cpus); got != test.want {
			t.Errorf("%+v with %d CPUs: got %d, want %d", test.options, test.cpus, got, test.want)
		}
	}
}

func TestCompleteKeepsSizes(t *testing.T) {
	given := ProfileOptions{Options: Options{MaxDepth: 1, RingSize: 4096, CountEntries: 64, SeenEntries: 4}}
	o := given
	if err := completeProfile(&o); err != nil {
		t.Fatal(err)
	}
	if o.MaxDepth != 1 || o.RingSize != 4096 || o.CountEntries != 64 || o.SeenEntries != 4 {
		t.Errorf("got %+v for %+v, want the given sizes", o, given)
	}
}

func TestCompleteRefuses(t *testing.T) {
	rate, err := perfevent.MaxSampleRate()
	if err != nil {
		t.Fatal(err)
	}
	depth, err := perfevent.MaxStack()
	if err != nil {
		t.Fatal(err)
	}
	tooDeep := "sysctl kernel.perf_event_max_stack"
	if depth >= bpf.MaxDepth { // the sysctl would not help
		tooDeep = "above the maximum of"
	}
	for _, test := range []struct {
		name    string
		options ProfileOptions
		want    string
	}{
		{"both halves left out", ProfileOptions{Options: Options{UserOnly: true, KernelOnly: true}}, "cannot be combined"},
		{"groups by label without tables", ProfileOptions{Options: Options{By: profile.GroupLabel, ByLabel: "x", Unwind: "fp"}}, "groups by label"},
		{"groups by label without interpreters", ProfileOptions{Options: Options{By: profile.GroupLabel, ByLabel: "x", Interpreters: "off"}}, "groups by label"},
		{"groups by label without user stacks", ProfileOptions{Options: Options{By: profile.GroupLabel, ByLabel: "x", KernelOnly: true}}, "groups by label"},
		{"peers of samples", ProfileOptions{Options: Options{By: profile.GroupLabel, ByLabel: "peer", OwnLabel: true}}, "only waits have peers"},
		{"frequency and period", ProfileOptions{Config: oncpu.Config{Frequency: 99, Period: 1000}}, "cannot be combined"},
		{"frequency too high", ProfileOptions{Config: oncpu.Config{Frequency: rate + 1}}, "sysctl kernel.perf_event_max_sample_rate"},
		{"parallelism of cycles", ProfileOptions{Config: oncpu.Config{Parallelism: true, Event: "cycles"}}, "needs a clock, but cycles is not one"},
		{"parallelism of idle CPUs", ProfileOptions{Config: oncpu.Config{Parallelism: true, Idle: true}}, "an idle CPU runs no thread"},
		{"depth above the kernel's", ProfileOptions{Options: Options{MaxDepth: depth + 1}}, tooDeep},
		{"depth above a record's", ProfileOptions{Options: Options{MaxDepth: max(depth, bpf.MaxDepth) + 1}}, "frames"},
		{"negative depth", ProfileOptions{Options: Options{MaxDepth: -1}}, "negative"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := completeProfile(&test.options)
			if !errors.Is(err, usage.Err) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want a usage error that contains %q", err, test.want)
			}
		})
	}
}
