package stopping

import (
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/internal/linux/procfs"
	"fulgur/internal/linux/tracing"
)

// process is a process of the target.
type process struct {
	pid, parent int
	// ours reports whether it is a child of fulgur.
	ours    bool
	threads []*thread
	// start is the CPU time that it had used at the start, and used that at the last look.
	start, used time.Duration
	// gone is the CPU time of threads that have ended, as far as it is known.
	gone time.Duration
	// due is the number of threads to stop: the CPU time since the last round, in CPUs, and what rounding left before.
	due float64
	program
	// late is set while a thread has not stopped yet.
	late bool
	// refused is set if it cannot be traced.
	refused bool
	mem     *os.File // its memory, if it cannot be read otherwise
}

// program is the program that a process runs, and its mappings.
type program struct {
	image
	since uint64       // when it was first seen, CLOCK_MONOTONIC in ns
	maps  []procfs.Map // executable ones, as of read; nil if never read
	read  uint64
	took  time.Duration // for reading
	size  uint64        // of the virtual memory then
	// interpreter reads the frames of its interpreter, nil if none was read.
	interpreter *interpreter
}

// image tells programs apart that a process runs one after another.
type image struct{ code, stack uint64 }

func imageOf(s procfs.Stat) image { return image{s.CodeStart, s.StackStart} }

// thread is a thread of a process.
type thread struct {
	pid, tid int
	start    uint64 // in clock ticks since boot
	// first is the CPU time that it had used at the start, and ran that at the last sample.
	first, ran time.Duration
	comm       string
	file       *os.File // its stat file, nil if not open
}

// clock returns the CPU time of a process, of all its threads, also those that have ended. ok is false if it is gone. Any
// user may read the clocks of all processes.
func clock(pid int) (used time.Duration, ok bool) {
	const sched = 2 // CPUCLOCK_SCHED
	var ts unix.Timespec
	if unix.ClockGettime(int32(^pid)<<3|sched, &ts) != nil {
		return 0, false
	}
	return time.Duration(ts.Nano()), true
}

// stat reads the state of a thread.
func (t *thread) stat(buf []byte) (procfs.Stat, error) {
	if t.file == nil {
		stat, err := procfs.Thread(t.pid, t.tid).Stat()
		if err == nil && t.start != 0 && stat.Start != t.start {
			err = tracing.ErrGone // another thread has its ID
		}
		return stat, err
	}
	n, err := unix.Pread(int(t.file.Fd()), buf, 0)
	if err != nil {
		return procfs.Stat{}, err
	}
	return procfs.ParseStat(buf[:max(n, 0)])
}

// cpu returns the CPU time that a thread has used.
func (t *thread) cpu(stat procfs.Stat) time.Duration {
	used, err := procfs.Thread(t.pid, t.tid).SchedCPU()
	if err != nil || used == 0 { // the kernel does not have it
		return time.Duration(stat.CPU) * procfs.Tick
	}
	return used
}

// thread returns a thread of p, nil if it is not known.
func (p *process) thread(tid int) *thread {
	if i := slices.IndexFunc(p.threads, func(t *thread) bool { return t.tid == tid }); i >= 0 {
		return p.threads[i]
	}
	return nil
}

// shuffle puts the threads in random order.
func (p *process) shuffle() {
	rand.Shuffle(len(p.threads), func(i, j int) { p.threads[i], p.threads[j] = p.threads[j], p.threads[i] })
}

// round adds CPU time since the last look, in CPUs, and returns the number of threads to stop.
func (p *process) round(cpus float64) int {
	p.due += cpus
	return int(p.due + 0.5)
}

// settle subtracts the stopped threads. What remains is limited: if no thread was found running, others are not to be
// stopped more often instead.
func (p *process) settle(taken int) { p.due = min(max(p.due-float64(taken), -0.5), 0.5) }
