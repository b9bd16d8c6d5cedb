package capability

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"fulgur/internal/testenv"
)

// The two halves of capset(2) hold the low and the high 32 capabilities.
func TestHalves(t *testing.T) {
	s := sets{effective: 1<<63 | 1, permitted: 1<<63 | 3, inheritable: 1 << 32}
	h := s.halves()
	if h[0].Effective != 1 || h[1].Effective != 1<<31 || h[0].Permitted != 3 || h[1].Permitted != 1<<31 || h[0].Inheritable != 0 || h[1].Inheritable != 1 {
		t.Errorf("got %+v, want the capabilities 0, 1, 63 and 32 in their places", h)
	}
}

// Without withheld capabilities, With only calls the function and returns its results.
func TestWith(t *testing.T) {
	failure := errors.New("no")
	got, err := With(SetOf(SysPtrace), func() (int, error) { return 7, failure })
	if got != 7 || !errors.Is(err, failure) {
		t.Errorf("got %d, %v; want 7, %v", got, err, failure)
	}
}

// The user's own capabilities, root's and ambient ones, are not withheld.
func TestOwnCapabilities(t *testing.T) {
	const ask = "PRIVILEGE_OWN"
	if os.Getenv(ask) == "" {
		testenv.Root(t)
		for name, attr := range map[string]*syscall.SysProcAttr{
			"root": {},
			"ambient": {
				Credential:  &syscall.Credential{Uid: 65534, Gid: 65534},
				AmbientCaps: []uintptr{uintptr(DACReadSearch)},
			},
		} {
			t.Run(name, func(t *testing.T) {
				again := exec.Command("/proc/self/exe", "-test.run=^TestOwnCapabilities$")
				again.Env, again.Dir, again.SysProcAttr = append(os.Environ(), ask+"=1"), "/", attr
				if out, err := again.CombinedOutput(); err != nil {
					t.Errorf("%v: %s", err, out)
				}
			})
		}
		return
	}
	before, err := current()
	if err != nil || !before.effective.Has(DACReadSearch) {
		t.Fatalf("got %+v, %v; want DACReadSearch", before, err)
	}
	if err := errors.Join(Withhold(), Drop()); err != nil {
		t.Fatal(err)
	}
	if after, err := current(); err != nil || after != before || withheld != 0 || !Available(DACReadSearch) {
		t.Errorf("got %+v, want %+v, withheld %x: %v", after, before, withheld, err)
	}
}
