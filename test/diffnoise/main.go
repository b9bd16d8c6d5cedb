// Command diffnoise records the profiles that the test of this package replays: hundreds of runs of
// equal programs, and of a program that is slower in one function. It asks what fulgur diff says
// about equal runs, and which changes it finds.
//
//	go build -o build/ ./cmd/fulgur
//	go run ./test/diffnoise record -rounds 100 build/noise  # about 20 minutes of CPU time, as root
//	go run ./test/diffnoise pack build/noise                # writes test/diffnoise/testdata
//
// Each round runs each program of [programs] once, in turn, so that all of them meet the same noise of
// the machine. A recording that was interrupted continues where it ended; several can run at once.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "diffnoise:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("give record or pack")
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	rounds := flags.Int("rounds", 100, "the number of rounds")
	first := flags.Int("first", 0, "the first round")
	step := flags.Int("step", 1, "record every `n`th round, beside other recordings")
	program := flags.String("fulgur", "build/fulgur", "the `path` of fulgur")
	to := flags.String("to", "test/diffnoise/testdata", "the `folder` that pack writes to")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	dir := flags.Arg(0)
	switch {
	case dir == "":
		return errors.New("give the folder of the profiles")
	case args[0] == "record":
		return record(ctx, *program, dir, *first, *rounds, *step)
	case args[0] == "pack":
		return pack(ctx, dir, *to)
	}
	return fmt.Errorf("unknown command %s: give record or pack", args[0])
}
