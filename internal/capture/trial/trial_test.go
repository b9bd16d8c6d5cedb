package trial

import (
	"errors"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"

	"fulgur/internal/capture/sources"
	"fulgur/internal/doctor"
	"fulgur/internal/testenv"
	"fulgur/test/rig/pmu"
)

// All trials succeed for root on every supported kernel, and again when repeated, because
// a trial leaves nothing behind.
func TestAll(t *testing.T) {
	testenv.Root(t)
	tried := All().Run()
	first := tried
	if !testenv.BriefInVM() {
		tried = All().Run()
	}
	for p := range first {
		if (first[p].Err == nil) != (tried[p].Err == nil) {
			t.Errorf("%s: first %v, then %v", p, first[p].Err, tried[p].Err)
		}
	}
	needed := []doctor.Probe{doctor.ProbePerfEvent, doctor.ProbeRing, doctor.ProbeTracing, doctor.ProbeRawTracepoint, doctor.ProbeIterator}
	for _, subject := range sources.All() {
		needed = append(needed, doctor.ProbePrograms(subject.Command()))
	}
	for _, p := range needed {
		if outcome, ok := tried[p]; !ok || outcome.Err != nil {
			t.Errorf("%s: %v", p, outcome.Err)
		}
	}
	// Kernels before 5.17 lack them.
	asks := errors.Join(features.HaveProgramType(ebpf.Syscall), features.HaveProgramHelper(ebpf.PerfEvent, asm.FnLoop)) == nil
	if err := tried[doctor.ProbeKernelNames].Err; (err == nil) != asks {
		t.Errorf("kernel names: got %v, want success: %t", err, asks)
	}
	// A machine may lack optional features, but only for a known reason.
	if err := tried[doctor.ProbeCycles].Err; err != nil && !errors.Is(err, doctor.ErrNoPMU) {
		t.Errorf("cycles: %v", err)
	}
	for _, p := range []doctor.Probe{doctor.ProbeFentry, doctor.ProbeKprobe} {
		t.Logf("%s: %v", p, tried[p].Err)
	}
}

// The cycles of a PMU are the default event.
func TestPMU(t *testing.T) {
	pmu.Load(t, pmu.Options{None: true})
	if o := All().Run()[doctor.ProbeCycles]; o.Err != nil || o.Found != doctor.FoundCycles {
		t.Errorf("cycles: got %+v, want %v", o, doctor.FoundCycles)
	}
}
