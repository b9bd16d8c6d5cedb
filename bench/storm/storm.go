// Package storm measures how much tools slow down a load that causes the traced event as
// often as possible. It measures the load's rate alone and under each tool, in turn in
// each round, and shows medians.
package storm

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"fulgur/bench/program"
)

// Settle is the time for a tool to begin, and for the machine to settle after it has
// exited.
const Settle = 3 * time.Second

// Tool is a program that traces the whole system until it is interrupted.
type Tool struct {
	Name string
	Argv []string
}

// Storm is a load with the tools that trace it.
type Storm struct {
	// Operation is the load's unit of work. Event is the traced event; each operation
	// causes PerOperation events.
	Operation, Event string
	PerOperation     float64
	// Flags, if it is not nil, declares the load's flags.
	Flags func(*flag.FlagSet)
	// Tools returns the tools. fulgur is fulgur's path, and dir a directory for the
	// tools' output. Tools that are not installed, or exit at once, are left out.
	Tools func(fulgur, dir string) []Tool
	// Prepare, if it is not nil, makes files in dir that the load needs.
	Prepare func(ctx context.Context, dir string) error
	// Load runs the load and returns its operations per second. dir is a
	// directory for its files.
	Load func(ctx context.Context, dir string) (float64, error)
}

// Main is the main function of a command that measures a storm, and prints a table
// as Markdown.
func (s Storm) Main() {
	program.Main("bench/"+filepath.Base(os.Args[0]), s.run)
}

func (s Storm) run(ctx context.Context, args []string) (err error) {
	f := flag.NewFlagSet(filepath.Base(os.Args[0]), flag.ContinueOnError)
	rounds := f.Int("rounds", 3, "how often each tool runs; medians are shown")
	if s.Flags != nil {
		s.Flags(f)
	}
	if err := f.Parse(args); err != nil {
		return err
	}
	if *rounds < 1 {
		return errors.New("-rounds must be at least 1")
	}
	dir, err := os.MkdirTemp("", "fulgur-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	tools, err := s.find(ctx, dir)
	if err != nil {
		return err
	}
	if s.Prepare != nil {
		if err := s.Prepare(ctx, dir); err != nil {
			return err
		}
	}
	rates := make([][]float64, len(tools))
	for range *rounds {
		for i, t := range tools {
			rate, err := s.measure(ctx, t, dir)
			var ended endedError
			if errors.As(err, &ended) {
				fmt.Fprintf(os.Stderr, "leaving out %s, which exited at once: %s\n", t.Name, ended)
				continue
			}
			if err != nil {
				return fmt.Errorf("%s: %w", t.Name, err)
			}
			rates[i] = append(rates[i], rate)
		}
	}
	fmt.Printf("| tool | %s/s | slowdown | extra ns per %s |\n|---|---|---|---|\n", s.Operation, s.Event)
	alone := median(rates[0])
	for i, t := range tools {
		if len(rates[i]) == 0 {
			continue
		}
		rate := median(rates[i])
		fmt.Printf("| %s | %.0f | %.2f | %.0f |\n", t.Name, rate, rate/alone, (1e9/rate-1e9/alone)/s.PerOperation)
	}
	return nil
}

func median(rates []float64) float64 {
	slices.SortFunc(rates, cmp.Compare)
	return rates[(len(rates)-1)/2]
}

// find builds fulgur in dir, and looks for its peers. The first tool is no tool.
func (s Storm) find(ctx context.Context, dir string) ([]Tool, error) {
	fulgur, err := program.Build(ctx, dir)
	if err != nil {
		return nil, err
	}
	tools := []Tool{{Name: "nothing"}}
	for _, t := range s.Tools(fulgur, dir) {
		path, err := exec.LookPath(t.Argv[0])
		if err != nil {
			fmt.Fprintf(os.Stderr, "leaving out %s: %v\n", t.Name, err)
			continue
		}
		t.Argv[0] = path
		tools = append(tools, t)
	}
	return tools, nil
}

// endedError is the output of a tool that exited before it was interrupted.
type endedError string

func (e endedError) Error() string { return string(e) }

// measure returns the load's operations per second under a tool.
func (s Storm) measure(ctx context.Context, t Tool, dir string) (float64, error) {
	if t.Argv == nil {
		return s.Load(ctx, dir)
	}
	cmd := exec.CommandContext(ctx, t.Argv[0], t.Argv[1:]...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // the exit code of some tools reports the interrupt
		close(ended)
	}()
	time.Sleep(Settle)
	rate, err := s.Load(ctx, dir)
	select {
	case <-ended:
		return 0, endedError(stderr.String())
	default:
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		return 0, err
	}
	<-ended
	time.Sleep(Settle)
	return rate, err
}
