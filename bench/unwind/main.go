// Unwind measures the cost of whole stacks. It compares fulgur with unwind tables and
// with frame pointers only, bcc's profile, for which the kernel walks frame pointers, and
// perf record --call-graph dwarf, which copies stacks. The load is ./bench's without
// frame pointers, as distributions build programs, so only tools that unwind see whole
// stacks.
//
// A tool's cost for its target is the loss of work per second of CPU time, which includes
// the kernel's interrupts. Unwind also measures the cost of making the tables of some
// large files.
//
// It needs root, Go and g++. Usage, at the root of the repository:
//
//	go run ./bench/unwind [-rounds 3] [-seconds 5] [FILE...]
package main

import (
	"bufio"
	"bytes"
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
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"fulgur/bench/program"
)

// options holds the flags.
type options struct {
	rounds, seconds int
	files           []string
}

func main() {
	if path := os.Getenv(compileVar); path != "" {
		if err := compileOne(path); err != nil {
			fmt.Fprintln(os.Stderr, "bench/unwind:", err)
			os.Exit(1)
		}
		return
	}
	program.Main("bench/unwind", run)
}

func run(ctx context.Context, args []string) (err error) {
	var o options
	f := flag.NewFlagSet(filepath.Base(os.Args[0]), flag.ContinueOnError)
	f.IntVar(&o.rounds, "rounds", 3, "how often each tool runs; medians are shown")
	f.IntVar(&o.seconds, "seconds", 5, "how long each tool samples, at least 4")
	if err := f.Parse(args); err != nil {
		return err
	}
	if o.rounds < 1 || o.seconds < 4 {
		return errors.New("-rounds must be at least 1, -seconds at least 4")
	}
	if os.Geteuid() != 0 {
		return errors.New("profiling needs root")
	}
	o.files = f.Args()
	if len(o.files) == 0 {
		o.files = largeFiles()
	}
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		return fmt.Errorf("enable run time statistics of BPF programs: %w", err)
	}
	defer func() { err = errors.Join(err, stats.Close()) }()
	dir, err := os.MkdirTemp("", "fulgur-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := measureTools(ctx, o, dir); err != nil {
		return err
	}
	return measureFiles(ctx, o)
}

// tool is a profiler; argv returns its command line.
type tool struct {
	name string
	bpf  bool // whether it has BPF programs
	argv func(frequency, seconds, pid int, out string) []string
	// samples returns the number of samples in the tool's output, and the number of
	// samples with main in the stack, -1 if unknown.
	samples func(out string) (all, whole int, err error)
}

// findTools returns the available tools. It builds fulgur into dir.
func findTools(ctx context.Context, dir string) ([]tool, error) {
	built, err := program.Build(ctx, dir)
	if err != nil {
		return nil, err
	}
	fulgur := func(mode string) tool {
		return tool{"fulgur --unwind " + mode, true, func(frequency, seconds, pid int, out string) []string {
			return []string{
				built, "profile", "--no-inlines", "-e", "cpu-clock", "-F", strconv.Itoa(frequency), "-f",
				"--unwind", mode, "-p", strconv.Itoa(pid), "-o", out, strconv.Itoa(seconds),
			}
		}, countFolded}
	}
	tools := []tool{fulgur("auto"), fulgur("fp")}
	if bcc, err := exec.LookPath("profile"); err == nil {
		tools = append(tools, tool{"bcc profile", true, func(frequency, seconds, pid int, out string) []string {
			return []string{
				"/bin/sh", "-c", `exec "$0" "$@" > "$OUT"`, bcc,
				"-F", strconv.Itoa(frequency), "-f", "-p", strconv.Itoa(pid), strconv.Itoa(seconds),
			}
		}, countFolded})
	}
	if perf, err := exec.LookPath("perf"); err == nil {
		tools = append(tools, tool{"perf record --call-graph dwarf", false, func(frequency, seconds, pid int, out string) []string {
			return []string{
				perf, "record", "-q", "-e", "cpu-clock", "-F", strconv.Itoa(frequency), "--call-graph", "dwarf",
				"-p", strconv.Itoa(pid), "-o", out, "--", "sleep", strconv.Itoa(seconds),
			}
		}, func(out string) (all, whole int, err error) {
			// Without addresses, perf script does not unwind, which would
			// take minutes.
			text, err := exec.CommandContext(ctx, perf, "script", "-i", out, "-F", "tid").Output()
			return bytes.Count(text, []byte{'\n'}), -1, err
		}})
	}
	return tools, nil
}

// countFolded counts the samples of folded stacks.
func countFolded(out string) (all, whole int, err error) {
	text, err := os.ReadFile(out)
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(text)) {
		i := strings.LastIndexByte(line, ' ')
		n, err := strconv.Atoi(strings.TrimSpace(line[i+1:]))
		if err != nil {
			continue // not a stack
		}
		all += n
		if strings.Contains(line, ";main;") {
			whole += n
		}
	}
	return all, whole, nil
}

// figures are the results of a run.
type figures struct {
	rate           float64 // the load's work per second of CPU time
	cpu            float64 // seconds of the tool
	bpf            float64 // ns per run of its programs, for all processes
	samples, whole int
}

// measureTools runs the load with each tool and without a tool, in turn.
func measureTools(ctx context.Context, o options, dir string) error {
	tools, err := findTools(ctx, dir)
	if err != nil {
		return err
	}
	load := filepath.Join(dir, "load")
	if out, err := exec.CommandContext(ctx, "g++", "-O2", "-fomit-frame-pointer", "-o", load, "bench/workload/recurse.cpp").CombinedOutput(); err != nil {
		return fmt.Errorf("build the load: %w\n%s", err, out)
	}
	p, err := startLoad(load)
	if err != nil {
		return err
	}
	defer p.stop()
	fmt.Printf("| rate | tool | samples | with main | slowdown %% | tool's CPU s | BPF ns per run |\n|---|---|---:|---:|---:|---:|---:|\n")
	for _, frequency := range []int{99, 4999} {
		runs := make([][]figures, len(tools)+1)
		for round := range o.rounds {
			fmt.Fprintf(os.Stderr, "%d Hz, round %d of %d\n", frequency, round+1, o.rounds)
			idle := time.Now()
			time.Sleep(time.Duration(o.seconds) * time.Second / 2)
			runs[len(tools)] = append(runs[len(tools)], figures{rate: p.rate(idle, time.Now())})
			for i, t := range tools {
				got, err := p.measure(ctx, t, frequency, o.seconds, dir)
				if err != nil {
					return fmt.Errorf("%s: %w", t.name, err)
				}
				runs[i] = append(runs[i], got)
			}
		}
		alone := median(runs[len(tools)], func(f figures) float64 { return f.rate })
		for i, t := range tools {
			m := func(of func(figures) float64) float64 { return median(runs[i], of) }
			samples, whole := m(func(f figures) float64 { return float64(f.samples) }), m(func(f figures) float64 { return float64(f.whole) })
			share, bpf := "–", "–"
			if whole >= 0 {
				share = fmt.Sprintf("%.1f %%", 100*whole/max(samples, 1))
			}
			if ns := m(func(f figures) float64 { return f.bpf }); ns > 0 {
				bpf = fmt.Sprintf("%.0f", ns)
			}
			fmt.Printf("| %d Hz | %s | %.0f | %s | %.2f | %.2f | %s |\n", frequency, t.name, samples, share,
				100*(1-m(func(f figures) float64 { return f.rate })/alone), m(func(f figures) float64 { return f.cpu }), bpf)
		}
	}
	return nil
}

func median(runs []figures, of func(figures) float64) float64 {
	all := make([]float64, len(runs))
	for i, f := range runs {
		all[i] = of(f)
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// load is the profiled program with its output.
type load struct {
	cmd      *exec.Cmd
	mu       sync.Mutex
	reported []progress
}

type progress struct {
	at       time.Time
	done, ns float64
}

func startLoad(path string) (*load, error) {
	l := &load{cmd: exec.Command(path, "3600")}
	l.cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	out, err := l.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := l.cmd.Start(); err != nil {
		return nil, err
	}
	// Give it a CPU of its own, even on a busy machine.
	if err := unix.Setpriority(unix.PRIO_PROCESS, l.cmd.Process.Pid, -20); err != nil {
		return nil, errors.Join(err, l.cmd.Process.Kill())
	}
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p := progress{at: time.Now()}
			if _, err := fmt.Sscan(lines.Text(), &p.done, &p.ns); err == nil {
				l.mu.Lock()
				l.reported = append(l.reported, p)
				l.mu.Unlock()
			}
		}
	}()
	return l, nil
}

func (l *load) stop() {
	_ = l.cmd.Process.Kill()
	_ = l.cmd.Wait() // killed
}

// rate returns the load's work per second of CPU time between two points in time.
func (l *load) rate(from, to time.Time) float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	var first, last progress
	for _, p := range l.reported {
		if p.at.Before(from) || p.at.After(to) {
			continue
		}
		if first.ns == 0 {
			first = p
		}
		last = p
	}
	return (last.done - first.done) / (last.ns - first.ns) * 1e9
}

// measure runs a tool on the load.
func (l *load) measure(ctx context.Context, t tool, frequency, seconds int, dir string) (f figures, err error) {
	out := filepath.Join(dir, "out")
	argv := t.argv(frequency, seconds, l.cmd.Process.Pid, out)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "OUT="+out)
	start, others := time.Now(), lastProgram()
	if err := cmd.Start(); err != nil {
		return f, err
	}
	// By then it certainly samples.
	programs := perfPrograms(others)
	for t.bpf && len(programs) == 0 && time.Since(start) < time.Minute {
		time.Sleep(10 * time.Millisecond)
		programs = perfPrograms(others)
	}
	time.Sleep(1500 * time.Millisecond)
	if programs, err = again(programs); err != nil {
		return f, err
	}
	from := time.Now()
	to := from.Add(time.Duration(seconds)*time.Second - 2500*time.Millisecond)
	time.Sleep(time.Until(to))
	if f.bpf, err = nsPerRun(programs); err != nil {
		return f, err
	}
	f.rate = l.rate(from, to)
	if err := cmd.Wait(); err != nil {
		return f, err
	}
	f.cpu = (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()
	f.samples, f.whole, err = t.samples(out)
	return f, errors.Join(err, os.RemoveAll(out))
}
