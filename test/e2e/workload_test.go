package e2e

import "time"

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
// ever, or "brief", half a second.
func workload(mode string) {
	for end := time.Now().Add(500 * time.Millisecond); mode != "brief" || time.Now().Before(end); {
		long(100000)
		short(100000)
	}
}
