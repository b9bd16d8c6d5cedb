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

	"golang.org/x/sys/unix"

	"fulgur/internal/linux/perfevent"
	"fulgur/internal/linux/procfs"
)

// Facts are what is known of a machine and of this process on it.
type Facts struct {
	Rights
	// Release and Machine are those of uname(2): "6.1.0-44-amd64", "x86_64".
	Release, Machine string
	// CPUs is how many are online, PageSize that of memory, in bytes.
	CPUs, PageSize int
	// Executable is the path of fulgur. NoSetuid is set where it gains no
	// capabilities from its file, as it is mounted nosuid.
	Executable string
	NoSetuid   bool
	// Memlock is the soft limit RLIMIT_MEMLOCK in bytes, MemlockMax the hard one.
	Memlock, MemlockMax uint64

	// BTF is set if the kernel describes its types in /sys/kernel/btf.
	BTF bool
	// Lockdown is the mode of kernel_lockdown(7).
	Lockdown Lockdown
	// LSMs are the security modules in force, as the kernel lists them, empty
	// if it does not say. Label is what they know this process by.
	LSMs, Label string
	// Sysctls are the values of those of sysctls that this kernel has and
	// lets us read, by name: "kernel.kptr_restrict".
	Sysctls map[string]int

	// Cgroup2 and TraceFS are where these file systems are mounted, empty if
	// nowhere. HidePID is set if /proc hides the processes of others.
	Cgroup2, TraceFS string
	HidePID          bool
	// Container is the sort of container that the process runs in, "docker",
	// empty if in none that is known.
	Container string

	// Tried has the outcomes of what package probe tried out. What is absent
	// was not tried.
	Tried map[Probe]Outcome
}

// Outcome is what came of trying something out.
type Outcome struct {
	// Err is why it failed, nil if it did not.
	Err error
	// Found says what was found: "cycles".
	Found string
}

// Probe names something to try out.
type Probe string

// What package probe tries out.
const (
	// ProbePerfEvent loads a program of type perf_event and attaches it to
	// cpu-clock.
	ProbePerfEvent Probe = "perf_event program"
	// ProbeRing creates a ring buffer.
	ProbeRing Probe = "ring buffer"
	// ProbeTracing loads and attaches a program tp_btf, ProbeRawTracepoint
	// one of type raw_tp.
	ProbeTracing       Probe = "tp_btf program"
	ProbeRawTracepoint Probe = "raw_tp program"
	// ProbeIterator runs an iterator of tasks.
	ProbeIterator Probe = "task iterator"
	// ProbeFentry and ProbeKprobe load programs of these types and attach
	// them to a function of the kernel.
	ProbeFentry Probe = "fentry program"
	ProbeKprobe Probe = "kprobe program"
	// ProbeKernelNames loads the program that names kernel functions.
	ProbeKernelNames Probe = "kernel names"
	// ProbeSleepers looks for what reads the stacks of threads that do not run.
	ProbeSleepers Probe = "stacks of sleeping threads"
	// ProbeOnCPU and those after it load what the commands do.
	ProbeOnCPU   Probe = "fulgur profile's programs"
	ProbeOffCPU  Probe = "fulgur offcpu's programs"
	ProbeBlockIO Probe = "fulgur blockio's programs"
	ProbeFaults  Probe = "fulgur faults' programs"
	ProbeSoftIRQ Probe = "fulgur softirq's programs"
	ProbeBranch  Probe = "fulgur bolt's programs"
	// ProbeCycles finds what fulgur profile samples unless told otherwise,
	// ProbeBranchRecords what fulgur bolt does.
	ProbeCycles        Probe = "cycle counter"
	ProbeBranchRecords Probe = "branch records"
)

// sysctl returns the value of a sysctl, or otherwise if it is not known.
func (f *Facts) sysctl(name string, otherwise int) int {
	if v, ok := f.Sysctls[name]; ok {
		return v
	}
	return otherwise
}

// sysctls are what the checks look at.
var sysctls = []string{
	sysctlParanoid, sysctlKptr, sysctlMlock, sysctlStack, sysctlRate, sysctlPtrace, sysctlJIT, sysctlWatchdog,
}

// Read gathers what files tell, and tries nothing.
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
	// What cannot be read is not known: a refusal will show.
	f.Lockdown = parseLockdown(readText("/sys/kernel/security/lockdown"))
	f.LSMs = readText("/sys/kernel/security/lsm")
	f.Label = readText("/proc/self/attr/current")
	if err := f.readSysctls("/proc/sys"); err != nil {
		return Facts{}, err
	}
	mounts, _ := procfs.Mounts()
	f.readMounts(mounts)
	return f, nil
}

// readText returns what is in a file, without space and the NUL that ends some,
// or nothing.
func readText(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return string(bytes.Trim(b, "\x00 \n"))
}

// readSysctls reads the sysctls below dir. Some are for root alone.
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

// readMounts takes note of file systems. Of two of a type the first counts.
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

// container names the container that this is by the marks that its manager
// leaves, the word container if only a hint.
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

// Lockdown is a mode of kernel_lockdown(7): each forbids more than the one
// before.
type Lockdown uint8

// The modes of lockdown. Integrity leaves a profiler all it needs;
// confidentiality keeps it from reading the kernel's memory. Unknown is that of
// kernels without lockdown, too.
const (
	LockdownUnknown Lockdown = iota
	LockdownNone
	LockdownIntegrity
	LockdownConfidentiality
)

// String returns the kernel's name of the mode.
func (l Lockdown) String() string {
	return [...]string{"not known", "none", "integrity", "confidentiality"}[l]
}

// parseLockdown reads /sys/kernel/security/lockdown, which lists the modes and
// puts the one in force in brackets: "none [integrity] confidentiality".
func parseLockdown(s string) Lockdown {
	for _, mode := range []Lockdown{LockdownNone, LockdownIntegrity, LockdownConfidentiality} {
		if strings.Contains(s, "["+mode.String()+"]") {
			return mode
		}
	}
	return LockdownUnknown
}
