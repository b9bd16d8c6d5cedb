package oncpu

import (
	"os/exec"
	"runtime"
	"time"
)

var sink int

//go:noinline
func spin(n int) int {
	for i := range n {
		sink ^= i * n
	}
	return sink
}

//go:noinline
func deep(n int) int {
	if n == 0 {
		return spin(20000)
	}
	return deep(n-1) + 1
}

// workload runs until it is killed. "deep" has one stack, "wide" has one per depth,
// "threads" keeps creating threads, and "children" processes.
func workload(mode string) {
	for i := 0; ; i++ {
		switch mode {
		case "deep":
			deep(30)
		case "wide":
			deep(i % 90)
		case "threads":
			done := make(chan struct{})
			go func() {
				runtime.LockOSThread() // never unlocked: the thread exits with the goroutine
				defer close(done)
				// Shorter than the sampling period, yet no thread may be missed.
				for end := time.Now().Add(time.Millisecond / 2); time.Now().Before(end); {
					deep(10)
				}
			}()
			<-done
		case "children":
			if err := exec.Command("true").Run(); err != nil {
				panic(err)
			}
		}
	}
}
