package session

import (
	"context"
	"errors"
	"runtime/debug"

	"fulgur/internal/capture/loop"
	"fulgur/internal/capture/source"
	"fulgur/internal/capture/target"
	"fulgur/internal/doctor"
	"fulgur/internal/message/usage"
	"fulgur/internal/symbols/debugfile"
)

// complete checks the options and fills in defaults. It returns the exit code
// for an error.
func complete(what source.Subject, o *Options) (exitCode int, err error) {
	debug.SetGCPercent(loop.GCPercent)
	if err := errors.Join(what.Complete(source.Common{Target: &o.Target, UserOnly: o.UserOnly}), o.complete()); err != nil {
		return 2, err
	}
	return 0, nil
}

// prepare checks whether the machine supports the measurement. It returns the
// exit code for an error.
func prepare(what source.Subject, o *Options) (_ *debugfile.Finder, exitCode int, err error) {
	finder, err := debugfile.New(debugfile.Config{Root: o.Symfs})
	if err != nil {
		return nil, 2, usage.Errorf("%v", err)
	}
	if err := doctor.CheckPrivileges(what.Command(), o.Stderr, o.Quiet); err != nil {
		return nil, 1, err
	}
	if err := what.Choose(); err != nil {
		return nil, 1, err
	}
	if err := CheckTarget(o.Target); err != nil {
		return nil, 1, err
	}
	return finder, 0, nil
}

// exitCodeOf returns the exit code of a run that ended with err. If a command
// was launched, it waits for it and returns the command's.
func exitCodeOf(ctx context.Context, launched *target.Launched, err error, o *Options) (int, error) {
	switch {
	case launched != nil:
		return loop.Await(ctx, launched, err, o.Stderr, o.Quiet)
	case err != nil:
		return 1, err
	}
	return 0, nil
}
