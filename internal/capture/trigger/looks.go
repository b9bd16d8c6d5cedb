package trigger

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"fulgur/internal/capture/target"
	"fulgur/internal/linux/procfs"
	"fulgur/internal/profile/encode/describe"
)

// look is the time between two looks at the machine.
const look = time.Second

// held returns a watch that fires when value has exceeded the limit in each look for the time of the
// trigger. It fires again only after the value was below the limit. value returns false if there is none.
func (t *Trigger) held(text func(int64) string, value func(since, cpu time.Duration) (int64, bool)) watch {
	var above time.Duration
	fired := false
	return watch{look: func(since, cpu time.Duration) (string, bool) {
		n, ok := value(since, cpu)
		if !ok || n <= t.limit {
			above, fired = 0, false
			return "", false
		}
		above += since
		// Looks are not exactly a second apart.
		if fired || above < t.hold-look/2 {
			return "", false
		}
		fired = true
		return text(n), true
	}}
}

func needsCPU(*Trigger) Needs { return Needs{CPU: true} }

// openCPU watches the CPU time of the samples of the target.
func openCPU(t *Trigger, _ Host) (watch, error) {
	return t.held(shareText, func(since, cpu time.Duration) (int64, bool) { return share(cpu, since), true }), nil
}

// bytesText describes a size.
func bytesText(n int64) string { return describe.Quantity(n, "bytes") }

// openMemory watches the resident memory of the target: of its processes, or of the machine.
func openMemory(t *Trigger, host Host) (watch, error) {
	if host.Target.Scope == target.System {
		if _, err := usedMemory(); err != nil {
			return watch{}, err
		}
		return t.held(bytesText, func(_, _ time.Duration) (int64, bool) {
			n, err := usedMemory()
			return n, err == nil
		}), nil
	}
	return t.held(bytesText, func(_, _ time.Duration) (sum int64, ok bool) {
		pids, err := host.pids()
		for _, pid := range pids {
			if n, err := procfs.Process(pid).ResidentMemory(); err == nil { // else it has ended
				sum += n
			}
		}
		return sum, err == nil
	}), nil
}

// usedMemory returns the memory of the machine that is not available, in bytes.
func usedMemory() (int64, error) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	total, available := keyed(string(text), "MemTotal:"), keyed(string(text), "MemAvailable:")
	if total <= 0 || available < 0 {
		return 0, errors.New("/proc/meminfo does not say how much memory is available")
	}
	return (total - available) << 10, nil
}

// keyed returns the number after a key at the beginning of a line, -1 if there is none.
func keyed(text, key string) int64 {
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) >= 2 && f[0] == key {
			if n, err := strconv.ParseInt(f[1], 10, 64); err == nil && n >= 0 {
				return n
			}
		}
	}
	return -1
}

// openPressure watches the pressure of the target's cgroup, or of the machine.
func openPressure(t *Trigger, host Host) (watch, error) {
	path := "/proc/pressure/" + t.of
	if host.Target.Scope == target.Cgroup {
		path = filepath.Join(host.Target.CgroupPath, t.of+".pressure")
	}
	last, err := stalled(path)
	if err != nil {
		return watch{}, fmt.Errorf("the kernel does not report pressure: %w (it needs CONFIG_PSI and, on some distributions, psi=1 on its command line)", err)
	}
	return t.held(shareText, func(since, _ time.Duration) (int64, bool) {
		now, err := stalled(path)
		if err != nil {
			return 0, false
		}
		n := share(now-last, since)
		last = now
		return n, true
	}), nil
}

// stalled returns for how long some tasks have been stalled, by a file of pressure stall information.
func stalled(path string) (time.Duration, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return parseStalled(string(text))
}

func parseStalled(text string) (time.Duration, error) {
	for line := range strings.Lines(text) {
		rest, some := strings.CutPrefix(line, "some ")
		_, total, has := strings.Cut(rest, "total=")
		if n, err := strconv.ParseInt(strings.TrimSpace(total), 10, 64); some && has && err == nil {
			return time.Duration(n) * time.Microsecond, nil
		}
	}
	return 0, errors.New("a file of pressure without a total")
}

// openThrottled watches how often the cgroup of the target was throttled.
func openThrottled(t *Trigger, host Host) (watch, error) {
	files, err := throttledFiles(host.Target)
	if err != nil {
		return watch{}, err
	}
	last := map[string]int64{}
	count := func() (sum int64) {
		for _, path := range files {
			text, err := os.ReadFile(path)
			if n := keyed(string(text), "nr_throttled"); err == nil && n >= 0 {
				sum += max(0, n-last[path])
				last[path] = n
			}
		}
		return sum
	}
	count()
	return watch{look: func(_, _ time.Duration) (string, bool) {
		n := count()
		return fmt.Sprintf("%d times in a second", n), n > 0
	}}, nil
}

// throttledFiles returns the cpu.stat files of the cgroups of a target, and of those above them, that have a
// count of throttled periods.
func throttledFiles(of target.Target) (files []string, err error) {
	none := errors.New("no cgroup of the target has a cpu.stat file with nr_throttled")
	var dirs [][2]string // of a cgroup, and of the top of its hierarchy
	if of.Scope == target.Cgroup {
		dirs = append(dirs, [2]string{of.CgroupPath, of.CgroupPath})
	}
	mounts, err := procfs.Mounts()
	if err != nil {
		return nil, err
	}
	for _, pid := range append(slices.Clone(of.PIDs), of.TIDs...) {
		memberships, err := procfs.Process(pid).Memberships()
		if err != nil {
			continue // it has ended
		}
		for _, m := range memberships {
			fsType := "cgroup2"
			if m.Hierarchy != 0 {
				fsType = "cgroup"
			}
			for _, mount := range mounts {
				if mount.FSType != fsType || m.Hierarchy != 0 && (!slices.Contains(strings.Split(mount.VFSOptions, ","), "cpu") || !slices.Contains(strings.Split(m.Controllers, ","), "cpu")) {
					continue
				}
				below, err := filepath.Rel(mount.Root, m.Path)
				if err != nil || strings.HasPrefix(below, "..") {
					below = "."
				}
				dirs = append(dirs, [2]string{filepath.Join(mount.Mountpoint, below), mount.Mountpoint})
				break // other mounts show the same
			}
		}
	}
	for _, d := range dirs {
		for dir := d[0]; ; dir = filepath.Dir(dir) {
			path := filepath.Join(dir, "cpu.stat")
			if text, err := os.ReadFile(path); err == nil && keyed(string(text), "nr_throttled") >= 0 && !slices.Contains(files, path) {
				files = append(files, path)
			}
			if dir == d[1] || len(dir) <= len(d[1]) {
				break
			}
		}
	}
	if len(files) == 0 {
		return nil, none
	}
	return files, nil
}

// commandTimeout is the time after which a program of a trigger is killed.
const commandTimeout = 10 * time.Second

// openCommand runs a program once a second, unless it is still running.
func openCommand(t *Trigger, _ Host) (watch, error) {
	argv := strings.Fields(t.of)
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return watch{}, err
	}
	fired := false // it fires again only after another code
	return watch{run: func() (string, bool) {
		ctx, cancel := context.WithTimeout(context.Background(), commandTimeout)
		defer cancel()
		cmd := exec.CommandContext(ctx, path, argv[1:]...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
		cmd.WaitDelay = time.Second
		again := fired
		fired = cmd.Run() == nil
		return "code 0", fired && !again
	}}, nil
}
