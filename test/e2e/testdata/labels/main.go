// Labels prints "ready". When its standard input ends, each of its two threads works under known
// labels until it has used some seconds of CPU time, which is the argument. Then it prints the CPU
// time under each value of the label "kind". All labels change all the time; with the argument
// "unique", each set of labels is new.
package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/pprof"
	"strconv"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

// threadTime returns the CPU time of the calling thread.
func threadTime() time.Duration {
	const clockThreadCPUTime = 3
	var ts syscall.Timespec
	_, _, _ = syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockThreadCPUTime, uintptr(unsafe.Pointer(&ts)), 0)
	return time.Duration(ts.Nano())
}

//go:noinline
func burn(n int) (x int) {
	for i := range n {
		x += i * x
	}
	return x
}

// use uses the CPU for a time in proportion to units, on average: a constant time could be in
// lockstep with the sampler's.
func use(units int) { burn(units * (50_000 + rand.IntN(100_000))) }

func main() {
	seconds, err := strconv.ParseFloat(os.Args[1], 64)
	if err != nil {
		panic(err)
	}
	unique := len(os.Args) > 2 && os.Args[2] == "unique"
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
	work := time.Duration(seconds * float64(time.Second))
	totals := map[string]time.Duration{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for worker := range 2 {
		wg.Go(func() {
			runtime.LockOSThread()
			sums := map[string]time.Duration{}
			end := threadTime() + work
			for i := 0; threadTime() < end; i++ {
				turn := i % 7
				if unique {
					turn = i
				}
				for _, units := range []int{1, 2, 5} {
					kind := "k" + strconv.Itoa(units)
					before := threadTime()
					labels := pprof.Labels("kind", kind, "worker", strconv.Itoa(worker), "turn", strconv.Itoa(turn))
					pprof.Do(context.Background(), labels, func(context.Context) { use(units) })
					sums[kind] += threadTime() - before
				}
				before := threadTime()
				use(2)
				sums["none"] += threadTime() - before
			}
			mu.Lock()
			defer mu.Unlock()
			for kind, used := range sums {
				totals[kind] += used
			}
		})
	}
	wg.Wait()
	for kind, used := range totals {
		fmt.Println(kind, used.Nanoseconds())
	}
}
