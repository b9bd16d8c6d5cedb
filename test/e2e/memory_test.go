package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"fulgur/internal/doctor"
	"fulgur/internal/linux/procfs"
	"fulgur/internal/testenv"
)

// memoryCgroup makes a cgroup with a limit in bytes, and returns its directory.
func memoryCgroup(t *testing.T, bytes uint64) string {
	t.Helper()
	mounts, err := procfs.Mounts()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mounts {
		file := "memory.max"
		switch controllers, _ := os.ReadFile(m.Mountpoint + "/cgroup.controllers"); {
		case m.FSType == "cgroup" && slices.Contains(strings.Split(m.VFSOptions, ","), "memory"):
			file = "memory.limit_in_bytes"
		case m.FSType == "cgroup2" && slices.Contains(strings.Fields(string(controllers)), "memory"):
			if err := os.WriteFile(m.Mountpoint+"/cgroup.subtree_control", []byte("+memory"), 0o600); err != nil {
				testenv.Unsupported(t, "no cgroup with a memory limit can be made: %v", err)
			}
		default:
			continue
		}
		dir, err := os.MkdirTemp(m.Mountpoint, "fulgur-test-") //nolint:usetesting // a cgroup
		if err != nil {
			testenv.Unsupported(t, "no cgroup can be made: %v", err)
		}
		t.Cleanup(func() {
			if err := os.Remove(dir); err != nil {
				t.Error(err)
			}
		})
		if err := os.WriteFile(filepath.Join(dir, file), []byte(strconv.FormatUint(bytes, 10)), 0o600); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	testenv.Unsupported(t, "no cgroups with the memory controller")
	return ""
}

// addressSpace is the limit in KiB under which fulgur runs; see start.go in cmd/fulgur.
const addressSpace = 1 << 20

// limited runs fulgur in a cgroup, and with a limit on address space in KiB.
func limited(t *testing.T, cgroup string, args ...string) result {
	t.Helper()
	own := command(t, args...)
	script := fmt.Sprintf(`echo $$ >%s/cgroup.procs && ulimit -v %d && exec "$0" "$@"`, cgroup, addressSpace)
	cmd := testenv.Command(t, testenv.Tool(t, "sh"), slices.Concat([]string{"-c", script, own.Path}, own.Args[1:])...)
	cmd.Stdout, cmd.Stderr = own.Stdout, own.Stderr
	return finish(t, cmd)
}

// withoutNeed has the commands whose need of memory is known and not tested, and the reason.
var withoutNeed = map[doctor.Command]string{
	doctor.SoftIRQ:      "it depends on the programs of the whole machine",
	doctor.BoltCounting: "it depends on the binary",
	doctor.BoltStepping: "it depends on the binary",
}

// TestMemoryNeeds runs the commands with the memory that fulgur says they need.
func TestMemoryNeeds(t *testing.T) {
	testenv.Root(t)
	target := exec.Command(testenv.Tool(t, "sleep"), "1000")
	if err := target.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = target.Process.Kill()
		_ = target.Wait()
	})
	pid := strconv.Itoa(target.Process.Pid)
	arguments := map[doctor.Command][]string{
		doctor.Profile: {"-e", "cpu-clock"}, doctor.OffCPU: nil, doctor.BlockIO: nil, doctor.Faults: nil, doctor.RunQ: nil,
		doctor.Count: {"-e", "syscalls:sys_enter_read"}, doctor.Latency: {"-e", "syscalls:sys_enter_read"}, doctor.Slow: {"-e", "syscalls:sys_enter_read", "--over", "1ms"}, doctor.Locks: nil, doctor.Alloc: nil,
		doctor.Record: {"--save-only"},
	}
	for _, name := range doctor.Commands {
		args, ok := arguments[name]
		if !ok {
			if doctor.MemoryNeed(name) > 0 && withoutNeed[name] == "" {
				t.Errorf("%s has a need of memory, but neither arguments here nor a reason for none", name)
			}
			continue
		}
		t.Run(string(name), func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "out.folded")
			if name == doctor.Record {
				out = filepath.Join(t.TempDir(), "out.json.gz")
			}
			all := append([]string{string(name), "-o", out, "-p", pid}, args...)
			// The needs are those of a machine with 2 CPUs.
			need := doctor.MemoryNeed(name) + uint64(max(runtime.NumCPU()-2, 0))<<20
			if r := limited(t, memoryCgroup(t, need), append(all, "0.1")...); r.code != 0 {
				t.Errorf("got exit code %d with %d bytes of memory, want 0: %s", r.code, need, r.stderr)
			}
		})
	}
	// The kernel must not kill it before it has said why it stops.
	for _, little := range []uint64{16 << 20, 24 << 20, doctor.MemoryNeed(doctor.Profile) - 1<<20} {
		want := fmt.Sprintf("fulgur profile needs %d MiB of memory, but ", doctor.MemoryNeed(doctor.Profile)>>20)
		if r := limited(t, memoryCgroup(t, little), "profile", "0.1"); r.code != 1 || !strings.Contains(r.stderr, want) {
			t.Errorf("got exit code %d with %d bytes of memory, want 1 and %q: %s", r.code, little, want, r.stderr)
		}
	}
}
