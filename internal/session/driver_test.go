package session

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"runtime"
	"slices"
	"testing"

	"fulgur/internal/capture/target"
	"fulgur/internal/testenv"
)

// fakeJob records the calls of its methods.
type fakeJob struct {
	calls             []string
	prepare, measured error
	close             error
	target            *target.Target
	pid               int // of the command, in Measure
}

func (j *fakeJob) Prepare(context.Context) error {
	j.calls = append(j.calls, "prepare")
	return j.prepare
}

func (j *fakeJob) Measure(_ context.Context, launched *target.Launched) error {
	j.calls = append(j.calls, "measured")
	if len(j.target.PIDs) > 0 {
		j.pid = j.target.PIDs[0]
	}
	if launched == nil || j.measured != nil {
		return j.measured
	}
	return launched.Release()
}

func (j *fakeJob) Close() error {
	j.calls = append(j.calls, "close")
	return j.close
}

// Measurements use a limited number of CPUs, unless the user chooses another.
func TestDriverProcessors(t *testing.T) {
	original := runtime.GOMAXPROCS(0)
	t.Cleanup(func() { runtime.GOMAXPROCS(original) })
	for _, test := range []struct {
		processors  int
		environment string
		want        int
	}{
		{2, "", 2},
		{maxProcessors, "", maxProcessors},
		{256, "", maxProcessors},
		{256, "256", 256},
	} {
		t.Setenv("GOMAXPROCS", test.environment)
		runtime.GOMAXPROCS(test.processors)
		if _, err := (Driver{Target: &target.Target{}}).Run(t.Context(), &fakeJob{target: &target.Target{}}); err != nil {
			t.Fatal(err)
		}
		if got := runtime.GOMAXPROCS(0); got != test.want {
			t.Errorf("%+v: got %d processors", test, got)
		}
	}
}

func TestDriver(t *testing.T) {
	testenv.Tool(t, "sh")
	failure, atClose := errors.New("broken"), errors.New("not closed")
	all, prepared := []string{"prepare", "measured", "close"}, []string{"prepare", "close"}
	for name, test := range map[string]struct {
		command []string
		job     fakeJob
		code    int
		err     error
		calls   []string
	}{
		"no command":                 {calls: all},
		"command":                    {command: []string{"sh", "-c", "exit 7"}, code: 7, calls: all},
		"Prepare fails":              {command: []string{"sh", "-c", "exit 7"}, job: fakeJob{prepare: failure}, code: 1, err: failure, calls: prepared},
		"Measure fails":              {job: fakeJob{measured: failure}, code: 1, err: failure, calls: all},
		"Measure fails on a command": {command: []string{"sh", "-c", "exit 7"}, job: fakeJob{measured: failure}, code: 1, err: failure, calls: all},
		"Close fails":                {job: fakeJob{close: atClose}, err: atClose, calls: all},
		"no such command":            {command: []string{"/no/such/command"}, code: 1, err: fs.ErrNotExist, calls: prepared},
	} {
		t.Run(name, func(t *testing.T) {
			var to target.Target
			j := test.job
			j.target = &to
			code, err := Driver{Command: test.command, Target: &to, Stderr: io.Discard}.Run(t.Context(), &j)
			if !errors.Is(err, test.err) {
				t.Errorf("got error %v, want %v", err, test.err)
			}
			if code != test.code || !slices.Equal(j.calls, test.calls) {
				t.Errorf("got exit code %d after %q, want %d after %q", code, j.calls, test.code, test.calls)
			}
			if launched := len(test.command) > 0 && len(j.calls) == len(all); launched != (j.pid != 0) {
				t.Errorf("got process %d as the target, want one: %v", j.pid, launched)
			}
		})
	}
}

// fakeSink records the calls of its methods.
type fakeSink struct {
	name  string
	calls *bytes.Buffer
	err   error
}

func (s fakeSink) Open(context.Context) error {
	s.calls.WriteString(s.name + " open\n")
	return s.err
}

func (s fakeSink) Write(context.Context, Window) error {
	s.calls.WriteString(s.name + " write\n")
	return s.err
}

func (s fakeSink) Close() error {
	s.calls.WriteString(s.name + " close\n")
	return s.err
}

func TestSinks(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		want string
	}{
		"all work":         {want: "a open\nb open\na write\nb write\na close\nb close\n"},
		"the first failed": {err: errors.New("broken"), want: "a open\na write\na close\nb close\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var calls bytes.Buffer
			s := Sinks{fakeSink{"a", &calls, test.err}, fakeSink{"b", &calls, nil}}
			for _, err := range []error{s.Open(t.Context()), s.Write(t.Context(), Window{}), s.Close()} {
				if !errors.Is(err, test.err) {
					t.Errorf("got error %v, want %v", err, test.err)
				}
			}
			if calls.String() != test.want {
				t.Errorf("got calls\n%swant\n%s", calls.String(), test.want)
			}
		})
	}
}
