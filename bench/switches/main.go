// Switches measures what watching threads leave the CPU costs those who do so
// as often as a machine can: two processes on one CPU that send each other a byte
// (perf bench sched pipe), alone and under fulgur offcpu, libbpf-tools'
// offcputime and a bpftrace script with the same stacks. They run in turn, round
// after round, and medians are shown.
//
// It needs root, perf, taskset, chrt and Go, and for bpftrace tracefs; what else
// is not installed is left out.
// Usage, at the root of the repository:
//
//	go run ./bench/switches [-rounds 3] [-operations 400000]
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
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// settle is how long a tool is given to begin, and the machine to end it.
const settle = 3 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench/switches:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) (err error) {
	f := flag.NewFlagSet(filepath.Base(os.Args[0]), flag.ContinueOnError)
	rounds := f.Int("rounds", 3, "how often each tool runs; medians are shown")
	operations := f.Int("operations", 400_000, "how often a byte goes to and fro")
	if err := f.Parse(args); err != nil {
		return err
	}
	if *rounds < 1 || *operations < 1 {
		return errors.New("-rounds and -operations must be at least 1")
	}
	dir, err := os.MkdirTemp("", "fulgur-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	tools, err := findTools(ctx, dir)
	if err != nil {
		return err
	}
	rates := make([][]float64, len(tools))
	for range *rounds {
		for i, t := range tools {
			rate, err := t.measure(ctx, *operations)
			var ended endedError
			if errors.As(err, &ended) {
				fmt.Fprintf(os.Stderr, "%s is left out, as it ended at once: %s\n", t.name, ended)
				continue
			}
			if err != nil {
				return fmt.Errorf("%s: %w", t.name, err)
			}
			rates[i] = append(rates[i], rate)
		}
	}
	fmt.Println("| under | operations/s | ns a switch more |\n|---|---|---|")
	alone := median(rates[0])
	for i, t := range tools {
		if len(rates[i]) == 0 {
			continue
		}
		rate := median(rates[i])
		// Two switches make an operation.
		fmt.Printf("| %s | %.0f | %.0f |\n", t.name, rate, (1e9/rate-1e9/alone)/2)
	}
	return nil
}

func median(rates []float64) float64 {
	slices.SortFunc(rates, cmp.Compare)
	return rates[(len(rates)-1)/2]
}

// tool is a program that watches the whole system until it is interrupted; none
// for nobody who watches.
type tool struct {
	name string
	argv []string
}

// script is what offcputime does, for bpftrace.
const script = `tracepoint:sched:sched_switch {
	if (args->prev_pid != 0) {
		@start[args->prev_pid] = nsecs;
		@kernel[args->prev_pid] = kstack;
		@user[args->prev_pid] = ustack;
	}
	if (@start[args->next_pid] != 0) {
		@off[@kernel[args->next_pid], @user[args->next_pid], args->next_comm] = sum(nsecs - @start[args->next_pid]);
		delete(@start[args->next_pid]);
	}
}
END { clear(@start); clear(@kernel); clear(@user); clear(@off); }`

// findTools builds fulgur in dir, and looks for those that it is compared with.
func findTools(ctx context.Context, dir string) ([]tool, error) {
	fulgur := filepath.Join(dir, "fulgur")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", fulgur, "./cmd/fulgur").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build fulgur: %w\n%s", err, out)
	}
	tools := []tool{{name: "nothing"}}
	for _, t := range []tool{
		{"fulgur offcpu", []string{fulgur, "offcpu", "-q", "-f"}},
		{"fulgur offcpu -K", []string{fulgur, "offcpu", "-q", "-f", "-K"}},
		{"offcputime", []string{"offcputime", "60"}},
		{"bpftrace", []string{"bpftrace", "-e", script}},
	} {
		path, err := exec.LookPath(t.argv[0])
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s is left out: %v\n", t.name, err)
			continue
		}
		t.argv[0] = path
		tools = append(tools, t)
	}
	return tools, nil
}

// endedError is what a tool said that did not wait to be interrupted.
type endedError string

func (e endedError) Error() string { return string(e) }

// measure returns how many operations a second the two processes reach.
func (t tool) measure(ctx context.Context, operations int) (float64, error) {
	if t.argv == nil {
		return storm(ctx, operations)
	}
	cmd := exec.CommandContext(ctx, t.argv[0], t.argv[1:]...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // some say with their exit code that they were interrupted
		close(ended)
	}()
	time.Sleep(settle)
	rate, err := storm(ctx, operations)
	select {
	case <-ended:
		return 0, endedError(stderr.String())
	default:
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		return 0, err
	}
	<-ended
	time.Sleep(settle)
	return rate, err
}

var perSecond = regexp.MustCompile(`(\d+) ops/sec`)

// storm runs the two processes, with a real-time priority: what else the machine
// does must not come in between.
func storm(ctx context.Context, operations int) (float64, error) {
	out, err := exec.CommandContext(ctx, "taskset", "-c", "0", "chrt", "-f", "1", "perf", "bench", "sched", "pipe", "-l", strconv.Itoa(operations)).CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("perf bench: %w\n%s", err, out)
	}
	found := perSecond.FindSubmatch(out)
	if found == nil {
		return 0, fmt.Errorf("perf bench tells no rate: %s", out)
	}
	return strconv.ParseFloat(string(found[1]), 64)
}
