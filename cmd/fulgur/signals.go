package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// interruptible returns a context that ends with the first SIGINT, SIGTERM or
// SIGHUP, so that fulgur writes what it has measured so far. After that, the signals
// have their default effect again: a second one kills fulgur, with the usual exit
// status, unless it ends another interruptible context, such as the search for
// names. An output file that is incomplete has no name yet.
//
// SIGHUP stays ignored under nohup. An ignored SIGINT does not stay ignored: shells
// without job control start background jobs that way, and scripts end a measurement
// with "fulgur profile & …; kill -INT $!".
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
