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
		Command:  strings.Join(r.options.Args, " "),
		Start:    r.start,
		Duration: r.duration,
		PerCPU:   r.options.PerCPU,
		Scope:    r.options.Target.String(),
	}
	r.subject.describe(&m)
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
