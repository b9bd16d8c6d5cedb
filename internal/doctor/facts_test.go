package doctor

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fulgur/internal/linux/procfs"
)

func TestParseLockdown(t *testing.T) {
	tests := map[string]Lockdown{
		"[none] integrity confidentiality": LockdownNone,
		"none [integrity] confidentiality": LockdownIntegrity,
		"none integrity [confidentiality]": LockdownConfidentiality,
		"":                                 LockdownUnknown,
	}
	for text, want := range tests {
		if got := parseLockdown(text); got != want {
			t.Errorf("%q: got mode %s, want %s", text, got, want)
		}
	}
}

func TestReadMounts(t *testing.T) {
	tests := map[string]struct {
		mountinfo string
		want      Facts
	}{
		"unified": {
			"22 27 0:21 / /proc rw,relatime - proc proc rw\n30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n31 23 0:12 / /sys/kernel/tracing rw - tracefs tracefs rw\n",
			Facts{Cgroup2: "/sys/fs/cgroup", TraceFS: "/sys/kernel/tracing"},
		},
		"hybrid, optional fields": {
			"30 23 0:26 / /sys/fs/cgroup ro shared:9 - tmpfs tmpfs ro\n31 30 0:27 / /sys/fs/cgroup/unified rw shared:10 master:1 - cgroup2 cgroup2 rw\n40 1 0:27 / /again rw - cgroup2 cgroup2 rw\n",
			Facts{Cgroup2: "/sys/fs/cgroup/unified"},
		},
		"hidepid":          {"22 27 0:21 / /proc rw - proc proc rw,hidepid=invisible\n", Facts{HidePID: true}},
		"hidepid=0":        {"22 27 0:21 / /proc rw - proc proc rw,hidepid=0\n", Facts{}},
		"another's /proc":  {"22 27 0:21 / /root/proc rw - proc proc rw,hidepid=2\n", Facts{}},
		"space in a path":  {`30 23 0:26 / /a\040b rw - cgroup2 none rw`, Facts{Cgroup2: "/a b"}},
		"nothing":          {"", Facts{}},
		"short":            {"30 23 0:26 /\n - cgroup2\n", Facts{}},
		"no dash":          {"30 23 0:26 / /x rw cgroup2 cgroup2 rw\n", Facts{}},
		"backslash itself": {`30 23 0:26 / /a\134040 rw - tracefs none rw`, Facts{TraceFS: `/a\040`}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var got Facts
			got.readMounts(procfs.ParseMounts([]byte(test.mountinfo)))
			if d := cmp.Diff(test.want, got); d != "" {
				t.Error("(-want +got):\n" + d)
			}
		})
	}
}

func TestReadSysctls(t *testing.T) {
	dir := t.TempDir()
	write := func(name, value string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(value), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("kernel/perf_event_paranoid", "-1\n")
	write("net/core/bpf_jit_enable", "1\n")
	f := Facts{Sysctls: map[string]int{}}
	if err := f.readSysctls(dir); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(map[string]int{sysctlParanoid: -1, sysctlJIT: 1}, f.Sysctls); d != "" {
		t.Error("(-want +got):\n" + d)
	}
	write("kernel/kptr_restrict", "often\n")
	if err := f.readSysctls(dir); err == nil {
		t.Error("got no error for a value that is not a number")
	}
}
