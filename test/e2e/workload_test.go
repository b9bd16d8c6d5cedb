package e2e

import (
	"math"
	"os"
	"time"
)

var sink uint64

// The loops stand in the functions that are looked for: a leaf without a frame
// of its own would hide its caller from a walk by frame pointers.

//go:noinline
func long(n int) {
	for i := range 3 * n {
		sink = sink*31 + uint64(i)
	}
}

//go:noinline
func short(n int) {
	for i := range n {
		sink = sink*31 + uint64(i)
	}
}

// workload spends three quarters of its time in long, the rest in short: for
// ever, or for as long as the mode says. Mode "memory" instead leaves the
// kernel much memory to free.
func workload(mode string) {
	d := time.Duration(math.MaxInt64)
	switch mode {
	case "brief":
		d = 500 * time.Millisecond
	case "seconds":
		d = 3 * time.Second
	case "memory":
		memory = make([]byte, 256<<20)
		for i := 0; i < len(memory); i += os.Getpagesize() {
			memory[i] = 1
		}
		return
	}
	for begin := time.Now(); time.Since(begin) < d; {
		long(100000)
		short(100000)
	}
}

var memory []byte
