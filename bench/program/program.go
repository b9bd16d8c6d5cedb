// Package program has what all benchmark programs share.
package program

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
)

// Main runs a benchmark on the main thread, with the arguments of the command line and a
// context that Ctrl-C and SIGTERM cancel. It prints an error of run other than
// flag.ErrHelp after the benchmark's name, and exits with code 1.
//
// The kernel kills a load when the thread that started it exits; the main thread does not
// exit before the process.
func Main(name string, run func(ctx context.Context, args []string) error) {
	runtime.LockOSThread()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}
