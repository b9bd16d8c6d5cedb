package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// report holds the results. Its first variant is the one without a profile.
type report struct {
	machine  string
	rounds   int
	variants []variant
	slowdown slowdown
}

// write writes r as Markdown.
func (r report) write(w io.Writer) error {
	out := bufio.NewWriter(w) // keeps its first error until Flush
	fmt.Fprintf(out, "%s. The sqlite3 shell, n = %d, interleaved; CPU time of a run, median (minimum – maximum).\n\n", r.machine, r.rounds)
	fmt.Fprintln(out, "| profile | CPU s | change | input |")
	fmt.Fprintln(out, "|---|---:|---:|---|")
	baseline := median(r.variants[0].times)
	for _, v := range r.variants {
		fmt.Fprintf(out, "| %s | %.3f (%.3f – %.3f) | %s | %s |\n", v.name, median(v.times).Seconds(),
			slices.Min(v.times).Seconds(), slices.Max(v.times).Seconds(), change(median(v.times), baseline), v.note)
	}
	if len(r.slowdown.alone) == 0 {
		return out.Flush()
	}
	alone, stepped := median(r.slowdown.alone), median(r.slowdown.stepped)
	fmt.Fprintf(out, "\nWith stepping at an overhead of 10 %%, the same work took a process %.2f s instead of %.2f s: %s (medians of %d); fulgur reported at most %.1f %%.\n",
		stepped.Seconds(), alone.Seconds(), change(stepped, alone), len(r.slowdown.alone), 100*slices.Max(r.slowdown.reported))
	return out.Flush()
}

// change returns the difference of a from b, in percent of b.
func change(a, b time.Duration) string {
	return strings.Replace(fmt.Sprintf("%+.1f %%", 100*(a.Seconds()/b.Seconds()-1)), "-", "−", 1)
}

// median returns the median, the lower one of an even number.
func median(times []time.Duration) time.Duration {
	return slices.Sorted(slices.Values(times))[(len(times)-1)/2]
}

// describeMachine returns a line about the machine and the tools.
func describeMachine(ctx context.Context) string {
	var parts []string
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if _, rest, ok := strings.Cut(string(info), "model name\t: "); ok {
			name, _, _ := strings.Cut(rest, "\n")
			parts = append(parts, name)
		}
	}
	parts = append(parts, fmt.Sprintf("%d CPUs", runtime.NumCPU()))
	var uts unix.Utsname
	if unix.Uname(&uts) == nil {
		parts = append(parts, "Linux "+unix.ByteSliceToString(uts.Release[:]))
	}
	for _, argv := range [][]string{{"gcc", "--version"}, {llvm + "llvm-bolt", "--version"}} {
		if text, err := execute(ctx, argv...); err == nil {
			parts = append(parts, versionLine(text))
		}
	}
	return strings.Join(parts, ", ")
}

// versionLine returns the line that names a version.
func versionLine(text string) string {
	for line := range strings.Lines(text) {
		if strings.ContainsAny(line, "0123456789") {
			return strings.TrimSpace(line)
		}
	}
	return ""
}
