package main

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// tool is a program that reads addresses from standard input.
type tool struct {
	name string
	argv []string // without the file, which is the last argument
}

// findTools returns fulgur, llvm-symbolizer and the other installed tools.
func findTools() ([]tool, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	tools := []tool{{"fulgur", []string{self, "-child"}}}
	for _, t := range []tool{
		{"llvm-symbolizer", []string{"llvm-symbolizer-19", "-e"}},
		{"addr2line -i", []string{"addr2line", "-aCfi", "-e"}},
	} {
		if t.argv[0], err = exec.LookPath(t.argv[0]); err != nil {
			return nil, err
		}
		tools = append(tools, t)
	}
	return tools, nil
}

// cost is the cost of a tool.
type cost struct {
	wall, cpu time.Duration
	rss       int64 // peak, in bytes
}

// measure runs the tools in turn and returns their median costs.
func measure(ctx context.Context, tools []tool, s *subject, rounds int) ([]cost, error) {
	runs := make([][]cost, len(tools))
	for range rounds {
		for i, t := range tools {
			c, err := t.run(ctx, s)
			if err != nil {
				return nil, err
			}
			runs[i] = append(runs[i], c)
		}
	}
	medians := make([]cost, len(tools))
	for i, r := range runs {
		medians[i] = cost{
			wall: median(r, func(c cost) time.Duration { return c.wall }),
			cpu:  median(r, func(c cost) time.Duration { return c.cpu }),
			rss:  median(r, func(c cost) int64 { return c.rss }),
		}
	}
	return medians, nil
}

func median[T cmp.Ordered](runs []cost, figure func(cost) T) T {
	figures := make([]T, len(runs))
	for i, c := range runs {
		figures[i] = figure(c)
	}
	slices.Sort(figures)
	return figures[len(figures)/2]
}

// run looks up all addresses with the tool.
func (t tool) run(ctx context.Context, s *subject) (cost, error) {
	argv := append(slices.Clone(t.argv), s.path)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "GOGC=40") // fulgur's own setting
	cmd.Stdin = strings.NewReader(s.input)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	start := time.Now()
	if err := cmd.Run(); err != nil {
		return cost{}, fmt.Errorf("%s: %w\n%s", cmd, err, &stderr)
	}
	c := cost{wall: time.Since(start), cpu: cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()}
	if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		c.rss = usage.Maxrss << 10
	}
	return c, nil
}

// write writes the comparison as Markdown. The first two tools are fulgur and
// llvm-symbolizer.
func write(w io.Writer, s *subject, tools []tool, costs []cost, rounds int) error {
	out := bufio.NewWriter(w) // keeps its first error until Flush
	fmt.Fprintf(out, "%s: %d addresses, %.0f MB of debug information, medians of %d.\n\n",
		filepath.Base(s.path), s.count, float64(s.debugInfo)/1e6, rounds)
	fmt.Fprintln(out, "| tool | wall s | CPU s | addresses/s | peak RSS MB | wall ÷ fulgur's | RSS ÷ fulgur's |")
	fmt.Fprintln(out, "|---|---:|---:|---:|---:|---:|---:|")
	ours := costs[0]
	for i, t := range tools {
		c := costs[i]
		fmt.Fprintf(out, "| %s | %.2f | %.2f | %.0f | %.1f | %.1f× | %.1f× |\n", t.name, c.wall.Seconds(), c.cpu.Seconds(),
			float64(s.count)/c.wall.Seconds(), float64(c.rss)/1e6, c.wall.Seconds()/ours.wall.Seconds(), float64(c.rss)/float64(ours.rss))
	}
	time, memory := ours.wall.Seconds()/costs[1].wall.Seconds(), float64(ours.rss)/float64(s.debugInfo)
	fmt.Fprintln(out, "\n| aim | |\n|---|---|")
	fmt.Fprintf(out, "| at most a tenth of llvm-symbolizer's time | %s %.2f× |\n", mark(time <= timeShare), time)
	fmt.Fprintf(out, "| memory below a fifth of the debug information | %s %.2f× |\n\n", mark(memory < memoryShare), memory)
	return out.Flush()
}

func mark(met bool) string {
	if met {
		return "✓"
	}
	return "✗"
}
