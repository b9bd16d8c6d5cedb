// Faults measures the cost of tracing page faults for a program that has as many as
// possible: it touches fresh memory page by page, alone and under fulgur faults, perf
// trace -F, perf record and bpftrace with the same stacks. See package storm.
//
// It needs root, taskset, chrt and Go, and leaves out tools that are not installed.
// Usage, at the root of the repository:
//
//	go run ./bench/faults [-rounds 3] [-pages 1000000]
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/bench/storm"
)

// touchVariable is the environment variable that makes this program the load. It holds
// the number of pages.
const touchVariable = "FULGUR_BENCH_TOUCH"

func main() {
	if pages := os.Getenv(touchVariable); pages != "" {
		if err := touch(pages); err != nil {
			fmt.Fprintln(os.Stderr, "touch", pages, "pages:", err)
			os.Exit(1)
		}
		return
	}
	var pages int
	storm.Storm{
		Operation:    "pages",
		Event:        "fault",
		PerOperation: 1,
		Flags: func(f *flag.FlagSet) {
			f.IntVar(&pages, "pages", 1_000_000, "how many pages are touched")
		},
		Tools: tools,
		Load:  func(ctx context.Context, _ string) (float64, error) { return toucher(ctx, pages) },
	}.Main()
}

// script is bpftrace's script. It counts the same as fulgur.
const script = `software:page-faults:1 { @[kstack, ustack, comm] = count(); } END { clear(@); }`

func tools(fulgur, dir string) []storm.Tool {
	return []storm.Tool{
		{Name: "fulgur faults", Argv: []string{fulgur, "faults", "-q", "-f"}},
		{Name: "fulgur faults --unwind fp", Argv: []string{fulgur, "faults", "-q", "-f", "--unwind", "fp"}},
		{Name: "perf trace -F all", Argv: []string{"perf", "trace", "-a", "-F", "all", "--no-syscalls", "-o", "/dev/null"}},
		{Name: "perf record -g", Argv: []string{"perf", "record", "-a", "-g", "-e", "page-faults", "-c", "1", "-o", filepath.Join(dir, "perf.data")}},
		{Name: "bpftrace", Argv: []string{"bpftrace", "-e", script}},
	}
}

// toucher runs this program as the load, with a real-time priority, so that other work of
// the machine does not interrupt it.
func toucher(ctx context.Context, pages int) (float64, error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	cmd := exec.CommandContext(ctx, "taskset", "-c", "0", "chrt", "-f", "1", self)
	cmd.Env = append(os.Environ(), touchVariable+"="+strconv.Itoa(pages))
	out, err := cmd.CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("the load: %w\n%s", err, out)
	}
	return strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
}

// touch touches pages of fresh memory, 4096 at a time, and prints the number of pages per
// second.
func touch(pages string) error {
	left, err := strconv.Atoi(pages)
	if err != nil {
		return err
	}
	const at = 4096 // pages
	all, page, begin := left, os.Getpagesize(), time.Now()
	for ; left > 0; left -= at {
		memory, err := unix.Mmap(-1, 0, at*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			return err
		}
		// This fails on a kernel without large pages.
		_ = unix.Madvise(memory, unix.MADV_NOHUGEPAGE)
		for i := 0; i < min(at, left)*page; i += page {
			memory[i] = 1
		}
		if err := unix.Munmap(memory); err != nil {
			return err
		}
	}
	_, err = fmt.Println(float64(all) / time.Since(begin).Seconds())
	return err
}
