package e2e

import (
	"math/rand/v2"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

var sink uint64

// The loops are in the functions that the tests look for: a leaf without a frame would
// hide its caller from a walk by frame pointers, as the leaves of the race detector do.

//go:noinline
//go:norace
func long(n int) {
	for i := range 3 * n {
		sink = sink*31 + uint64(i)
	}
}

//go:noinline
//go:norace
func short(n int) {
	for i := range n {
		sink = sink*31 + uint64(i)
	}
}

// workload spends three quarters of its time in long, the rest in short: forever
// ("shares") or for a CPU time such as "20ms". "memory" only leaves the kernel much
// memory to free.
func workload(mode string) {
	more := func() bool { return true }
	if limit, err := time.ParseDuration(mode); err == nil {
		end := cpuTime() + limit
		more = func() bool { return cpuTime() < end }
	} else if mode == "memory" {
		var err error
		memory, err = unix.Mmap(-1, 0, 256<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
		if err == nil {
			err = unix.Madvise(memory, unix.MADV_NOHUGEPAGE) // so that there are many pages to free
		}
		if err != nil {
			panic(err)
		}
		for i := 0; i < len(memory); i += os.Getpagesize() {
			memory[i] = 1
		}
		return
	}
	for more() {
		n := 500_000 + rand.IntN(500_000) // a constant period could be in lockstep with the sampler's
		long(n)
		short(n)
	}
}

var memory []byte

// cpuTime returns the CPU time that this process has used.
func cpuTime() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &ts) // every kernel supports it
	return time.Duration(ts.Nano())
}
