package memlock

import (
	"os/exec"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"fulgur/internal/testenv"
)

// TestLift creates a map that is larger than the limit. The limit is changed only on
// kernels where maps count against it.
func TestLift(t *testing.T) {
	testenv.Root(t)
	var original unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &original); err != nil {
		t.Fatal(err)
	}
	low := unix.Rlimit{Cur: 64 << 10, Max: original.Max}
	if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &low); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &original); err != nil {
			t.Error(err)
		}
	})
	big := &ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4096, MaxEntries: 256}
	m, err := ebpf.NewMap(big)
	counts := err != nil
	if !counts {
		_ = m.Close() // is empty
	}

	Lift()
	var lifted unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &lifted); err != nil {
		t.Fatal(err)
	}
	if (lifted.Cur == unix.RLIM_INFINITY) != counts {
		t.Errorf("got limit %+[2]v, maps count against it: %[1]t", counts, lifted)
	}
	if m, err = ebpf.NewMap(big); err != nil {
		t.Fatal(err)
	}
	_ = m.Close()

	// A process that starts now inherits the limit, and gets back the old one.
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // an error, because it was killed
	}()
	if err := Restore(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	var restored unix.Rlimit
	if err := unix.Prlimit(cmd.Process.Pid, unix.RLIMIT_MEMLOCK, nil, &restored); err != nil {
		t.Fatal(err)
	}
	if restored != low {
		t.Errorf("got limit %+v for a command, want %+v", restored, low)
	}
}
