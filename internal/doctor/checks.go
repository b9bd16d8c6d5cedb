package doctor

import (
	"fmt"
	"strconv"
	"strings"

	"fulgur/internal/linux/capability"
)

// What fulgur asks of a kernel.
const (
	wantedStack   = 127      // frames: bpf/record.h has room for as many
	wantedRate    = 1000     // Hz: more is rarely asked for
	sidebandPages = 129      // locked for each CPU: a ring of internal/process/tracker.go and its header
	mapMemory     = 64 << 20 // bytes: BPF maps of a large measurement
)

// The groups of checks, which are the headings of a report.
const (
	groupProcess = "This process"
	groupKernel  = "Kernel"
	groupAround  = "Surroundings"
	groupTried   = "Trials"
)

// Sysctls that several checks look at.
const (
	sysctlParanoid = "kernel.perf_event_paranoid"
	sysctlKptr     = "kernel.kptr_restrict"
	sysctlMlock    = "kernel.perf_event_mlock_kb"
	sysctlStack    = "kernel.perf_event_max_stack"
	sysctlRate     = "kernel.perf_event_max_sample_rate"
	sysctlPtrace   = "kernel.yama.ptrace_scope"
	sysctlJIT      = "net.core.bpf_jit_enable"
	sysctlWatchdog = "kernel.nmi_watchdog"
)

// withStacks are the commands that show stacks.
var withStacks = []Command{Profile, OffCPU, BlockIO, Faults, SoftIRQ, RunQ, Record}

// allCapabilities are denied where none has an effect.
const allCapabilities = ^capability.Set(0)

// Lines to paste and losses that several checks share.
const (
	dockerRun      = "docker run --pid=host --privileged …"
	noKernelSource = "inlined functions, files and lines of the kernel are not shown, even where its debug information is installed"
)

// grounds are the checks of what need not be tried out. Those that explain
// refusals stand from the surest ground to the vaguest.
var grounds = []check{
	{
		id: "user_namespace", group: groupProcess, title: "user namespace",
		value: either(inUserNamespace, "one of its own", "the machine's"),
		faults: []fault{{
			when:   inUserNamespace,
			what:   always("this is a user namespace (a rootless container?), whose capabilities do not hold for the machine"),
			stops:  Commands,
			denies: allCapabilities,
			remedy: do("run fulgur outside of it"),
		}},
	},
	{
		id: "pid_namespace", group: groupProcess, title: "pid namespace",
		value: either(inPIDNamespace, "one of its own", "the machine's"),
		faults: []fault{{
			when:  inPIDNamespace,
			what:  always("this is a pid namespace (a container?), in which process IDs are not the machine's"),
			stops: Commands,
			remedy: always(Remedy{
				Do:    "run fulgur outside of it, or start the container with the machine's",
				Paste: dockerRun,
			}),
		}},
	},
	{
		id: CheckProc, group: groupProcess, title: "/proc",
		value: func(f *Facts) string {
			switch {
			case f.ForeignProc:
				return "not ours"
			case f.HidePID:
				return "hides processes of other users"
			}
			return "shows all processes"
		},
		faults: []fault{
			{
				when:   func(f *Facts) bool { return f.ForeignProc },
				what:   always("/proc is not mounted or shows another pid namespace, not the machine's processes"),
				stops:  Commands,
				remedy: paste("sudo mount -t proc none /proc"),
			},
			{
				when:   func(f *Facts) bool { return f.HidePID && !f.Can(capability.SysPtrace) },
				what:   always("/proc is mounted with hidepid"),
				plain:  true,
				costs:  Commands,
				lost:   "functions of other users' processes have no names",
				remedy: paste("sudo mount -o remount,hidepid=0 /proc"),
			},
		},
	},
	capabilityCheck(capability.BPF, fault{stops: Commands}),
	capabilityCheck(capability.Perfmon, fault{stops: Commands}),
	capabilityCheck(capability.SysPtrace, fault{
		costs: Commands,
		lost:  "functions of other users' and of more privileged processes may have no names: their mappings and the files of their containers stay hidden",
	}),
	capabilityCheck(capability.CheckpointRestore, fault{
		costs: Commands,
		lost:  "functions of files that were deleted or replaced while a process maps them, or that this user may not read, have no names",
	}),
	capabilityCheck(capability.DACReadSearch, fault{
		costs: Commands,
		lost:  "functions of files that this user may not read have no names",
	}),
	capabilityCheck(capability.Syslog, fault{
		// The kernel shows its addresses to those who may profile it, too.
		when:  func(f *Facts) bool { return f.sysctl(sysctlKptr, 0) != 0 || f.sysctl(sysctlParanoid, 2) > 1 },
		costs: withStacks,
		lost:  noKernelSource,
		minor: true,
	}),
	{
		id: "memlock", group: groupProcess, title: "locked memory",
		value: func(f *Facts) string {
			if f.Can(capability.IPCLock) {
				return "no limit"
			}
			return fmt.Sprintf("%d kB for each CPU, %s besides", f.sysctl(sysctlMlock, 0), limit(f.Memlock))
		},
		faults: []fault{{
			when:  lacksLockedMemory,
			what:  always("less memory may be locked than the rings of perf events take"),
			stops: Commands,
			remedy: func(f *Facts) Remedy {
				return Remedy{Paste: fmt.Sprintf("sudo sysctl %s=%d", sysctlMlock, sidebandPages*f.PageSize>>10)}
			},
		}, {
			when: func(f *Facts) bool {
				return f.isBefore(5, 11) && !f.Can(capability.SysResource) && f.MemlockMax < mapMemory
			},
			what: func(f *Facts) string {
				return fmt.Sprintf("before Linux 5.11, BPF maps count against the limit on locked memory, RLIMIT_MEMLOCK, which is %s here, and only CAP_SYS_RESOURCE can raise it", limit(f.MemlockMax))
			},
			stops: Commands,
			remedy: func(*Facts) Remedy {
				return Remedy{Do: "run fulgur with sudo, or raise the limit of this shell", Paste: "sudo prlimit --pid $$ --memlock=unlimited"}
			},
		}},
	},

	{
		id: "kernel", group: groupKernel, title: "release",
		value: func(f *Facts) string { return f.Release },
		faults: []fault{{
			when: isOld,
			what: func(f *Facts) string {
				return "the kernel is older than " + f.oldest() + ", the oldest that fulgur is tested with"
			},
			lost:   "the kernel may refuse programs; the trials below show which",
			remedy: do("upgrade the kernel"),
		}},
	},
	{
		id: "lockdown", group: groupKernel, title: "lockdown",
		value: func(f *Facts) string {
			if f.Lockdown == LockdownUnknown && f.LSMs == "" {
				return "not known, without /sys/kernel/security"
			}
			return f.Lockdown.String()
		},
		faults: []fault{{
			when:   func(f *Facts) bool { return f.Lockdown == LockdownConfidentiality },
			what:   always("the kernel is locked down in confidentiality mode, which keeps BPF programs from reading its memory"),
			stops:  Commands,
			denies: capability.SetOf(capability.BPF, capability.Perfmon),
			remedy: do("boot with lockdown=integrity, or turn Secure Boot's lockdown off"),
		}},
	},
	{
		id: "perf_event_paranoid", group: groupKernel, title: "perf_event_paranoid",
		value: sysctlValue(sysctlParanoid),
		faults: []fault{{
			when: func(f *Facts) bool { return f.sysctl(sysctlParanoid, 2) > 2 && !f.Effective.Has(capability.SysAdmin) },
			what: func(f *Facts) string {
				return fmt.Sprintf("sysctl %s is %d, and above 2 the kernels of Debian and Ubuntu demand CAP_SYS_ADMIN", sysctlParanoid, f.Sysctls[sysctlParanoid])
			},
			lost:   "the kernel may refuse perf events; the trials below show which",
			denies: capability.SetOf(capability.Perfmon),
			remedy: always(Remedy{Do: "run fulgur with sudo, or", Paste: "sudo sysctl " + sysctlParanoid + "=2"}),
		}},
	},
	{
		id: checkBTF, group: groupKernel, title: "type information",
		value: either(func(f *Facts) bool { return f.BTF }, "/sys/kernel/btf/vmlinux", "none"),
		faults: []fault{{
			when:   func(f *Facts) bool { return !f.BTF },
			what:   always("the kernel has no type information, /sys/kernel/btf/vmlinux"),
			stops:  Commands,
			remedy: do("use one built with CONFIG_DEBUG_INFO_BTF=y"),
		}},
	},
	{
		id: "bpf_jit", group: groupKernel, title: "BPF compiler",
		value: func(f *Facts) string {
			switch f.sysctl(sysctlJIT, -1) {
			case -1:
				return "not known"
			case 0:
				return "off"
			}
			return "on"
		},
		faults: []fault{{
			when:   func(f *Facts) bool { return f.sysctl(sysctlJIT, 1) == 0 },
			what:   always("BPF programs are interpreted, not compiled"),
			costs:  Commands,
			lost:   "a sample costs the target several times as much",
			remedy: paste("sudo sysctl " + sysctlJIT + "=1"),
		}},
	},
	{
		id: "kptr_restrict", group: groupKernel, title: "kptr_restrict",
		value: sysctlValue(sysctlKptr),
		faults: []fault{{
			when:   func(f *Facts) bool { return f.sysctl(sysctlKptr, 0) > 1 },
			what:   always("sysctl " + sysctlKptr + " hides the kernel's addresses from everyone"),
			costs:  withStacks,
			lost:   noKernelSource,
			minor:  true,
			remedy: paste("sudo sysctl " + sysctlKptr + "=1"),
		}},
	},
	{
		id: "perf_event_max_stack", group: groupKernel, title: "perf_event_max_stack",
		value: sysctlValue(sysctlStack),
		faults: []fault{{
			when: func(f *Facts) bool { return f.sysctl(sysctlStack, wantedStack) < wantedStack },
			what: func(f *Facts) string {
				return fmt.Sprintf("sysctl %s is %d", sysctlStack, f.Sysctls[sysctlStack])
			},
			costs:  withStacks,
			plain:  true,
			lost:   "deeper stacks are cut",
			minor:  true, // what was cut is counted
			remedy: paste(fmt.Sprintf("sudo sysctl %s=%d", sysctlStack, wantedStack)),
		}},
	},
	{
		id: "perf_event_max_sample_rate", group: groupKernel, title: "highest sample rate",
		value: sysctlValue(sysctlRate),
		faults: []fault{{
			when: func(f *Facts) bool { return f.sysctl(sysctlRate, wantedRate) < wantedRate },
			what: func(f *Facts) string {
				return fmt.Sprintf("sysctl %s is %d: the kernel lowers it when sampling takes too long", sysctlRate, f.Sysctls[sysctlRate])
			},
			costs:  []Command{Profile, Record, Bolt},
			lost:   "higher rates are refused",
			minor:  true,
			remedy: paste("sudo sysctl " + sysctlRate + "=100000"),
		}},
	},
	{
		id: "nmi_watchdog", group: groupKernel, title: "NMI watchdog",
		value: func(f *Facts) string {
			return map[int]string{-1: "none", 0: "off", 1: "on"}[f.sysctl(sysctlWatchdog, -1)]
		},
		faults: []fault{{
			when: func(f *Facts) bool {
				return f.sysctl(sysctlWatchdog, 0) != 0 && f.Tried[ProbeCycles].Found == FoundCycles
			},
			what:   always("the NMI watchdog holds a hardware counter of each CPU"),
			lost:   "one event fewer can be counted at a time",
			remedy: paste("sudo sysctl " + sysctlWatchdog + "=0"),
		}},
	},
	{
		id: "ptrace_scope", group: groupKernel, title: "ptrace_scope",
		value: sysctlValue(sysctlPtrace),
		faults: []fault{
			{
				when:   func(f *Facts) bool { return f.sysctl(sysctlPtrace, 0) == 3 },
				what:   always("sysctl " + sysctlPtrace + " is 3: nobody may trace until the next boot"),
				stops:  []Command{BoltStepping},
				denies: capability.SetOf(capability.SysPtrace),
				remedy: do("set it lower in /etc/sysctl.d and boot anew"),
			},
			{
				// What fulgur's file lends does not count, see package stepping.
				when: func(f *Facts) bool {
					return f.sysctl(sysctlPtrace, 0) > 0 && (!f.Can(capability.SysPtrace) || f.Lent.Has(capability.SysPtrace))
				},
				what: func(f *Facts) string {
					return fmt.Sprintf("sysctl %s is %d, and this user has no CAP_SYS_PTRACE", sysctlPtrace, f.Sysctls[sysctlPtrace])
				},
				stops:  []Command{BoltStepping},
				denies: capability.SetOf(capability.SysPtrace),
				remedy: do("run fulgur with sudo, or once: `sudo sysctl " + sysctlPtrace + "=0`"),
			},
		},
	},

	{
		id: "container", group: groupAround, title: "container",
		value: func(f *Facts) string {
			if f.Container == "" {
				return "none known"
			}
			return f.Container
		},
	},
	{
		id: "seccomp", group: groupAround, title: "seccomp",
		value: either(hasSeccomp, "a filter", "no filter"),
		faults: []fault{{
			when:   hasSeccomp,
			what:   always("a seccomp filter (a container's?) judges system calls"),
			lost:   "some may be refused; the trials below show which",
			denies: allCapabilities,
			remedy: do("let it allow bpf, perf_event_open and ptrace (docker run --security-opt seccomp=unconfined), or run fulgur outside"),
		}},
	},
	{
		id: "security_modules", group: groupAround, title: "security modules",
		value: func(f *Facts) string {
			if f.LSMs == "" {
				return "not known"
			}
			return f.LSMs
		},
		faults: []fault{{
			when: isConfined,
			what: func(f *Facts) string {
				return "a security module knows fulgur as " + f.Label + " and may confine it"
			},
			lost:   "some may be refused; the trials below show which",
			denies: allCapabilities,
			remedy: do("let its policy allow bpf, perf_event_open and ptrace, or run fulgur unconfined; dmesg and the audit log tell what was refused"),
		}},
	},
	{
		id: CheckCgroup, group: groupAround, title: "cgroup v2",
		value: mounted(func(f *Facts) string { return f.Cgroup2 }),
		faults: []fault{{
			when:   func(f *Facts) bool { return f.Cgroup2 == "" },
			what:   always("cgroup v2 is not mounted"),
			plain:  true,
			costs:  Commands,
			lost:   "--cgroup cannot be used",
			minor:  true,
			remedy: paste("sudo mkdir -p /mnt/cgroup2 && sudo mount -t cgroup2 none /mnt/cgroup2"),
		}},
	},
	{
		id: "tracefs", group: groupAround, title: "tracefs",
		value: mounted(func(f *Facts) string { return f.TraceFS }),
		faults: []fault{{
			when:   func(f *Facts) bool { return f.TraceFS == "" },
			what:   always("tracefs is not mounted"),
			plain:  true,
			lost:   "kprobes cannot be named; fulgur does without them",
			remedy: paste("sudo mount -t tracefs none /sys/kernel/tracing"),
		}},
	},
}

func inUserNamespace(f *Facts) bool { return f.UserNamespace }
func inPIDNamespace(f *Facts) bool  { return f.PIDNamespace }
func hasSeccomp(f *Facts) bool      { return f.Seccomp }

// oldestKernel returns the oldest release that fulgur is tested with on the
// machine's architecture.
func (f *Facts) oldestKernel() (major, minor int) {
	if f.Machine == "aarch64" {
		return 6, 1
	}
	return 5, 10
}

func (f *Facts) oldest() string {
	major, minor := f.oldestKernel()
	return fmt.Sprintf("Linux %d.%d", major, minor)
}

// isOld reports whether the kernel is older than that.
func isOld(f *Facts) bool { return f.isBefore(f.oldestKernel()) }

// isBefore reports whether the kernel is older than a release. One whose own
// release is not understood is not.
func (f *Facts) isBefore(major, minor int) bool {
	var is [2]int
	if _, err := fmt.Sscanf(f.Release, "%d.%d", &is[0], &is[1]); err != nil {
		return false
	}
	return is[0] < major || is[0] == major && is[1] < minor
}

// isConfined reports whether a security module has a profile for the process:
// AppArmor calls others "unconfined", SELinux "…:unconfined_t:…".
func isConfined(f *Facts) bool {
	return f.Label != "" && f.Label != "kernel" && !strings.Contains(f.Label, "unconfined")
}

// lacksLockedMemory reports whether the rings of the sideband are more than
// perf_mmap of the kernel's kernel/events/core.c lets this user lock.
func lacksLockedMemory(f *Facts) bool {
	perCPU, known := f.Sysctls[sysctlMlock]
	if !known || f.Can(capability.IPCLock) || f.sysctl(sysctlParanoid, 2) < 0 {
		return false
	}
	beyond := (sidebandPages*f.PageSize - perCPU<<10) * f.CPUs
	return beyond > 0 && uint64(beyond) > f.Memlock
}

// either returns the first value where the condition holds, else the second.
func either(holds func(*Facts) bool, yes, no string) func(*Facts) string {
	return func(f *Facts) string {
		if holds(f) {
			return yes
		}
		return no
	}
}

// sysctlValue returns the value of a sysctl.
func sysctlValue(name string) func(*Facts) string {
	return func(f *Facts) string {
		if v, ok := f.Sysctls[name]; ok {
			return strconv.Itoa(v)
		}
		return "not known"
	}
}

// mounted returns where a file system is mounted.
func mounted(at func(*Facts) string) func(*Facts) string {
	return func(f *Facts) string {
		if at(f) == "" {
			return "not mounted"
		}
		return at(f)
	}
}

// limit writes a limit in bytes.
func limit(bytes uint64) string {
	if bytes == ^uint64(0) {
		return "no limit"
	}
	return fmt.Sprintf("%d kB", bytes>>10)
}
