package waiting

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// disk skips the test where temporary files are on none, as in the rig, and
// returns the name of the one that they are on.
func disk(t *testing.T) string {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(os.TempDir(), &st); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(fmt.Sprintf("/sys/dev/block/%d:%d/uevent", unix.Major(st.Dev), unix.Minor(st.Dev)))
	if err != nil {
		t.Skip("needs temporary files on a disk")
	}
	for line := range strings.Lines(string(b)) {
		if name, ok := strings.CutPrefix(line, "DEVNAME="); ok {
			return strings.TrimSpace(name)
		}
	}
	t.Fatalf("no name in %q", b)
	return ""
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
