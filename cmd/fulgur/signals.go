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

// until returns a context that ends with the first of some signals. After that, those in
// lasting have no effect, and the others their default effect again.
func until(parent context.Context, lasting []os.Signal, signals ...os.Signal) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancel(parent)
	received := make(chan os.Signal, 1)
	signal.Notify(received, append(lasting, signals...)...)
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
