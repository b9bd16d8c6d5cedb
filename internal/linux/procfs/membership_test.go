package procfs

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"fulgur/internal/testenv"
)

func TestParseMemberships(t *testing.T) {
	got, err := ParseMemberships([]byte("12:cpu,cpuacct:/a:b\n1:name=systemd:/system.slice/x.service\n0::/gone (deleted)\n"))
	want := []Membership{{12, "cpu,cpuacct", "/a:b"}, {1, "name=systemd", "/system.slice/x.service"}, {0, "", "/gone"}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	for _, bad := range []string{"0:/\n", "x::/\n", "\n"} {
		if got, err := ParseMemberships([]byte(bad)); err == nil {
			t.Errorf("%q: got %v, want an error", bad, got)
		}
	}
}

// FuzzParseMemberships checks that no line yields more than one membership.
func FuzzParseMemberships(f *testing.F) {
	f.Add([]byte("0::/\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		all, err := ParseMemberships(b)
		if lines := strings.Count(string(b), "\n") + 1; err == nil && len(all) > lines {
			t.Errorf("%d memberships in %d lines", len(all), lines)
		}
		for _, m := range all {
			if strings.Contains(m.Path, "\n") {
				t.Errorf("path %q contains a line break", m.Path)
			}
		}
	})
}

func TestMemberships(t *testing.T) {
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	all, err := Self.Memberships()
	if err != nil || len(all) != strings.Count(string(own), "\n") {
		t.Errorf("got %v, %v, want the lines of\n%s", all, err, own)
	}
}

func TestArguments(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = cmd.Process.Kill(), cmd.Wait() }()
	// The kernel says that the program was executed a moment before its arguments are there.
	testenv.Await(t, func() bool {
		got, err := Process(cmd.Process.Pid).Arguments(100)
		return err != nil || len(got) > 0 && got[0] == "sleep"
	}, func() string { return "no arguments" })
	for limit, want := range map[int64][]string{100: {"sleep", "1000"}, 8: {"sleep", "10"}} {
		if got, err := Process(cmd.Process.Pid).Arguments(limit); err != nil || !slices.Equal(got, want) {
			t.Errorf("limit %d: got %q, %v, want %q", limit, got, err, want)
		}
	}
}
