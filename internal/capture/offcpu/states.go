package offcpu

import (
	"fmt"
	"strconv"
	"strings"

	"fulgur/internal/bpf"
)

// States is a set of states in which a thread leaves its CPU.
type States uint32

// AllStates contains all states except the state of an exited thread.
const AllStates States = ^States(bpf.OffCPUStateClassSTATE_DEAD)

// letters maps letters of ps(1) to states, in the order of their bits.
var letters = []struct {
	letter byte
	state  bpf.OffCPUStateClass
	// bit is the kernel's bit in include/linux/sched.h, for the states that
	// bcc's offcputime distinguishes.
	bit uint64
}{
	{'R', bpf.OffCPUStateClassSTATE_RUNNABLE, 0},
	{'S', bpf.OffCPUStateClassSTATE_SLEEPING, 0x01},
	{'D', bpf.OffCPUStateClassSTATE_DISK_SLEEP, 0x02},
	{'T', bpf.OffCPUStateClassSTATE_STOPPED, 0x04},
	{'t', bpf.OffCPUStateClassSTATE_TRACED, 0x08},
	{'P', bpf.OffCPUStateClassSTATE_PARKED, 0x40},
	{'I', bpf.OffCPUStateClassSTATE_IDLE, 0x402},
}

// ParseStates parses letters of ps(1), such as "D" or "SD", or the kernel's number
// of a state as in bcc's offcputime: 0, 1, 2…
func ParseStates(s string) (States, error) {
	if n, err := strconv.ParseUint(s, 0, 32); err == nil {
		for _, l := range letters {
			if l.bit == n {
				return States(l.state), nil
			}
		}
		return 0, fmt.Errorf("%s is not a thread state of the kernel: give letters, for example SD", s)
	}
	var states States
	for _, c := range strings.ReplaceAll(s, ",", "") {
		found := false
		for _, l := range letters {
			if rune(l.letter) == c {
				states, found = states|States(l.state), true
			}
		}
		if !found {
			return 0, fmt.Errorf("%q is not a thread state: give letters of ps(1): R (preempted), S (sleeping), D (disk sleep), T (stopped), t (traced), P (parked), I (idle)", c)
		}
	}
	if states == 0 {
		return 0, fmt.Errorf("%q names no thread state", s)
	}
	return states, nil
}
