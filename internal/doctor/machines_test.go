package doctor

import (
	"errors"
	"io/fs"
	"slices"
	"syscall"

	"fulgur/internal/linux/capability"
	"fulgur/internal/linux/procfs"
)

// all holds every capability of Linux 6.18.
const all capability.Set = 1<<41 - 1

// without returns all capabilities except caps.
func without(caps ...capability.Capability) capability.Set { return all &^ capability.SetOf(caps...) }

// healthy returns the facts for root on a machine with a PMU.
func healthy() Facts {
	f := Facts{
		Rights:     Rights{Effective: all, Bounding: all, Last: capability.CheckpointRestore},
		Release:    "6.12.0-1-amd64",
		Machine:    "x86_64",
		CPUs:       4,
		PageSize:   4096,
		Executable: "/usr/bin/fulgur",
		Memlock:    8 << 20,
		MemlockMax: 8 << 20,
		BTF:        true,
		Lockdown:   LockdownNone,
		LSMs:       "lockdown,capability,yama,apparmor,bpf",
		Label:      "unconfined",
		Sysctls: map[string]int{
			sysctlParanoid: 2, sysctlKptr: 0, sysctlMlock: 516, sysctlStack: 127, sysctlRate: 100000, sysctlPtrace: 0, sysctlJIT: 1, sysctlWatchdog: 0,
		},
		Cgroup2: "/sys/fs/cgroup",
		TraceFS: "/sys/kernel/tracing",
		Tried:   map[Probe]Outcome{},
	}
	for _, c := range trials {
		f.Tried[Probe(c.title)] = Outcome{}
	}
	f.Tried[ProbeCycles] = Outcome{Found: FoundCycles}
	f.Tried[ProbeBranchRecords] = Outcome{Found: "with cycles"}
	return f
}

// refuse makes all probes fail for lack of privileges.
func refuse(f *Facts) {
	for p := range f.Tried {
		f.Tried[p] = Outcome{Err: syscall.EPERM}
	}
}

// machines are the test machines, each with its differences from a healthy one.
var machines = map[string]func(*Facts){
	"root": func(*Facts) {},
	"a user": func(f *Facts) {
		f.Effective = 0
		refuse(f)
		f.Tried[ProbeUserEvents], f.Tried[ProbeStops] = Outcome{}, Outcome{}
	},
	"CAP_BPF and CAP_PERFMON": func(f *Facts) {
		f.Effective = capability.SetOf(capability.BPF, capability.Perfmon)
	},
	"file capabilities": func(f *Facts) {
		f.Effective = capability.SetOf(capability.BPF, capability.Perfmon, capability.SysPtrace,
			capability.CheckpointRestore, capability.DACReadSearch, capability.Syslog)
		f.Lent = f.Effective
		for _, p := range []Probe{ProbeKprobe, ProbeUprobe, ProbeTracepoint, ProbeJumps, ProbeBreakpoints} {
			f.Tried[p] = Outcome{Err: syscall.EACCES}
		}
	},
	"CAP_SYS_ADMIN": func(f *Facts) { f.Effective = capability.SetOf(capability.SysAdmin) },
	"CAP_BPF":       func(f *Facts) { f.Effective = capability.SetOf(capability.BPF) },
	"before CAP_BPF": func(f *Facts) {
		f.Effective, f.Last, f.Release = 0, 37, "5.4.0-1-generic"
		refuse(f)
	},
	"a cgroup with little memory": func(f *Facts) {
		f.Memory = procfs.MemoryLimit{Bytes: 70 << 20, File: "/sys/fs/cgroup/a/memory.max"}
	},
	"a cgroup with enough memory": func(f *Facts) {
		f.Memory = procfs.MemoryLimit{Bytes: 112 << 20, File: "/sys/fs/cgroup/a/memory.max"}
	},
	"a service without new privileges": func(f *Facts) { f.Effective, f.NoNewPrivs = 0, true },
	"a file system mounted nosuid":     func(f *Facts) { f.Effective, f.NoSetuid = 0, true },
	"a container": func(f *Facts) {
		f.Effective, f.Bounding, f.Seccomp, f.PIDNamespace, f.Container = 0xa80425fb, 0xa80425fb, true, true, "docker"
		f.Label = "docker-default (enforce)"
		f.Lockdown, f.LSMs = LockdownUnknown, ""
		refuse(f)
	},
	"a container with the machine's processes": func(f *Facts) {
		f.Effective, f.Bounding, f.Seccomp, f.Container = 0xa80425fb, 0xa80425fb, true, "docker"
		refuse(f)
	},
	"a rootless container": func(f *Facts) {
		f.UserNamespace, f.PIDNamespace, f.Container = true, true, "podman"
		refuse(f)
	},
	"no /proc": func(f *Facts) {
		f.ForeignProc = true
		for _, p := range []Probe{ProbePerfEvent, ProbeRing, ProbePrograms(Profile)} {
			f.Tried[p] = Outcome{Err: &fs.PathError{Op: "open", Path: "/proc/self/mountinfo", Err: syscall.ENOENT}}
		}
	},
	"another /proc": func(f *Facts) { f.ForeignProc = true },
	"hidepid": func(f *Facts) {
		f.HidePID, f.Effective = true, without(capability.SysPtrace)
	},
	"hidepid, root": func(f *Facts) { f.HidePID = true },
	"confidentiality": func(f *Facts) {
		f.Lockdown = LockdownConfidentiality
		refuse(f)
	},
	"integrity": func(f *Facts) { f.Lockdown = LockdownIntegrity },
	"Debian's paranoia": func(f *Facts) {
		f.Sysctls[sysctlParanoid], f.Effective = 3, without(capability.SysAdmin)
		for _, p := range []Probe{ProbePerfEvent, ProbeUserEvents, ProbeCycles, ProbeBranchRecords} {
			f.Tried[p] = Outcome{Err: syscall.EACCES}
		}
	},
	"Debian's paranoia, a service": func(f *Facts) {
		f.Sysctls[sysctlParanoid], f.NoNewPrivs = 3, true
		f.Effective = without(capability.SysAdmin)
		f.Bounding = f.Effective
		for _, p := range []Probe{ProbePerfEvent, ProbeUserEvents, ProbeCycles, ProbeBranchRecords} {
			f.Tried[p] = Outcome{Err: syscall.EACCES}
		}
	},
	"Ubuntu's paranoia, root": func(f *Facts) { f.Sysctls[sysctlParanoid] = 4 },
	"a stock kernel's paranoia": func(f *Facts) {
		f.Sysctls[sysctlParanoid], f.Effective = 3, without(capability.SysAdmin)
	},
	"no BTF": func(f *Facts) {
		f.BTF = false
		for p := range f.Tried {
			if !slices.Contains(untyped, p) {
				f.Tried[p] = Outcome{Err: errors.New("no BTF found for kernel version 6.12: not supported")}
			}
		}
	},
	"no JIT":        func(f *Facts) { f.Sysctls[sysctlJIT] = 0 },
	"kptr_restrict": func(f *Facts) { f.Sysctls[sysctlKptr] = 2 },
	"nothing works": func(f *Facts) {
		for p := range f.Tried {
			f.Tried[p] = Outcome{Err: syscall.EINVAL}
		}
		f.Tried[ProbeCycles], f.Tried[ProbeBranchRecords] = Outcome{Err: ErrNoPMU}, Outcome{Err: ErrNoBranchRecords}
		f.Tried[ProbeJumps], f.Tried[ProbeKprobe] = Outcome{Err: ErrNoJumps}, Outcome{Err: ErrNoKprobes}
		f.Tried[ProbeBreakpoints] = Outcome{Err: ErrNoBreakpoints}
	},
	"an old kernel":           func(f *Facts) { f.Release = "5.4.0-1-generic" },
	"an old kernel for arm64": func(f *Facts) { f.Release, f.Machine = "5.10.0-32-arm64", "aarch64" },
	"Linux 5.10": func(f *Facts) {
		f.Release = "5.10.0-32-amd64"
		f.Tried[ProbeKernelNames] = Outcome{Err: errors.New("program name_ksyms: load program: invalid argument")}
		f.Tried[ProbeSleepers], f.Tried[ProbeJumps] = Outcome{Err: ErrNoSleepers}, Outcome{Err: ErrNoJumps}
	},
	"Linux 5.10, CAP_BPF and CAP_PERFMON": func(f *Facts) {
		f.Release = "5.10.0-32-amd64"
		f.Effective = capability.SetOf(capability.BPF, capability.Perfmon)
	},
	"Linux 5.10, unlimited": func(f *Facts) {
		f.Release, f.MemlockMax = "5.10.0-32-amd64", 1<<64-1
		f.Effective = capability.SetOf(capability.BPF, capability.Perfmon)
	},
	"a virtual machine": func(f *Facts) {
		f.Tried[ProbeCycles] = Outcome{Err: ErrNoPMU}
		f.Tried[ProbeBranchRecords] = Outcome{Err: ErrNoBranchRecords}
	},
	"a paravirtual machine": func(f *Facts) {
		f.Tried[ProbeCycles] = Outcome{Err: ErrNoPMU}
		f.Tried[ProbeBranchRecords] = Outcome{Err: ErrNoBranchRecords}
		f.Tried[ProbeBreakpoints] = Outcome{Err: ErrNoBreakpoints}
	},
	"arm64 6.1": func(f *Facts) {
		f.Machine = "aarch64"
		f.Tried[ProbeFentry] = Outcome{Err: syscall.ENOTSUP}
		f.Tried[ProbeBranchRecords], f.Tried[ProbeJumps] = Outcome{Err: ErrNoBranchRecords}, Outcome{Err: ErrNoJumps}
	},
	"yama": func(f *Facts) {
		f.Sysctls[sysctlPtrace], f.Effective = 1, without(capability.SysPtrace)
	},
	"yama, root":   func(f *Facts) { f.Sysctls[sysctlPtrace] = 2 },
	"yama, nobody": func(f *Facts) { f.Sysctls[sysctlPtrace] = 3 },
	"a security module": func(f *Facts) {
		f.Label = "system_u:system_r:container_t:s0"
		refuse(f)
	},
	"refusals without a cause": refuse,
	"the watchdog":             func(f *Facts) { f.Sysctls[sysctlWatchdog] = 1 },
	"no cgroup v2, no tracefs": func(f *Facts) { f.Cgroup2, f.TraceFS = "", "" },
	"low limits":               func(f *Facts) { f.Sysctls[sysctlStack], f.Sysctls[sysctlRate] = 64, 500 },
	"64 KiB pages": func(f *Facts) {
		f.PageSize, f.Sysctls[sysctlMlock], f.Effective = 65536, 576, capability.SetOf(capability.BPF, capability.Perfmon)
	},
	"little locked memory": func(f *Facts) {
		f.Memlock, f.Sysctls[sysctlMlock] = 64<<10, 0
		f.Effective = capability.SetOf(capability.BPF, capability.Perfmon, capability.SysPtrace, capability.CheckpointRestore, capability.DACReadSearch, capability.Syslog)
	},
}

// machine returns the facts of a machine.
func machine(name string) *Facts {
	f := healthy()
	machines[name](&f)
	return &f
}

// machineNames returns the sorted names of all machines.
func machineNames() []string {
	var names []string
	for name := range machines {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
