package doctor

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"fulgur/internal/linux/memlock"
	"fulgur/internal/linux/perfevent"
	"fulgur/internal/linux/procfs"
)

// Facts describe a machine, and this process on it.
type Facts struct {
	Rights
	// Release and Machine are from uname(2), such as "6.1.0-44-amd64" and
	// "x86_64".
	Release, Machine string
	// CPUs is the number of online CPUs. PageSize is in bytes.
	CPUs, PageSize int
	// Executable is the path of fulgur's file. NoSetuid is set if the file
	// grants no capabilities because its file system is mounted nosuid.
	Executable string
	NoSetuid   bool
	// Memlock is the soft limit of RLIMIT_MEMLOCK in bytes, MemlockMax the hard
	// limit.
	Memlock, MemlockMax uint64
	// Memory is the lowest limit on the memory of this process's cgroups.
	Memory procfs.MemoryLimit

	// BTF is set if /sys/kernel/btf/vmlinux exists.
	BTF bool
	// Lockdown is the mode of kernel_lockdown(7).
	Lockdown Lockdown
	// LSMs are the active security modules, as listed by the kernel, empty if
	// unknown. Label is their label of this process.
	LSMs, Label string
	// Sysctls holds the values of the sysctls that exist and that this process
	// can read. Keys are names such as "kernel.kptr_restrict".
	Sysctls map[string]int

	// Cgroup2 and TraceFS are the mount points of these file systems, empty if
	// they are not mounted. HidePID is set if /proc hides other users'
	// processes.
	Cgroup2, TraceFS string
	HidePID          bool
	// Container is the kind of container that the process runs in, such as
	// "docker", empty if none was detected.
	Container string

	// Tried holds the outcomes of the [Trials].
	Tried map[Probe]Outcome
}

// Outcome is the outcome of a probe.
type Outcome struct {
	// Err is nil on success.
	Err error
	// Found describes what the probe found, such as "cycles".
	Found string
}

// Probe names a trial.
type Probe string

// Trials find out what works on the machine by trying it. Each undoes everything that it does.
type Trials map[Probe]func() (found string, err error)

// Run runs all trials in parallel, because they mostly wait for the kernel to unload
// programs. It takes a few tenths of a second.
func (trials Trials) Run() map[Probe]Outcome {
	memlock.Lift()
	outcomes := map[Probe]Outcome{}
	var mutex sync.Mutex
	var running sync.WaitGroup
	for p, try := range trials {
		running.Go(func() {
			found, err := try()
			mutex.Lock()
			defer mutex.Unlock()
			outcomes[p] = Outcome{Found: found, Err: err}
		})
	}
	running.Wait()
	return outcomes
}

// Quietly returns a trial that only finds out whether something works.
func Quietly(try func() error) func() (string, error) {
	return func() (string, error) { return "", try() }
}

// The probes of [Trials].
const (
	// ProbePerfEvent loads a program of type perf_event and attaches it to
	// cpu-clock.
	ProbePerfEvent Probe = "perf_event program"
	// ProbeUserEvents opens an event of user code, on this thread.
	ProbeUserEvents Probe = "perf events of user code"
	// ProbeStops makes the system call that stops own threads, for none.
	ProbeStops Probe = "ptrace of own threads"
	// ProbeRing creates a ring buffer.
	ProbeRing Probe = "ring buffer"
	// ProbeTracing and ProbeRawTracepoint load and attach a program of type
	// tp_btf and raw_tp.
	ProbeTracing       Probe = "tp_btf program"
	ProbeRawTracepoint Probe = "raw_tp program"
	// ProbeIterator runs an iterator of tasks.
	ProbeIterator Probe = "task iterator"
	// ProbeFentry and ProbeKprobe load programs of these types and attach
	// them to a function of the kernel.
	ProbeFentry Probe = "fentry program"
	ProbeKprobe Probe = "kprobe program"
	// ProbeUprobe attaches a program to an instruction of fulgur itself.
	ProbeUprobe Probe = "uprobe program"
	// ProbeTracepoint reads the format of a tracepoint, and attaches a program to it.
	ProbeTracepoint Probe = "tracepoint program"
	// ProbeContention checks whether the kernel reports waits for its locks.
	ProbeContention Probe = "lock contention"
	// ProbeKernelNames loads the program that names kernel functions.
	ProbeKernelNames Probe = "kernel names"
	// ProbeSleepers checks whether a program can read the stacks of threads that
	// do not run.
	ProbeSleepers Probe = "stacks of sleeping threads"
	// ProbeJumps loads the program of fulgur bolt that counts jumps.
	ProbeJumps Probe = "jump counting"
	// ProbeBreakpoints executes an instruction that has a hardware breakpoint.
	ProbeBreakpoints Probe = "hardware breakpoints"
	// ProbeCycles finds the default event of fulgur profile, ProbeBranchRecords
	// the default event of fulgur bolt.
	ProbeCycles        Probe = "cycle counter"
	ProbeBranchRecords Probe = "branch records"
)

// ProbePrograms returns the probe that loads the programs of a command.
func ProbePrograms(c Command) Probe {
	possessive := "'s"
	if strings.HasSuffix(string(c), "s") {
		possessive = "'"
	}
	return Probe("fulgur " + string(c) + possessive + " programs")
}

// sysctl returns the value of a sysctl, or otherwise if it is unknown.
func (f *Facts) sysctl(name string, otherwise int) int {
	if v, ok := f.Sysctls[name]; ok {
		return v
	}
	return otherwise
}

// sysctls lists the sysctls that checks read.
var sysctls = []string{
	sysctlParanoid, sysctlKptr, sysctlMlock, sysctlStack, sysctlRate, sysctlPtrace, sysctlJIT, sysctlWatchdog,
}

// Read reads the facts from files. It tries nothing, so Tried is empty.
func Read() (Facts, error) {
	rights, err := readRights()
	if err != nil {
		return Facts{}, err
	}
	cpus, err := perfevent.OnlineCPUs()
	if err != nil {
		return Facts{}, err
	}
	f := Facts{Rights: rights, CPUs: len(cpus), PageSize: os.Getpagesize(), Container: container(), Sysctls: map[string]int{}}
	var uname unix.Utsname
	if err := unix.Uname(&uname); err != nil {
		return Facts{}, os.NewSyscallError("uname", err)
	}
	f.Release = unix.ByteSliceToString(uname.Release[:])
	f.Machine = unix.ByteSliceToString(uname.Machine[:])
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit); err != nil {
		return Facts{}, os.NewSyscallError("getrlimit", err)
	}
	f.Memlock, f.MemlockMax = limit.Cur, limit.Max
	if f.Executable, err = os.Executable(); err != nil {
		f.Executable = "fulgur"
	}
	var fs unix.Statfs_t
	f.NoSetuid = unix.Statfs(f.Executable, &fs) == nil && fs.Flags&unix.ST_NOSUID != 0
	_, err = os.Stat("/sys/kernel/btf/vmlinux")
	f.BTF = err == nil
	// An unreadable file counts as unknown. If it matters, a trial fails.
	f.Lockdown = parseLockdown(readText("/sys/kernel/security/lockdown"))
	f.LSMs = readText("/sys/kernel/security/lsm")
	f.Label = readText("/proc/self/attr/current")
	if err := f.readSysctls("/proc/sys"); err != nil {
		return Facts{}, err
	}
	mounts, _ := procfs.Mounts()
	f.readMounts(mounts)
	// Without the list, no limit is known.
	memberships, _ := procfs.Self.Memberships()
	f.Memory = procfs.SmallestMemoryLimit(memberships, mounts)
	return f, nil
}

// readText returns the content of a file without surrounding space and NUL bytes, or
// "" if it cannot be read.
func readText(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return string(bytes.Trim(b, "\x00 \n"))
}

// readSysctls reads the sysctls below dir. Only root can read some of them.
func (f *Facts) readSysctls(dir string) error {
	for _, name := range sysctls {
		path := filepath.Join(dir, strings.ReplaceAll(name, ".", "/"))
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
			continue
		}
		if err != nil {
			return err
		}
		value, err := strconv.Atoi(string(bytes.TrimSpace(b)))
		if err != nil {
			return fmt.Errorf("read %s: %w", path, err)
		}
		f.Sysctls[name] = value
	}
	return nil
}

// readMounts finds the mounted file systems. The first mount of each type counts.
func (f *Facts) readMounts(mounts []*procfs.Mount) {
	for _, m := range mounts {
		switch {
		case m.FSType == "cgroup2" && f.Cgroup2 == "":
			f.Cgroup2 = m.Mountpoint
		case m.FSType == "tracefs" && f.TraceFS == "":
			f.TraceFS = m.Mountpoint
		case m.FSType == "proc" && m.Mountpoint == "/proc":
			f.HidePID = hidesPIDs(m.VFSOptions)
		}
	}
}

// hidesPIDs reports whether the mount options of /proc hide the processes of
// other users.
func hidesPIDs(options string) bool {
	for option := range strings.SplitSeq(options, ",") {
		if value, ok := strings.CutPrefix(option, "hidepid="); ok {
			return value != "0" && value != "off"
		}
	}
	return false
}

// container returns the kind of container that the process runs in, detected by
// files of container managers, or "".
func container() string {
	for _, mark := range []struct{ file, kind string }{
		{"/.dockerenv", "docker"},
		{"/run/.containerenv", "podman"},
		{"/var/run/secrets/kubernetes.io", "kubernetes"},
	} {
		if _, err := os.Stat(mark.file); err == nil {
			return mark.kind
		}
	}
	return readText("/run/systemd/container") // systemd-nspawn, lxc, …
}

// Lockdown is a mode of kernel_lockdown(7). Each mode forbids more than the one
// before.
type Lockdown uint8

// The modes of lockdown. A profiler works fully in integrity mode, but cannot read
// kernel memory in confidentiality mode. LockdownUnknown includes kernels without
// lockdown.
const (
	LockdownUnknown Lockdown = iota
	LockdownNone
	LockdownIntegrity
	LockdownConfidentiality
)

// String returns the kernel's name of the mode.
func (l Lockdown) String() string {
	return [...]string{"unknown", "none", "integrity", "confidentiality"}[l]
}

// parseLockdown parses /sys/kernel/security/lockdown, which lists the modes with the
// active one in brackets: "none [integrity] confidentiality".
func parseLockdown(s string) Lockdown {
	for _, mode := range []Lockdown{LockdownNone, LockdownIntegrity, LockdownConfidentiality} {
		if strings.Contains(s, "["+mode.String()+"]") {
			return mode
		}
	}
	return LockdownUnknown
}
