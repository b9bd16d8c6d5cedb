// Alloc measures how much tools that find allocations slow down a program that does nothing but
// allocate and free: fulgur alloc, bcc's memleak and heaptrack. The result is the CPU time of the
// program, so other work of the machine changes it little. fulgur samples or, like the others,
// measures every allocation.
//
// It needs root, gcc and Go, and leaves out tools that are not installed or do not start. memleak
// needs the kernel's headers: if the machine has none, set BCC_KERNEL_SOURCE to those of another
// kernel. Usage, at the root of the repository:
//
//	go run ./bench/alloc [-rounds 3] [-pairs 200000]
package main

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
	"strconv"
	"strings"
	"time"

	"fulgur/bench/program"
)

// tool is a way to run the load.
type tool struct {
	name string
	// argv is the command. PID stands for the load; without PID, the tool starts the load,
	// whose command follows.
	argv []string
	// awaits is the function on which the tool sets a breakpoint last.
	awaits string
}

func tools(fulgur, dir string) []tool {
	alloc := func(flags ...string) []string {
		return append([]string{fulgur, "alloc", "-q", "-f", "--max-overhead", "100", "-p", "PID"}, flags...)
	}
	return []tool{
		{name: "nothing"},
		{"fulgur alloc", alloc(), "malloc"},
		{"fulgur alloc --live", alloc("--live"), "free"},
		{"fulgur alloc --rate 1", alloc("--rate", "1"), "malloc"},
		{"fulgur alloc --rate 1 --live", alloc("--rate", "1", "--live"), "free"},
		{"bcc memleak", []string{"memleak-bpfcc", "-p", "PID", "600"}, "free"},
		{"bcc memleak -s 1000", []string{"memleak-bpfcc", "-s", "1000", "-p", "PID", "600"}, "free"},
		{"heaptrack", []string{"heaptrack", "-r", "-o", filepath.Join(dir, "heaptrack")}, ""},
	}
}

func main() { program.Main("bench/alloc", run) }

func run(ctx context.Context, args []string) (err error) {
	f := flag.NewFlagSet("alloc", flag.ContinueOnError)
	rounds := f.Int("rounds", 3, "how often each tool runs; medians are shown")
	pairs := f.Int("pairs", 200_000, "how many allocations are made and freed")
	if err := f.Parse(args); err != nil {
		return err
	}
	if *rounds < 1 || *pairs < 1 {
		return errors.New("-rounds and -pairs must be at least 1")
	}
	dir, err := os.MkdirTemp("", "fulgur-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	fulgur, load := filepath.Join(dir, "fulgur"), filepath.Join(dir, "load")
	for _, argv := range [][]string{
		{"go", "build", "-o", fulgur, "./cmd/fulgur"},
		{"gcc", "-O1", "-fno-builtin", "-fno-omit-frame-pointer", "-o", load, "bench/alloc/testdata/load.c"},
	} {
		if out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", strings.Join(argv, " "), err, out)
		}
	}
	all := tools(fulgur, dir)
	all = slices.DeleteFunc(all, func(t tool) bool {
		if t.argv == nil {
			return false
		}
		_, err := exec.LookPath(t.argv[0])
		if err != nil {
			fmt.Fprintf(os.Stderr, "leaving out %s: %v\n", t.name, err)
		}
		return err != nil
	})
	times := make([][]float64, len(all))
	for range *rounds {
		for i, t := range all {
			took, err := t.measure(ctx, load, *pairs)
			if ended := (endedError{}); errors.As(err, &ended) {
				fmt.Fprintf(os.Stderr, "leaving out %s, which exited at once: %s\n", t.name, ended)
				continue
			}
			if err != nil {
				return fmt.Errorf("%s: %w", t.name, err)
			}
			times[i] = append(times[i], took/float64(*pairs))
		}
	}
	fmt.Print("| tool | ns per malloc and free | slowdown |\n|---|---|---|\n")
	alone := median(times[0])
	for i, t := range all {
		if len(times[i]) == 0 {
			continue
		}
		took := median(times[i])
		fmt.Printf("| %s | %.0f | %.1f |\n", t.name, took, took/alone)
	}
	return nil
}

func median(of []float64) float64 {
	slices.SortFunc(of, cmp.Compare)
	return of[(len(of)-1)/2]
}

// patience is how long a tool may take to attach, and the load to run.
const patience = 5 * time.Minute

// measure returns the load's CPU time in ns.
func (t tool) measure(ctx context.Context, load string, pairs int) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	command := []string{load, strconv.Itoa(pairs)}
	if t.awaits != "" {
		command = append(command, t.awaits)
	} else {
		command = append(slices.Clone(t.argv), command...)
	}
	c := exec.CommandContext(ctx, command[0], command[1:]...)
	var out, messages bytes.Buffer
	c.Stdout, c.Stderr = &out, &messages
	if err := c.Start(); err != nil {
		return 0, err
	}
	if t.awaits == "" {
		if err := c.Wait(); err != nil {
			return 0, fmt.Errorf("%w\n%s", err, &messages)
		}
		return timeOf(out.String())
	}
	argv := slices.Clone(t.argv)
	argv[slices.Index(argv, "PID")] = strconv.Itoa(c.Process.Pid)
	tracer := exec.CommandContext(ctx, argv[0], argv[1:]...)
	tracer.Stderr = &messages
	if err := tracer.Start(); err != nil {
		return 0, errors.Join(err, c.Process.Kill(), c.Wait())
	}
	loaded, traced := make(chan error, 1), make(chan struct{})
	go func() { loaded <- c.Wait() }()
	go func() {
		_ = tracer.Wait() // the exit code may report the interrupt
		close(traced)
	}()
	select {
	case <-traced:
		_ = c.Process.Kill() // it waits for the tool, or has ended meanwhile
		if <-loaded != nil {
			return 0, endedError{messages.String()}
		}
	case err := <-loaded:
		_ = tracer.Process.Signal(os.Interrupt) // it may have ended with its target
		<-traced
		if err != nil {
			return 0, fmt.Errorf("the load: %w", err)
		}
	}
	return timeOf(out.String())
}

// endedError is the output of a tool that exited before the load.
type endedError struct{ output string }

func (e endedError) Error() string { return e.output }

// timeOf returns the time that the load prints. heaptrack prints more.
func timeOf(output string) (float64, error) {
	for line := range strings.Lines(output) {
		if took, err := strconv.ParseFloat(strings.TrimSpace(line), 64); err == nil {
			return took, nil
		}
	}
	return 0, fmt.Errorf("the load prints no time: %s", output)
}
