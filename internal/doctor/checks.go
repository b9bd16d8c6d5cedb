package doctor

import (
	"fmt"
	"strconv"
	"strings"

	"fulgur/internal/bpf"
	"fulgur/internal/linux/capability"
)

// fulgur's requirements on the kernel.
const (
	wantedStack = bpf.MaxDepth // frames
	wantedRate  = 1000         // Hz; higher frequencies are rare
	lockedPages = 64 + 32 + 2  // per CPU: the rings of internal/process/tracker.go and their headers
	mapMemory   = 64 << 20     // bytes, for the BPF maps of a large measurement
)

// Groups of checks, used as headings in the report.
const (
	groupProcess = "This process"
	groupKernel  = "Kernel"
	groupAround  = "Environment"
	groupTried   = "Trials"
)

// Sysctls that several checks read.
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

// allCapabilities is for problems that can deny the effect of any capability.
const allCapabilities = ^capability.Set(0)

// Shell commands and losses that several checks share.
const (
	dockerRun      = "docker run --pid=host --privileged …"
	noKernelSource = "inlined functions, files and lines of the kernel are not shown, even if its debug symbols are installed"
)

// grounds are the checks that need no trial. Checks that explain refusals are ordered
// from the most certain cause to the least.
var grounds = []check{
	{
		id: "user_namespace", group: groupProcess, title: "user namespace",
		value: either(inUserNamespace, "not the host's", "the host's"),
		faults: []fault{{
			when:   inUserNamespace,
			what:   always("fulgur runs in a user namespace (a rootless container?), where capabilities do not apply to the host"),
			stops:  withBPF,
			denies: allCapabilities,
			remedy: do("run fulgur on the host"),
		}},
	},
	{
		id: "pid_namespace", group: groupProcess, title: "PID namespace",
		value: either(inPIDNamespace, "not the host's: only its processes are measured", "the host's"),
	},
	{
		id: CheckProc, group: groupProcess, title: "/proc",
		value: func(f *Facts) string {
			switch {
			case f.ForeignProc:
				return "not mounted, or of another PID namespace"
			case f.HidePID:
				return "hides other users' processes"
			}
			return "shows all processes"
		},
		faults: []fault{
			{
				when:   func(f *Facts) bool { return f.ForeignProc },
				what:   always("/proc is not mounted, or belongs to another PID namespace"),
				stops:  Commands,
				remedy: paste("sudo mount -t proc none /proc"),
			},
			{
				when:   func(f *Facts) bool { return f.HidePID && !f.Can(capability.SysPtrace) },
				what:   always("/proc is mounted with hidepid"),
				plain:  true,
				costs:  withBPF,
				lost:   "functions in other users' processes have no names",
				remedy: paste("sudo mount -o remount,hidepid=0 /proc"),
			},
		},
	},
	capabilityCheck(capability.BPF, fault{stops: withBPF}),
	capabilityCheck(capability.Perfmon, fault{stops: withBPF}),
	capabilityCheck(capability.SysPtrace, fault{
		costs: withBPF,
		lost:  "functions in other users' processes, and in more privileged processes, may have no names: fulgur cannot read their mappings, nor their files in containers",
	}),
	capabilityCheck(capability.CheckpointRestore, fault{
		costs: Commands,
		lost:  "functions in files that this user cannot read, or that were deleted or replaced while mapped, have no names",
	}),
	capabilityCheck(capability.DACReadSearch, fault{
		costs: Commands,
		lost:  "functions in files that this user cannot read have no names",
	}),
	capabilityCheck(capability.Syslog, fault{
		// Without CAP_SYSLOG, the kernel still shows its addresses to users who may
		// profile it.
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
			return fmt.Sprintf("%d kB per CPU, plus %s", f.sysctl(sysctlMlock, 0), limit(f.Memlock))
		},
		faults: []fault{{
			when:  lacksLockedMemory,
			what:  always("the ring buffers of perf events exceed the limit on locked memory"),
			stops: withBPF,
			remedy: func(f *Facts) Remedy {
				return Remedy{Paste: fmt.Sprintf("sudo sysctl %s=%d", sysctlMlock, lockedPages*f.PageSize>>10)}
			},
		}, {
			when: func(f *Facts) bool {
				return f.isBefore(5, 11) && !f.Can(capability.SysResource) && f.MemlockMax < mapMemory
			},
			what: func(f *Facts) string {
				return fmt.Sprintf("before Linux 5.11, BPF maps count against RLIMIT_MEMLOCK, which is %s here and cannot be raised without CAP_SYS_RESOURCE", limit(f.MemlockMax))
			},
			stops: withBPF,
			remedy: func(*Facts) Remedy {
				return Remedy{Do: "run fulgur with sudo, or raise this shell's limit", Paste: "sudo prlimit --pid $$ --memlock=unlimited"}
			},
		}},
	},
	{
		id: "memory", group: groupProcess, title: "memory",
		value: memoryLimit,
		faults: []fault{{
			when:    func(f *Facts) bool { return len(starved(f)) > 0 },
			what:    memoryNeeds,
			whatFor: memoryNeed,
			stopped: starved,
			remedy:  do("raise that limit, or run fulgur in another cgroup"),
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
			lost:   "it may reject some BPF programs (see the trials below)",
			remedy: do("upgrade the kernel"),
		}},
	},
	{
		id: "lockdown", group: groupKernel, title: "lockdown",
		value: func(f *Facts) string {
			if f.Lockdown == LockdownUnknown && f.LSMs == "" {
				return unknown + ": /sys/kernel/security is unreadable"
			}
			return f.Lockdown.String()
		},
		faults: []fault{{
			when:   func(f *Facts) bool { return f.Lockdown == LockdownConfidentiality },
			what:   always("the kernel is locked down in confidentiality mode, so BPF programs cannot read its memory"),
			stops:  withBPF,
			denies: capability.SetOf(capability.BPF, capability.Perfmon),
			remedy: do("boot with lockdown=integrity, or disable the lockdown that Secure Boot enables"),
		}},
	},
	{
		id: "perf_event_paranoid", group: groupKernel, title: "perf_event_paranoid",
		value: sysctlValue(sysctlParanoid),
		faults: []fault{{
			when: func(f *Facts) bool { return f.sysctl(sysctlParanoid, 2) > 2 && !f.Effective.Has(capability.SysAdmin) },
			what: func(f *Facts) string {
				return fmt.Sprintf("sysctl %s is %d; above 2, kernels of Debian and Ubuntu require CAP_SYS_ADMIN", sysctlParanoid, f.Sysctls[sysctlParanoid])
			},
			lost:   "the kernel may refuse perf events (see the trials below)",
			denies: capability.SetOf(capability.Perfmon),
			remedy: paranoidRemedy,
		}},
	},
	{
		id: checkBTF, group: groupKernel, title: "BTF",
		value: either(func(f *Facts) bool { return f.BTF }, "/sys/kernel/btf/vmlinux", "none"),
		faults: []fault{{
			when:   func(f *Facts) bool { return !f.BTF },
			what:   always("the kernel has no BTF (/sys/kernel/btf/vmlinux)"),
			stops:  withBPF,
			remedy: do("use a kernel built with CONFIG_DEBUG_INFO_BTF=y"),
		}},
	},
	{
		id: "bpf_jit", group: groupKernel, title: "BPF JIT",
		value: func(f *Facts) string {
			switch f.sysctl(sysctlJIT, -1) {
			case -1:
				return unknown
			case 0:
				return "off"
			}
			return "on"
		},
		faults: []fault{{
			when:   func(f *Facts) bool { return f.sysctl(sysctlJIT, 1) == 0 },
			what:   always("the BPF JIT compiler is off"),
			costs:  withBPF,
			lost:   "the overhead per sample is several times higher",
			remedy: paste("sudo sysctl " + sysctlJIT + "=1"),
		}},
	},
	{
		id: "kptr_restrict", group: groupKernel, title: "kptr_restrict",
		value: sysctlValue(sysctlKptr),
		faults: []fault{{
			when:   func(f *Facts) bool { return f.sysctl(sysctlKptr, 0) > 1 },
			what:   always("sysctl " + sysctlKptr + " hides kernel addresses from all users"),
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
			lost:   "deeper stacks are truncated",
			minor:  true, // truncated stacks are counted
			remedy: paste(fmt.Sprintf("sudo sysctl %s=%d", sysctlStack, wantedStack)),
		}},
	},
	{
		id: "perf_event_max_sample_rate", group: groupKernel, title: "perf_event_max_sample_rate",
		value: sysctlValue(sysctlRate),
		faults: []fault{{
			when: func(f *Facts) bool { return f.sysctl(sysctlRate, wantedRate) < wantedRate },
			what: func(f *Facts) string {
				return fmt.Sprintf("sysctl %s is %d (the kernel lowers it when sampling takes too long)", sysctlRate, f.Sysctls[sysctlRate])
			},
			costs:  []Command{Profile, Record, Bolt, AutoFDO},
			lost:   "higher sampling frequencies are rejected",
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
			what:   always("the NMI watchdog occupies a hardware counter on each CPU"),
			lost:   "one fewer hardware event can be counted at a time",
			remedy: paste("sudo sysctl " + sysctlWatchdog + "=0"),
		}},
	},
	{
		id: "ptrace_scope", group: groupKernel, title: "ptrace_scope",
		value: sysctlValue(sysctlPtrace),
		faults: []fault{
			{
				when:   func(f *Facts) bool { return f.sysctl(sysctlPtrace, 0) == 3 },
				what:   always("sysctl " + sysctlPtrace + " is 3, which forbids ptrace until the next boot"),
				stops:  []Command{ProfilePtrace, BoltStepping},
				costs:  []Command{OffCPUPerf, RecordPerf},
				lost:   "waits have no stacks",
				denies: capability.SetOf(capability.SysPtrace),
				remedy: do("set a lower value in /etc/sysctl.d and reboot"),
			},
			{
				when:   func(f *Facts) bool { return f.sysctl(sysctlPtrace, 0) == 2 && lacksPtrace(f) },
				what:   lacksPtraceAt,
				stops:  []Command{ProfilePtrace, BoltStepping},
				costs:  []Command{OffCPUPerf, RecordPerf},
				lost:   "waits have no stacks",
				denies: capability.SetOf(capability.SysPtrace),
				remedy: ptraceRemedy,
			},
			{
				when:   func(f *Facts) bool { return f.sysctl(sysctlPtrace, 0) == 1 && lacksPtrace(f) },
				what:   lacksPtraceAt,
				stops:  []Command{BoltStepping},
				costs:  []Command{ProfilePtrace, OffCPUPerf, RecordPerf},
				lost:   "only commands that fulgur starts can be stopped, and have stacks of waits, not processes that run already",
				denies: capability.SetOf(capability.SysPtrace),
				remedy: ptraceRemedy,
			},
		},
	},

	{
		id: "container", group: groupAround, title: "container",
		value: func(f *Facts) string {
			if f.Container == "" {
				return "none detected"
			}
			return f.Container
		},
	},
	{
		id: checkSeccomp, group: groupAround, title: "seccomp",
		value: either(hasSeccomp, "filtered", "no filter"),
		faults: []fault{{
			when:   hasSeccomp,
			what:   always("a seccomp filter (of a container?) is active"),
			lost:   "some system calls may be refused (see the trials below)",
			denies: allCapabilities,
			remedy: do("allow bpf, perf_event_open and ptrace in the filter (docker run --security-opt seccomp=unconfined), or run fulgur on the host"),
		}},
	},
	{
		id: "security_modules", group: groupAround, title: "security modules",
		value: func(f *Facts) string {
			if f.LSMs == "" {
				return unknown + ": /sys/kernel/security is unreadable"
			}
			return f.LSMs
		},
		faults: []fault{{
			when: isConfined,
			what: func(f *Facts) string {
				return fmt.Sprintf("a security module may confine fulgur (its label is %q)", f.Label)
			},
			lost:   "some system calls may be refused (see the trials below)",
			denies: allCapabilities,
			remedy: do("allow bpf, perf_event_open and ptrace in its policy, or run fulgur unconfined; dmesg and the audit log show what was refused"),
		}},
	},
	{
		id: CheckCgroup, group: groupAround, title: "cgroup v2",
		value: mounted(func(f *Facts) string { return f.Cgroup2 }),
		faults: []fault{{
			when:   func(f *Facts) bool { return f.Cgroup2 == "" },
			what:   always("cgroup v2 is not mounted"),
			plain:  true,
			costs:  withBPF,
			lost:   "cgroups cannot be chosen as targets",
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
			lost:   "some other tools need it; fulgur uses a private mount",
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

// isOld reports whether the kernel is older than [Facts.oldestKernel].
func isOld(f *Facts) bool { return f.isBefore(f.oldestKernel()) }

// isBefore reports whether the kernel is older than a release. It returns false if the
// kernel's release string has an unknown format.
func (f *Facts) isBefore(major, minor int) bool {
	var is [2]int
	if _, err := fmt.Sscanf(f.Release, "%d.%d", &is[0], &is[1]); err != nil {
		return false
	}
	return is[0] < major || is[0] == major && is[1] < minor
}

// lacksPtrace reports whether the user may trace only what Yama permits. Capabilities of fulgur's file do not count; see
// package stepping.
func lacksPtrace(f *Facts) bool {
	return !f.Can(capability.SysPtrace) || f.Lent.Has(capability.SysPtrace)
}

func lacksPtraceAt(f *Facts) string {
	return fmt.Sprintf("sysctl %s is %d, and the user lacks CAP_SYS_PTRACE", sysctlPtrace, f.Sysctls[sysctlPtrace])
}

var ptraceRemedy = do("run fulgur with sudo, or run once: `sudo sysctl " + sysctlPtrace + "=0`")

// isConfined reports whether a security module has a profile for the process:
// AppArmor calls others "unconfined", SELinux "…:unconfined_t:…".
func isConfined(f *Facts) bool {
	return f.Label != "" && f.Label != "kernel" && !strings.Contains(f.Label, "unconfined")
}

// lacksLockedMemory reports whether the sideband's rings exceed the limit that
// perf_mmap in the kernel's kernel/events/core.c sets for this user.
func lacksLockedMemory(f *Facts) bool {
	perCPU, known := f.Sysctls[sysctlMlock]
	if !known || f.Can(capability.IPCLock) || f.sysctl(sysctlParanoid, 2) < 0 {
		return false
	}
	beyond := (lockedPages*f.PageSize - perCPU<<10) * f.CPUs
	return beyond > 0 && uint64(beyond) > f.Memlock
}

// either returns a function that returns yes if the condition holds, else no.
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
		return "this kernel has none"
	}
}

// mounted returns the mount point of a file system.
func mounted(at func(*Facts) string) func(*Facts) string {
	return func(f *Facts) string {
		if at(f) == "" {
			return "not mounted"
		}
		return at(f)
	}
}

// limit formats a limit in bytes.
func limit(bytes uint64) string {
	if bytes == ^uint64(0) {
		return "no limit"
	}
	return fmt.Sprintf("%d kB", bytes>>10)
}
