package session

import (
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/internal/linux/perfevent"
	"fulgur/internal/profile"
)

// meta describes the machine and a part of the run.
func (r *run) meta(start time.Time, duration time.Duration) profile.Meta {
	m := profile.Meta{
		Command:  strings.Join(r.options.Args, " "),
		Start:    start,
		Duration: duration,
		PerCPU:   r.options.PerCPU,
		Grouping: r.options.By, GroupLabel: r.options.ByLabel,
		Scope: r.options.Target.String(),
	}
	r.subject.Describe(&m)
	// Samples stand for their weight, which tools for pprof show.
	if shown := r.subject.Values(nil)[r.subject.Shown()]; shown.Type != "samples" {
		m.Value = shown.Type
	}
	m.Unmeasured = r.unmeasured(r.options.Every == 0)
	if cpus, err := perfevent.OnlineCPUs(); err == nil {
		m.CPUs = len(cpus)
	}
	m.CPUName, m.Memory = cpuName(), memory()
	var uts unix.Utsname
	if unix.Uname(&uts) == nil {
		m.Host = unix.ByteSliceToString(uts.Nodename[:])
		m.Kernel = unix.ByteSliceToString(uts.Release[:])
		m.Arch = unix.ByteSliceToString(uts.Machine[:])
	}
	return m
}

// cpuName returns the name of the first CPU that has one in /proc/cpuinfo. Not
// all architectures report names.
func cpuName() string {
	text, _ := os.ReadFile("/proc/cpuinfo") // the name stays empty on error
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// memory returns the size of the machine's memory in bytes, 0 if unknown.
func memory() uint64 {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return 0
	}
	return info.Totalram * uint64(info.Unit)
}
