package waiting

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"fulgur/internal/testenv"
)

// disk returns the name of a disk for the workloads: that of temporary files, or
// where they are on none, as in the rig, a loop device.
func disk(t *testing.T) string {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(os.TempDir(), &st); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(fmt.Sprintf("/sys/dev/block/%d:%d/uevent", unix.Major(st.Dev), unix.Minor(st.Dev)))
	if err != nil {
		testenv.VM(t)
		return loopDevice(t)
	}
	for line := range strings.Lines(string(b)) {
		if name, ok := strings.CutPrefix(line, "DEVNAME="); ok {
			return strings.TrimSpace(name)
		}
	}
	t.Fatalf("no name in %q", b)
	return ""
}

// loopDevice makes a disk of a file, for the workloads to use, with the module
// that the rig brings along.
func loopDevice(t *testing.T) string {
	t.Helper()
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		t.Fatal(err)
	}
	module, err := os.Open("/lib/modules/" + unix.ByteSliceToString(uts.Release[:]) + "/loop.ko")
	if err != nil {
		t.Fatal(err)
	}
	defer module.Close()
	if err := unix.FinitModule(int(module.Fd()), "", 0); err != nil && !errors.Is(err, unix.EEXIST) {
		t.Fatalf("load the module for loop devices: %v", err)
	}
	file, err := os.Create(filepath.Join(t.TempDir(), "disk"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := file.Truncate(16 << 20); err != nil {
		t.Fatal(err)
	}
	const name = "loop0"
	device, err := os.OpenFile("/dev/"+name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = unix.IoctlSetInt(int(device.Fd()), unix.LOOP_CLR_FD, 0)
		_ = device.Close()
	})
	if err := unix.IoctlSetInt(int(device.Fd()), unix.LOOP_SET_FD, int(file.Fd())); err != nil {
		t.Fatal(err)
	}
	t.Setenv("WAITING_DEVICE", "/dev/"+name)
	return name
}

// Each read or write past the cache is a request of its size, which takes no
// longer than the program waits for it.
func TestDirect(t *testing.T) {
	name := disk(t)
	for _, mode := range []string{"read", "write"} {
		t.Run(mode, func(t *testing.T) {
			m := measure(t, mode, "blockio", "--weight", "bytes", "-Q")
			of := fmt.Sprintf("[%s %s sync]", name, mode)
			for _, test := range []struct {
				value string
				want  int64
			}{
				{"bytes", m.truth.Bytes},
				{"bytes", m.truth.Counted},
				{"requests", m.truth.Times},
			} {
				if got := m.sum(t, test.value, "direct", of); got != test.want {
					t.Errorf("%d %s, want %d\n%s", got, test.value, test.want, m.stderr)
				}
			}
			if latency := m.sum(t, "latency", "direct", of); latency == 0 || latency > m.truth.Waited {
				t.Errorf("%d ns in requests, %d ns in the calls that made them", latency, m.truth.Waited)
			}
			if n := m.sum(t, "requests", "direct", "fulgur/test/waiting.direct.func1"); n != m.truth.Times {
				t.Errorf("%d requests come from the function that makes them, want %d", n, m.truth.Times)
			}
			if want := name + " " + mode + ", time in the queue and the device"; !strings.Contains(m.stderr, want) {
				t.Errorf("no histogram %q:\n%s", want, m.stderr)
			}
		})
	}
}
