package branches

import (
	"errors"

	"golang.org/x/sys/unix"

	"fulgur/internal/branches/hardware"
	"fulgur/internal/branches/jumps"
	"fulgur/internal/capture/uprobe"
	"fulgur/internal/doctor"
)

// Trials returns the trials of the ways to record branches.
func Trials() doctor.Trials {
	return doctor.Trials{
		doctor.ProbePrograms(doctor.Bolt): doctor.Quietly(loadBranch),
		doctor.ProbeBranchRecords:         branchRecords,
		doctor.ProbeJumps:                 doctor.Quietly(jumpCounting(jumps.Uprobes, doctor.ErrNoJumps)),
		doctor.ProbeBreakpoints:           doctor.Quietly(jumpCounting(jumps.Breakpoints, doctor.ErrNoBreakpoints)),
	}
}

// loadBranch loads the programs that read branch records.
func loadBranch() error {
	s, err := hardware.Load(hardware.Options{})
	if err != nil {
		return err
	}
	return s.Close()
}

// jumpCounting returns a trial that fails with the error lacking if nothing can count jumps by p here.
func jumpCounting(p jumps.Probes, lacking error) func() error {
	return func() error {
		err := jumps.Check(p)
		switch {
		case errors.Is(err, uprobe.ErrLent):
			return unix.EPERM // the doctor knows the remedy
		case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
			return err
		case errors.Is(err, jumps.ErrUnsupported):
			return lacking
		}
		return err
	}
}

// branchRecords uses a rate that every kernel allows.
func branchRecords() (string, error) {
	event, err := hardware.Choose(1, false)
	switch {
	case errors.Is(err, ErrNoHardware):
		return "", doctor.ErrNoBranchRecords
	case err != nil:
		return "", err
	}
	return "with " + event.Specs[0].Name, nil
}
