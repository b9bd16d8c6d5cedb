package session

import (
	"errors"
	"strings"
	"testing"

	"fulgur/internal/capture/oncpu"
	"fulgur/internal/linux/perfevent"
	"fulgur/internal/message/usage"
)

// completeProfile completes the options of a profile, as [measure] does.
func completeProfile(o *ProfileOptions) error {
	common := &o.Options
	return errors.Join((&onCPU{options: o}).complete(), common.complete())
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
	if o.Frequency != DefaultFrequency || o.Period != 0 {
		t.Errorf("frequency %d and period %d, want %d and 0", o.Frequency, o.Period, DefaultFrequency)
	}
	if want := min(limit, hardMaxDepth); o.MaxDepth != want {
		t.Errorf("depth %d, want %d", o.MaxDepth, want)
	}
	if o.RingSize != oncpu.DefaultRingSize || o.CountEntries != oncpu.DefaultCountEntries || o.SeenEntries != oncpu.DefaultSeenEntries {
		t.Errorf("sizes %d, %d, %d are not the defaults", o.RingSize, o.CountEntries, o.SeenEntries)
	}
}

func TestCompleteKeepsWhatIsAskedFor(t *testing.T) {
	asked := ProfileOptions{Period: 1000003, Options: Options{MaxDepth: 1, RingSize: 4096, CountEntries: 64, SeenEntries: 4}}
	o := asked
	if err := completeProfile(&o); err != nil {
		t.Fatal(err)
	}
	if o.Period != asked.Period || o.Frequency != 0 || o.MaxDepth != 1 || o.RingSize != 4096 || o.CountEntries != 64 || o.SeenEntries != 4 {
		t.Errorf("%+v of %+v", o, asked)
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
	for _, test := range []struct {
		name    string
		options ProfileOptions
		want    string
	}{
		{"both halves left out", ProfileOptions{Options: Options{UserOnly: true, KernelOnly: true}}, "cannot be combined"},
		{"frequency and period", ProfileOptions{Frequency: 99, Period: 1000}, "cannot be combined"},
		{"frequency too high", ProfileOptions{Frequency: rate + 1}, "sysctl kernel.perf_event_max_sample_rate"},
		{"depth above the kernel's", ProfileOptions{Options: Options{MaxDepth: depth + 1}}, "sysctl kernel.perf_event_max_stack"},
		{"depth above a record's", ProfileOptions{Options: Options{MaxDepth: max(depth, hardMaxDepth) + 1}}, "frames"},
		{"negative depth", ProfileOptions{Options: Options{MaxDepth: -1}}, "negative"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := completeProfile(&test.options)
			if !errors.Is(err, usage.Err) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want a usage error that says %q", err, test.want)
			}
		})
	}
}

func TestSpecs(t *testing.T) {
	m := &onCPU{options: &ProfileOptions{Event: "cpu-clock"}}
	if err := m.complete(); err != nil || len(m.specs) != 1 || m.specs[0].Name != "cpu-clock" || !m.specs[0].IsTime() {
		t.Errorf("cpu-clock: %+v, %v", m.specs, err)
	}
	m = &onCPU{options: &ProfileOptions{Event: "no-such-event"}}
	if err := m.complete(); !errors.Is(err, usage.Err) || !strings.Contains(err.Error(), "no-such-event") {
		t.Errorf("no-such-event: %v; want a usage error that names it", err)
	}
}
