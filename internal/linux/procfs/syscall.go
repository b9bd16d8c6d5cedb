package procfs

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// NoCall is the [Syscall.Number] of a thread that waits outside of a system call, as in a page fault.
const NoCall = -1

// Syscall is where a thread waits, as its syscall file says.
type Syscall struct {
	// Running is set if the thread does not wait. All else is 0 then.
	Running bool
	// Number is the number of the system call, or [NoCall].
	Number int
	// SP and PC are its stack pointer and program counter in the program.
	SP, PC uint64
}

// Syscall reads the task's syscall file, which needs the right to trace it, and a kernel with CONFIG_HAVE_ARCH_TRACEHOOK.
func (t Task) Syscall() (Syscall, error) { return read(t, "syscall", ParseSyscall) }

// ParseSyscall parses a syscall file, see proc_pid_syscall(5): "running", or the number of the system call, its six
// arguments, the stack pointer and the program counter. Outside of a system call, there are no arguments.
func ParseSyscall(b []byte) (Syscall, error) {
	fields := bytes.Fields(b)
	if len(fields) == 1 && string(fields[0]) == "running" {
		return Syscall{Running: true}, nil
	}
	const inCall, outside = 9, 3
	if len(fields) != inCall && len(fields) != outside {
		return Syscall{}, fmt.Errorf("malformed syscall line %q", b)
	}
	number, err := strconv.ParseInt(string(fields[0]), 10, 32)
	if err != nil || number < NoCall || (number == NoCall) != (len(fields) == outside) {
		return Syscall{}, fmt.Errorf("malformed number in syscall line %q", b)
	}
	s := Syscall{Number: int(number)}
	for i, to := range []*uint64{&s.SP, &s.PC} {
		digits, ok := bytes.CutPrefix(fields[len(fields)-2+i], []byte("0x"))
		if *to, err = strconv.ParseUint(string(digits), 16, 64); err != nil || !ok {
			return Syscall{}, fmt.Errorf("malformed address in syscall line %q", b)
		}
	}
	return s, nil
}

// Wchan returns the name of the kernel's function in which the task waits, without the functions of the scheduler. It is ""
// if the task does not wait, or if this process may not inspect it.
func (t Task) Wchan() (string, error) { return read(t, "wchan", parseWchan) }

// parseWchan parses a wchan file, whose name has no suffix of a compiler here (".constprop.0").
func parseWchan(b []byte) (string, error) {
	name, _, _ := strings.Cut(string(b), ".")
	if name == "0" || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", nil
	}
	return name, nil
}
