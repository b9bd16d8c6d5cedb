package probe

import (
	"errors"
	"testing"

	"fulgur/internal/doctor"
	"fulgur/internal/testenv"
)

// What the design counts on works on every kernel that is promised, for root.
func TestAll(t *testing.T) {
	testenv.Root(t)
	tried := All()
	for _, p := range []doctor.Probe{
		doctor.ProbePerfEvent, doctor.ProbeRing, doctor.ProbeTracing, doctor.ProbeRawTracepoint, doctor.ProbeIterator,
		doctor.ProbeKernelNames, doctor.ProbeOnCPU, doctor.ProbeBranch,
	} {
		if outcome, ok := tried[p]; !ok || outcome.Err != nil {
			t.Errorf("%s: %v", p, outcome.Err)
		}
	}
	// What a machine may lack, it lacks for a known reason.
	if err := tried[doctor.ProbeCycles].Err; err != nil && !errors.Is(err, doctor.ErrNoPMU) {
		t.Errorf("cycles: %v", err)
	}
	if err := tried[doctor.ProbeBranchRecords].Err; err != nil && !errors.Is(err, doctor.ErrNoBranchRecords) {
		t.Errorf("branch records: %v", err)
	}
	for _, p := range []doctor.Probe{doctor.ProbeFentry, doctor.ProbeKprobe} {
		t.Logf("%s: %v", p, tried[p].Err)
	}
}

// After a probe nothing stays attached, so that it can be repeated.
func TestTwice(t *testing.T) {
	testenv.Root(t)
	first, second := All(), All()
	for p := range first {
		if (first[p].Err == nil) != (second[p].Err == nil) {
			t.Errorf("%s: first %v, then %v", p, first[p].Err, second[p].Err)
		}
	}
}
