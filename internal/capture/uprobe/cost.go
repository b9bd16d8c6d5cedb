package uprobe

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"fulgur/internal/linux/memlock"
	"fulgur/internal/linux/procfs"
)

// class is a class of instructions. The kernel emulates some of the instructions on which a
// uprobe is. The processor executes the others elsewhere, in single-step mode, which can
// take ten times as long, and depends on the kernel and on the machine.
type class int

// costs are the CPU times of a hit by class, measured once.
var costs [classes]func() (time.Duration, error)

func init() {
	for c := range costs {
		costs[c] = sync.OnceValues(func() (time.Duration, error) { return measure(class(c)) })
	}
}

// Cost returns the CPU time that a hit of a uprobe at an instruction takes on this machine,
// with a program that does nothing. code begins with the instruction. Cost measures it in
// this process, once for each class of instructions.
func Cost(code []byte) (time.Duration, error) { return costs[classOf(code)]() }

// ReturnCost returns the CPU time of the return of a function with a uretprobe, which is
// about the cost of an instruction that the kernel emulates.
func ReturnCost() (time.Duration, error) { return costs[emulated]() }

// calls is the number of calls that are measured together, rounds how often.
const (
	calls  = 50
	rounds = 5
)

// measure measures a class by a function that begins with such an instruction.
func measure(c class) (time.Duration, error) {
	cost, err := hits(c)
	if err != nil {
		return 0, fmt.Errorf("measure the cost of a uprobe: %w", err)
	}
	return cost, nil
}

func hits(c class) (time.Duration, error) {
	offset, err := offsetOf(bodies[c])
	if err != nil {
		return 0, err
	}
	memlock.Lift()
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.Kprobe, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if err != nil {
		return 0, err
	}
	defer program.Close()
	file, err := link.OpenExecutable("/proc/self/exe")
	if err != nil {
		return 0, err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	free := fastest(samples[c])
	attached, err := file.Uprobe("cost", program, &link.UprobeOptions{Address: offset, PID: os.Getpid()})
	if err != nil {
		return 0, err
	}
	cost := (fastest(samples[c]) - free) / calls
	return max(cost, 0), attached.Close()
}

// fastest returns the least CPU time of calls.
func fastest(call func()) (least time.Duration) {
	for range rounds {
		before := ThreadTime()
		for range calls {
			call()
		}
		if took := ThreadTime() - before; least == 0 || took < least {
			least = took
		}
	}
	return least
}

// ThreadTime returns the CPU time of the calling thread so far.
func ThreadTime() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) // always exists
	return time.Duration(t.Nano())
}

// offsetOf returns the offset in this process's executable file of code in memory.
func offsetOf(pc uintptr) (uint64, error) {
	maps, err := procfs.Process(os.Getpid()).Maps()
	if err != nil {
		return 0, err
	}
	for _, m := range maps {
		if at := uint64(pc); at >= m.Start && at < m.Limit && m.Ino != 0 {
			return at - m.Start + m.Offset, nil
		}
	}
	return 0, errors.New("fulgur's code is not in a file")
}
