package session

import (
	"io"
	"os"
	"testing"

	"fulgur/internal/bpf"
	"fulgur/internal/capture/oncpu"
	"fulgur/internal/capture/target"
	"fulgur/internal/linux/monotonic"
	"fulgur/internal/symbols/debugfile/debugfiletest"
	"fulgur/internal/testenv"
)

// A poll tells the kernel side that the requests from before it were read.
func TestPollAnswers(t *testing.T) {
	testenv.Root(t)
	testenv.AnyKernel(t)
	o := &ProfileOptions{
		Options: Options{
			Target: target.Target{Scope: target.Processes, PIDs: []int{os.Getpid()}}, Format: "folded", Stderr: io.Discard,
		},
		Config: oncpu.Config{Event: "cpu-clock"},
	}
	what := o.Subject()
	if err := what.Choose(); err != nil {
		t.Fatal(err)
	}
	r, err := newRun(what, &o.Options, debugfiletest.NewFinder(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := r.close(); err != nil {
			t.Error(err)
		}
	}()
	before := monotonic.Now()
	if _, err := r.Poll(); err != nil {
		t.Fatal(err)
	}
	asked := r.unwinder.Replacements()[bpf.UnwindMapUnwindAsked]
	var answered bpf.UnwindUnwindAsking
	if err := asked.Lookup(asked.MaxEntries()-1, &answered); err != nil {
		t.Fatal(err)
	}
	if now := monotonic.Now(); answered.Time < before || answered.Time > now {
		t.Errorf("got requests answered until %d, want from %d to %d", answered.Time, before, now)
	}
}
