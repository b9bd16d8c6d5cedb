package oncpu

import (
	"fmt"
	"io"
	"os/exec"
	"testing"

	"fulgur/internal/bpf"
	"fulgur/internal/process"
	"fulgur/internal/testenv"
	"fulgur/internal/unwind/unwindmap"
)

// Code outside the mappings of a layout is requested once per layout, even at the same
// address: a library may be loaded there again and again.
func TestRequestPerLayout(t *testing.T) {
	testenv.Root(t)
	cat := exec.Command(testenv.Tool(t, "cat"))
	in, err := cat.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cat.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cat.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cat.Wait()
	})
	// turn makes cat return from its read and block in the next one.
	turn := func() {
		t.Helper()
		if _, err := in.Write([]byte{'.'}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(out, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	turn()
	pid := cat.Process.Pid
	s := sampleSwitches(t, pid, bpf.UnwindByBoth, true)
	for i := range uint64(4) {
		elsewhere := process.Mapping{Start: (i + 1) << 16, Limit: (i + 1) << 17, Kind: process.KindAnon}
		s.tables.Remap(pid, []process.Mapping{elsewhere})
		turn() // the next switch is the first with this layout
		s.asked(t)
		s.tables.Remap(pid, []process.Mapping{elsewhere, {Start: 1 << 30, Limit: 1 << 31, Kind: process.KindAnon}})
		var asked []unwindmap.Want
		testenv.Await(t, func() bool {
			turn()
			asked = s.asked(t)
			return len(asked) > 0
		}, func() string { return fmt.Sprintf("layout %d: got no request for code that it lacks", 2*i+1) })
		if asked[0].PID != pid {
			t.Errorf("got a request for process %d, want %d", asked[0].PID, pid)
		}
	}
}

// asked returns the requests since the previous call.
func (s *switches) asked(t *testing.T) (all []unwindmap.Want) {
	t.Helper()
	r := s.tables.Requests()
	if err := r.ReadTo(r.Position(), func(record []byte) error {
		want, err := unwindmap.ParseRequest(record)
		all = append(all, want)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return all
}
