package session

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"fulgur/internal/testenv"
)

func TestCgroups(t *testing.T) {
	testenv.Root(t)
	m, err := readMounts()
	if err != nil {
		t.Fatal(err)
	}
	c := newCgroups(m)
	if c.mount == "" {
		t.Skip("needs cgroup v2 to be mounted")
	}
	dir := filepath.Join(c.mount, fmt.Sprintf("fulgur-test-%d", os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skipf("needs cgroup v2 to be writable: %v", err)
	}
	defer os.Remove(dir)
	for path, want := range map[string]string{
		c.mount: "/",
		dir:     "/" + filepath.Base(dir),
	} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.name(info.Sys().(*syscall.Stat_t).Ino); got != want {
			t.Errorf("%s is %q, want %q", path, got, want)
		}
	}
	if got := c.name(1 << 60); got != "" {
		t.Errorf("a group that there is not is %q", got)
	}
	if got := newCgroups(nil).name(1); got != "" {
		t.Errorf("a group without any hierarchy is %q", got)
	}
}
