package branches

import (
	"errors"
	"testing"

	"fulgur/internal/doctor"
	"fulgur/internal/testenv"
	"fulgur/test/rig/pmu"
)

// The programs load for root on every supported kernel. A machine may lack ways to record branches, but
// only for a known reason.
func TestTrials(t *testing.T) {
	testenv.Root(t)
	tried := Trials().Run()
	if outcome, ok := tried[doctor.ProbePrograms(doctor.Bolt)]; !ok || outcome.Err != nil {
		t.Errorf("programs: %v", outcome.Err)
	}
	if err := tried[doctor.ProbeBranchRecords].Err; err != nil && !errors.Is(err, doctor.ErrNoBranchRecords) {
		t.Errorf("branch records: %v", err)
	}
	if err := tried[doctor.ProbeJumps].Err; err != nil && !errors.Is(err, doctor.ErrNoJumps) {
		t.Errorf("jumps: %v", err)
	}
	if err := tried[doctor.ProbeBreakpoints].Err; err != nil && !errors.Is(err, doctor.ErrNoBreakpoints) {
		t.Errorf("breakpoints: %v", err)
	}
}

// Trials distinguish PMUs with branch records from those without.
func TestTrialsPMU(t *testing.T) {
	pmu.Load(t, pmu.Options{})
	if o := Trials().Run()[doctor.ProbeBranchRecords]; o.Err != nil || o.Found == "" {
		t.Errorf("branch records: got %+v, want some", o)
	}
}

func TestTrialsPMUWithoutBranches(t *testing.T) {
	testenv.SlowInVM(t)
	pmu.Load(t, pmu.Options{None: true})
	if o := Trials().Run()[doctor.ProbeBranchRecords]; !errors.Is(o.Err, doctor.ErrNoBranchRecords) {
		t.Errorf("branch records: got %+v, want %v", o, doctor.ErrNoBranchRecords)
	}
}
