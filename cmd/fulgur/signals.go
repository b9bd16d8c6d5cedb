package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// interruptible returns a context that ends with the first SIGINT, SIGTERM or
// SIGHUP, so that what was measured until then is written. From then on the
// signals do what they do by default: a second one ends us at once, as the
// shell can tell, unless it ends another such context, as that of the search for
// names. An output that is being written has no name yet.
//
// SIGHUP stays ignored under nohup. SIGINT does not, although shells without
// job control start background jobs with it ignored: "fulgur profile & …;
// kill -INT $!" is how scripts end a measurement.
func interruptible(parent context.Context) (ctx context.Context, stop func()) {
	signals := []os.Signal{syscall.SIGINT, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		signals = append(signals, syscall.SIGHUP)
	}
	ctx, cancel := context.WithCancel(parent)
	received := make(chan os.Signal, 1)
	signal.Notify(received, signals...)
	go func() {
		select {
		case <-received:
			signal.Reset(signals...)
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		signal.Stop(received)
		cancel()
	}
}
