package events

import (
	"errors"
	"io/fs"
	"strings"

	"fulgur/internal/bpf"
	"fulgur/internal/linux/syscalls"
	"fulgur/internal/linux/tracefs"
)

// syscallGroup is the group of the tracepoints of single system calls. Their names are a
// direction, "sys_enter_" or "sys_exit_", and the name of the call.
const syscallGroup = "syscalls"

// directions are the tracepoints of all system calls, in the group raw_syscalls.
var directions = []string{"sys_enter", "sys_exit"}

// singleSyscalls is the maximum number of system calls' tracepoints that the programs of a run are
// attached to one by one. Any number of them makes each other system call of the machine slower by 40 to
// 60 ns, since the kernel looks whether it is traced. A program at raw_syscalls runs at each
// instead, which takes 160 to 350 ns: less if the caller is not of the target, more if entry and
// exit are traced. But the kernel takes 70 ms to detach each single tracepoint, so that this
// number delays the end of fulgur, after the result is written, by two seconds. Measured on Linux
// 6.18 with a program that calls getppid (170 ns) in a loop, in interleaved runs.
const singleSyscalls = 24

// isCopied reports whether a field of a system call is a copy of the user's memory that newer
// kernels append to records. Programs do not receive it.
func isCopied(f tracefs.Field) bool { return strings.HasPrefix(f.Type, "__data_loc") }

// syscall returns the number and the index of the direction if a point is a tracepoint of a
// system call with a known number.
func (p Point) syscall() (number uint32, direction int, ok bool) {
	name, ok := strings.CutPrefix(p.Name, syscallGroup+":")
	if !ok {
		return 0, 0, false
	}
	for i, prefix := range directions {
		if call, ok := strings.CutPrefix(name, prefix+"_"); ok {
			number, ok = syscalls.Number(call)
			return number, i, ok
		}
	}
	return 0, 0, false
}

// takeSyscalls reserves programs for each of a probe's tracepoints of system calls with a known
// number. It returns false if the run has too many of these tracepoints, and reserves none.
func (r *Resolver) takeSyscalls(p *Probe) bool {
	known := 0
	for _, point := range p.Points {
		if _, _, ok := point.syscall(); ok {
			known++
		}
	}
	if known > 0 && r.syscalls+known > singleSyscalls {
		return false
	}
	r.syscalls += known
	return true
}

// findRawSyscalls finds the tracepoints of raw_syscalls if a program is to be attached to them.
func (r *Resolver) findRawSyscalls(p *Probe, tracing *tracefs.FS) error {
	if r.takeSyscalls(p) {
		return nil
	}
	ids := map[string]uint64{}
	for _, name := range directions {
		format, err := tracing.Tracepoint("raw_syscalls", name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		ids[name] = format.ID
	}
	p.rawSyscalls = ids
	return nil
}

// BySyscall reports whether a program is attached to the tracepoints of raw_syscalls instead
// of the tracepoints of single system calls. It must then know at which point it runs.
func (p *Probe) BySyscall() bool { return p.rawSyscalls != nil }

// AttachEach makes [Probe.BySyscall] false.
func (p *Probe) AttachEach() { p.rawSyscalls = nil }

// AttachPoint is a tracepoint to attach a program to, with its cookie; see bpf/field.h.
type AttachPoint struct {
	Name       string
	ID, Cookie uint64
}

// Tracepoints returns what the program of a probe of tracepoints is attached to. The index
// distinguishes the probes whose programs share maps.
func (p *Probe) Tracepoints(index int) (all []AttachPoint) {
	var raw [2]bool
	for i, point := range p.Points {
		if _, direction, ok := point.syscall(); ok && p.BySyscall() {
			raw[direction] = true
			continue
		}
		all = append(all, AttachPoint{point.Name, point.ID, p.Cookie(i)})
	}
	for direction, wanted := range raw {
		if wanted {
			name := directions[direction]
			cookie := bpf.SyscallsCookie | uint64(syscallSet(index, direction))
			all = append(all, AttachPoint{"raw_syscalls:" + name, p.rawSyscalls[name], cookie})
		}
	}
	return all
}

// Syscalls returns the cookies of the points that tracepoints of raw_syscalls replace. index
// is the same as for [Probe.Tracepoints].
func (p *Probe) Syscalls(index int) map[bpf.CountSyscallKey]uint64 {
	all := map[bpf.CountSyscallKey]uint64{}
	if !p.BySyscall() {
		return all
	}
	for i, point := range p.Points {
		if number, direction, ok := point.syscall(); ok {
			all[bpf.CountSyscallKey{Number: number, Set: syscallSet(index, direction)}] = p.Cookie(i)
		}
	}
	return all
}

// syscallSet returns the number of a probe's calls in a direction.
func syscallSet(index, direction int) uint32 { return uint32(index*len(directions) + direction) }
