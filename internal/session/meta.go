package session

import (
	"strings"

	"golang.org/x/sys/unix"

	"fulgur/internal/perfevent"
	"fulgur/internal/profile"
)

// meta describes the run and the machine.
func (r *run) meta() profile.Meta {
	m := profile.Meta{
		Command:   strings.Join(r.options.Args, " "),
		Start:     r.start,
		Duration:  r.duration,
		Event:     r.specs[0].Name,
		Frequency: r.options.Frequency,
		Period:    r.options.Period,
		PerCPU:    r.options.PerCPU,
		Scope:     r.options.Target.String(),
	}
	if cpus, err := perfevent.OnlineCPUs(); err == nil {
		m.CPUs = len(cpus)
	}
	var uts unix.Utsname
	if unix.Uname(&uts) == nil {
		m.Host = unix.ByteSliceToString(uts.Nodename[:])
		m.Kernel = unix.ByteSliceToString(uts.Release[:])
		m.Arch = unix.ByteSliceToString(uts.Machine[:])
	}
	return m
}
