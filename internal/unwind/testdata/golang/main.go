// Command golang runs Go code whose stacks are hard to walk: functions without a frame, assembly,
// stacks that grow, and signal handlers.
//
// With an argument, it writes its own stack and then stays in the function that it names.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"sync/atomic"
	"syscall"
)

var (
	sink atomic.Uint32
	stop atomic.Bool
)

// leaf has no frame.
//
//go:noinline
func leaf(b []byte) uint32 {
	h := uint32(2166136261)
	for _, c := range b {
		h = (h ^ uint32(c)) * 16777619
	}
	return h
}

// stay has no frame, and runs until it is killed.
//
//go:noinline
func stay() {
	for !stop.Load() {
	}
}

//go:noinline
func first(b []byte) uint32 { return leaf(b) + 1 }

//go:noinline
func second(b []byte) uint32 { return leaf(b) ^ 7 }

//go:noinline
func copies(a, b []byte) { copy(a, b) }

//go:noinline
func grow(n int) int {
	var b [256]byte
	b[n%256] = byte(n)
	if n == 0 {
		return int(b[3])
	}
	return grow(n-1) + int(b[n%7])
}

//go:noinline
func inFirst(f func()) int { f(); return 1 }

//go:noinline
func inSecond(f func()) int { return inFirst(f) + 1 }

// point writes the return addresses of its callers and stays in a function that it calls. For inlined
// calls, [runtime.Callers] has the return address first, and then addresses that are on no stack.
func point() {
	pcs := make([]uintptr, 100)
	inlined := false
	for _, pc := range pcs[:runtime.Callers(2, pcs)] {
		if !inlined {
			fmt.Printf("%#x ", pc)
		}
		frame, _ := runtime.CallersFrames([]uintptr{pc}).Next()
		inlined = frame.Func == nil
	}
	fmt.Println()
	stay()
}

// deferred calls f in a deferred call.
//
//go:noinline
func deferred(f func()) {
	defer f()
	sink.Add(1)
}

// method calls f through an interface and reflection, whose assembly calls functions.
type method struct{ f func() }

func (m method) Run() { m.f() }

func main() {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "nested":
			inSecond(point)
		case "deferred":
			deferred(point)
		case "panicking":
			deferred(func() {
				defer point()
				var p *int
				*p = 1
			})
		case "reflected":
			reflected(method{point})
		case "goroutine":
			done := make(chan int)
			go func() { done <- inFirst(point) }()
			<-done
		}
		return
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR1)
	go func() {
		for {
			_ = syscall.Kill(os.Getpid(), syscall.SIGUSR1)
			<-signals
		}
	}()
	a, b := make([]byte, 1<<20), make([]byte, 1<<20)
	for {
		done := make(chan int)
		go func() { done <- grow(500) }()
		<-done
		copies(a, b)
		sink.Add(first(b[:100000]) + second(b[:100000]))
	}
}
