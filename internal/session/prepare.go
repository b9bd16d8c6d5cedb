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

// complete checks what was asked for and fills in defaults. The exit code is
// that of an error.
func complete(what source.Subject, o *Options) (exitCode int, err error) {
	debug.SetGCPercent(loop.GCPercent)
	if err := errors.Join(what.Complete(source.Common{Target: &o.Target, UserOnly: o.UserOnly}), o.complete()); err != nil {
		return 2, err
	}
	return 0, nil
}

// prepare finds out whether the machine can do what was asked for. The exit code
// is that of an error.
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

// exitCodeOf returns that of a run which ended with err: the command's, which is
// waited for, where one was launched.
func exitCodeOf(ctx context.Context, launched *target.Launched, err error, o *Options) (int, error) {
	switch {
	case launched != nil:
		return loop.Await(ctx, launched, err, o.Stderr, o.Quiet)
	case err != nil:
		return 1, err
	}
	return 0, nil
}
