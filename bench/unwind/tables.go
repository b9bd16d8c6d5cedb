package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/internal/symbols/elffile"
	"fulgur/internal/unwind"
)

// compileVar names the environment variable that makes this program compile the
// table of one file, so that its memory can be measured alone.
const compileVar = "BENCH_UNWIND_COMPILE"

// largeFiles returns the paths of some well-known large files that exist.
func largeFiles() []string {
	var files []string
	for _, pattern := range []string{
		"/lib/*-linux-gnu/libc.so.6", "/usr/lib/*-linux-gnu/libLLVM.so.19.1",
		"/usr/lib/*-linux-gnu/libgmp.so.10", "/usr/lib/*-linux-gnu/libx265.so.*", "/usr/lib/*-linux-gnu/libavcodec.so.5?",
		"/usr/bin/node", "/usr/lib/chromium/chromium",
	} {
		found, err := filepath.Glob(pattern)
		if err == nil {
			files = append(files, found...)
		}
	}
	return files
}

// table holds the cost of making a table.
type table struct {
	Size, Source int64
	Rows, Rules  int
	Bytes        int
	Seconds      float64 // CPU time
	Instructions int     // executed for rules from code
	Peak         uint64  // resident bytes, including this program's own
}

// compileOne compiles the table of the file at path and writes its cost.
func compileOne(path string) error {
	start := cpuTime()
	f, err := elffile.Open(path)
	if err != nil {
		return err
	}
	t, err := unwind.Compile(f, unwind.Options{})
	if err != nil {
		return err
	}
	took := table{
		Size: f.Size(), Source: t.Stats.Source, Rows: len(t.Rows), Rules: len(t.Rules), Bytes: t.Bytes(),
		Seconds: (cpuTime() - start).Seconds(), Instructions: t.Stats.Instructions,
	}
	if took.Peak, err = peakResident(); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(took)
}

// cpuTime returns the CPU time of this process.
func cpuTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t); err != nil {
		panic(err) // the clock always exists
	}
	return time.Duration(t.Nano())
}

func peakResident() (uint64, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	_, value, _ := strings.Cut(string(status), "\nVmHWM:")
	kib, _, _ := strings.Cut(strings.TrimSpace(value), " ")
	n, err := strconv.ParseUint(kib, 10, 64)
	return n << 10, err
}

// measureFiles makes the tables of files.
func measureFiles(ctx context.Context, o options) error {
	fmt.Printf("\n| file | MB | .eh_frame MB | rows | rules | table MB | bytes per row | of .eh_frame | instructions of code | CPU ms | peak MB |\n|---|%s\n", strings.Repeat("---:|", 10))
	self, err := os.Executable()
	if err != nil {
		return err
	}
	measure := func(path string) (t table, err error) {
		var runs []table
		for range o.rounds {
			cmd := exec.CommandContext(ctx, self)
			cmd.Env = append(os.Environ(), compileVar+"="+path)
			cmd.Stderr = os.Stderr
			out, err := cmd.Output()
			if err != nil {
				return t, fmt.Errorf("make the table of %s: %w", path, err)
			}
			if err := json.Unmarshal(out, &t); err != nil {
				return t, err
			}
			runs = append(runs, t)
		}
		slices.SortFunc(runs, func(a, b table) int { return int(1e9 * (a.Seconds - b.Seconds)) })
		return runs[len(runs)/2], nil
	}
	for _, path := range o.files {
		t, err := measure(path)
		if err != nil {
			return err
		}
		fmt.Printf("| %s | %.1f | %.2f | %d | %d | %.2f | %.2f | %.2f× | %d | %.0f | %.0f |\n",
			filepath.Base(path), mega(t.Size), mega(t.Source), t.Rows, t.Rules, mega(t.Bytes),
			float64(t.Bytes)/float64(t.Rows), float64(t.Bytes)/float64(t.Source), t.Instructions, 1e3*t.Seconds, mega(t.Peak))
	}
	return nil
}

func mega[T int | int64 | uint64](n T) float64 { return float64(n) / 1e6 }
