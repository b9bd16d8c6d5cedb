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

// report holds the results.
type report struct {
	machine string
	rounds  int
	loads   []float64 // load averages of the machine during the rounds
	results []result
}

// result holds the results of a subject. Its first variant is the one without a profile.
type result struct {
	subject  string
	variants []variant
	slowdown slowdown
}

// write writes r as Markdown.
func (r report) write(w io.Writer) error {
	out := bufio.NewWriter(w) // keeps its first error until Flush
	fmt.Fprintf(out, `%s; load %.0f to %.0f. n = %d, interleaved. CPU time of a run: median (minimum – maximum). Changes
against no profile: median of the changes by round (95 %% interval, bootstrap). Share of the
change with llvm-bolt's instrumentation, with its interval. Compared with the instrumentation:
branches at places that the profile does not have, and wrong outcomes of the others.

`, r.machine, slices.Min(r.loads), slices.Max(r.loads), r.rounds)
	fmt.Fprintln(out, "| program | profile | CPU s | change | share | not seen | wrong | input |")
	fmt.Fprintln(out, "|---|---|---:|---:|---:|---:|---:|---|")
	for _, s := range r.results {
		for i, v := range s.variants {
			accuracy := " | "
			if v.accuracy != nil {
				accuracy = v.accuracy.String()
			}
			fmt.Fprintf(out, "| %s | %s | %.3f (%.3f – %.3f) | %s | %s | %s | %s |\n", s.subject, v.name, median(v.times).Seconds(),
				slices.Min(v.times).Seconds(), slices.Max(v.times).Seconds(), s.change(i), s.share(i), accuracy, v.note)
		}
	}
	fmt.Fprintln(out)
	for _, s := range r.results {
		if len(s.slowdown.alone) == 0 {
			continue
		}
		alone, stepped := median(s.slowdown.alone), median(s.slowdown.stepped)
		fmt.Fprintf(out, "With stepping at an overhead of 10 %%, the same work took %s %.2f s instead of %.2f s: %s (medians of %d); fulgur reported at most %.1f %%.\n",
			s.subject, stepped.Seconds(), alone.Seconds(), percent(stepped.Seconds()/alone.Seconds()-1), len(s.slowdown.alone), 100*slices.Max(s.slowdown.reported))
	}
	return out.Flush()
}

// change describes how much faster variant i is than the first one.
func (r result) change(i int) string {
	if i == 0 {
		return ""
	}
	statistic := func(rounds []int) float64 { return change(r.variants[i].times, r.variants[0].times, rounds) }
	n := len(r.variants[i].times)
	between := bootstrap(n, statistic)
	return fmt.Sprintf("%s (%s to %s)", percent(statistic(allRounds(n))), number(between.low), number(between.high))
}

// share describes the change with variant i as a share of the change with instrumentation,
// if instrumentation certainly makes the program faster.
func (r result) share(i int) string {
	instrumented := slices.IndexFunc(r.variants, func(v variant) bool { return v.file == instrumentedFile })
	if i == 0 || instrumented < 0 || i == instrumented {
		return ""
	}
	n, before := len(r.variants[i].times), r.variants[0].times
	best := func(rounds []int) float64 { return change(r.variants[instrumented].times, before, rounds) }
	if bootstrap(n, best).high >= 0 {
		return "–"
	}
	statistic := func(rounds []int) float64 { return change(r.variants[i].times, before, rounds) / best(rounds) }
	between := bootstrap(n, statistic)
	return minus(fmt.Sprintf("%.2f (%.2f to %.2f)", statistic(allRounds(n)), between.low, between.high))
}

// percent formats a share with its sign.
func percent(share float64) string { return number(share) + " %" }

// number formats a share in percent, without the unit.
func number(share float64) string { return minus(fmt.Sprintf("%+.1f", 100*share)) }

// minus replaces hyphens by minus signs.
func minus(s string) string { return strings.ReplaceAll(s, "-", "−") }

// loadAverage returns the machine's load average of the last minute.
func loadAverage() (load float64, err error) {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0, err
	}
	_, err = fmt.Sscan(string(text), &load)
	return load, err
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
	parts = append(parts, time.Now().Format("2 January 2006"), fmt.Sprintf("%d CPUs", runtime.NumCPU()))
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
