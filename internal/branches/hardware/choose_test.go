package hardware

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"fulgur/internal/capture/sampling"
)

// nearTaken returns an event's code only for PMUs where the event is known to count taken
// branches.
func TestNearTaken(t *testing.T) {
	for pmu, known := range map[string]bool{"skylake": true, "sapphire_rapids": true, "westmere": false, "goldmont": false, "": false} {
		devices := t.TempDir()
		if err := os.MkdirAll(filepath.Join(devices, "cpu", "caps"), 0o755); err != nil {
			t.Fatal(err)
		}
		if pmu != "" {
			if err := os.WriteFile(filepath.Join(devices, "cpu", "caps", "pmu_name"), []byte(pmu+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if terms := nearTaken(pmuName(devices)); terms != "" != known {
			t.Errorf("%q: got terms %q, want some: %v", pmu, terms, known)
		}
	}
}

// Without information on its PMU, a machine samples cycles.
func TestCandidates(t *testing.T) {
	events, err := candidates(t.TempDir(), 999)
	if err != nil {
		t.Fatal(err)
	}
	if len(events) != 1 || events[0].Specs[0].Name != "cycles" || events[0].Rate != (sampling.Rate{Frequency: 999}) {
		t.Errorf("got %+v, want cycles at 999 Hz", events)
	}
}

// AMD's branch sampling needs periods longer than its 16 records.
func TestBRSPeriod(t *testing.T) {
	for _, frequency := range []uint64{0, 1, 99, 4000, 100_000, 1 << 40} {
		if p := brsPeriod(frequency); p <= 16 || p%2 == 0 {
			t.Errorf("frequency %d: got period %d, want an odd one above 16", frequency, p)
		}
	}
}

func TestNamedUnknown(t *testing.T) {
	_, err := Named("no-such-event", sampling.Rate{Frequency: 1}, false)
	if err == nil || errors.Is(err, ErrNone) {
		t.Errorf("got error %v, want one about the name", err)
	}
}
