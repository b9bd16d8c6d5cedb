package main

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// repeatTime is how long after a signal others count as the same one. timeout(1) sends SIGTERM to
// its child and, a moment later, to the process group, of which the child is a member: the second
// one would kill fulgur before it has written the result. perf ignores all signals after the
// first, but a user must be able to quit while fulgur looks up names for minutes.
var repeatTime = 100 * time.Millisecond

// interrupted is the time of the last signal that ended a context, nil before.
var interrupted atomic.Pointer[time.Time]

// interruptible returns a context that ends with the first SIGINT, SIGTERM or
// SIGHUP, so that fulgur writes what it has measured so far. A moment later, the signals
// have their default effect again: a second one kills fulgur, with the usual exit
// status, unless it ends another interruptible context, such as the search for
// names. An output file that is incomplete has no name yet.
//
// SIGHUP stays ignored under nohup. An ignored SIGINT does not stay ignored: shells
// without job control start background jobs that way, and scripts end a measurement
// with "fulgur profile & …; kill -INT $!".
func interruptible(parent context.Context) (ctx context.Context, stop func()) {
	if signal.Ignored(syscall.SIGHUP) {
		return terminable(parent)
	}
	return until(parent, nil, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
}

// terminable is like [interruptible], but leaves SIGHUP alone.
func terminable(parent context.Context) (ctx context.Context, stop func()) {
	return until(parent, nil, syscall.SIGINT, syscall.SIGTERM)
}

// serviceable is like [terminable] for a service: only a second SIGINT kills it, since a
// service manager may send SIGTERM both to it and to its process group.
func serviceable(parent context.Context) (ctx context.Context, stop func()) {
	return until(parent, []os.Signal{syscall.SIGTERM}, syscall.SIGINT)
}

// until returns a context that ends with the first of some signals. After [repeatTime], those in
// lasting still have no effect, and the others have their default effect again.
func until(parent context.Context, lasting []os.Signal, signals ...os.Signal) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancel(parent)
	received, stopped := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(received, append(signals, lasting...)...)
	ignored := make(chan os.Signal, 1)
	if len(lasting) > 0 { // without signals, Notify relays all
		signal.Notify(ignored, lasting...)
	}
	before := interrupted.Load()
	go func() {
		if awaitSignal(ctx, received, before) {
			cancel()
		}
		select {
		case <-time.After(repeatTime):
			signal.Stop(received)
		case <-stopped:
		}
	}()
	return ctx, sync.OnceFunc(func() {
		signal.Stop(received)
		signal.Stop(ignored)
		cancel()
		close(stopped)
	})
}

// awaitSignal waits for a signal, or until ctx is done, and reports which. It ignores repetitions
// of a signal at the given time, if any, which ended another context.
func awaitSignal(ctx context.Context, received <-chan os.Signal, before *time.Time) bool {
	for {
		select {
		case <-received:
			now := time.Now()
			if before == nil || now.Sub(*before) >= repeatTime {
				interrupted.Store(&now)
				return true
			}
		case <-ctx.Done():
			return false
		}
	}
}
