package session

import (
	"errors"
	"fmt"

	"fulgur/internal/capture/target"
	"fulgur/internal/doctor"
)

// CheckTarget finds the cgroup of a target that is given by name, calls [target.Check] and
// completes its error with missing privileges, or with hints for finding a target.
func CheckTarget(t *target.Target) error {
	if err := t.Resolve(); err != nil {
		return err
	}
	err := target.Check(*t)
	isTask := errors.Is(err, target.ErrNoTask)
	if !isTask && !errors.Is(err, target.ErrNoCgroup) && !errors.Is(err, target.ErrNotCgroup) {
		return err
	}
	facts, readErr := doctor.Read()
	if readErr != nil {
		return err
	}
	check := doctor.CheckCgroup
	if isTask {
		check = doctor.CheckProc
	}
	if p := facts.Judge(check); p != nil {
		return fmt.Errorf("%w: %s", err, p)
	}
	if isTask {
		return err
	}
	return fmt.Errorf("%w: give a directory below %s", err, facts.Cgroup2)
}
