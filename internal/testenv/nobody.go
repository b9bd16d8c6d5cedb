package testenv

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// nobodyVar names the test for which [AsNobody] started a process.
const nobodyVar = "FULGUR_NOBODY_TEST"

// AsNobody runs f in a separate process of user nobody, without privileges, in the folder "/". The test fails if f fails.
// In that process, the test runs again up to this call. If the user is not root, f runs in this process.
func AsNobody(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	if os.Getenv(nobodyVar) == t.Name() || os.Geteuid() != 0 {
		f(t)
		return
	}
	Slow(t)
	const nobody = 65534
	cmd := again(t, nobodyVar)
	cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("as nobody: %v\n%s", err, out[:min(len(out), shownOutput)])
	}
}

// paranoidPath is the sysctl that restricts perf events.
const paranoidPath = "/proc/sys/kernel/perf_event_paranoid"

// UserPerfEvents skips the test unless users may open perf events on their own code. The rig's VMs allow it during the
// test.
func UserPerfEvents(t *testing.T) {
	t.Helper()
	const allowed = 2 // also upstream's default; Debian's is 3
	text, err := os.ReadFile(paranoidPath)
	if err != nil {
		t.Fatal(err)
	}
	level, err := strconv.Atoi(strings.TrimSpace(string(text)))
	switch {
	case err != nil:
		t.Fatal(err)
	case level <= allowed:
	case InVM() && os.Geteuid() == 0:
		if err := os.WriteFile(paranoidPath, []byte(strconv.Itoa(allowed)), 0); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := os.WriteFile(paranoidPath, text, 0); err != nil {
				t.Error(err)
			}
		})
	default:
		Skip(t, "needs sysctl kernel.perf_event_paranoid=%d, which is %d", allowed, level)
	}
}
