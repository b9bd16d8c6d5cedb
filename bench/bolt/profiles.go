package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"
)

// By the names of Debian's links in PATH, perf2bolt behaves as llvm-bolt.
const llvm = "/usr/lib/llvm-22/bin/"

// layout holds the optimizations that llvm-bolt applies.
var layout = []string{"-reorder-blocks=ext-tsp", "-reorder-functions=cdsort", "-split-functions"}

// instrumentedFile is the base name of the files of llvm-bolt's instrumentation.
const instrumentedFile = "instrumented"

// way is a way to get a profile.
type way struct {
	name string
	file string // base name of its files
	// take takes a profile of a subject, and returns its path in llvm-bolt's format and a
	// note for the report. nil means no optimization.
	take func(ctx context.Context, base string) (fdata, note string, err error)
}

// variant is a subject optimized in one way.
type variant struct {
	way
	binary   string
	fdata    string // profile, "" if there is none
	accuracy *accuracy
	note     string
	times    []time.Duration // by round
}

// chosen returns the chosen ways for a subject. The first one has no profile.
func (b *bench) chosen(p prepared) []way {
	return slices.DeleteFunc(b.all(p), func(w way) bool {
		return w.take != nil && len(b.ways) > 0 && !slices.Contains(b.ways, w.file)
	})
}

// all returns all ways.
func (b *bench) all(p prepared) []way {
	minute := strconv.Itoa(b.seconds)
	fulgur := func(args ...string) func(context.Context, string) (string, string, error) {
		return func(ctx context.Context, base string) (string, string, error) { return b.sample(ctx, p, base, args) }
	}
	return []way{
		{name: "no profile: gcc -O2"},
		{"instrumented by llvm-bolt", instrumentedFile, p.instrument},
		{"counting, " + minute + " s at 5 %", "counting", fulgur("--branches", "counting", "--max-overhead", "5%", minute)},
		{"breakpoints, " + minute + " s at 5 %", "breakpoints", fulgur("--branches", "breakpoints", "--max-overhead", "5%", minute)},
		{"stepping at 50 %, until sufficient, at most 5 min", "sufficient", fulgur("--branches", "stepping", "--max-overhead", "50%")},
		{"stepping, " + minute + " s at 10 %", "minute", fulgur("--branches", "stepping", "--max-overhead", "10%", minute)},
		{"cpu-clock samples, " + minute + " s", "basic", fulgur(basic, minute)},
	}
}

// basic is the option for samples without branches.
const basic = "--basic"

// build takes a profile of a subject, and optimizes it with llvm-bolt and the profile.
func (b *bench) build(ctx context.Context, p prepared, w way) (variant, error) {
	v := variant{way: w, binary: p.binary}
	if w.take == nil {
		return v, nil
	}
	base := filepath.Join(b.dir, p.name+"."+w.file)
	v.binary, v.fdata = base+".bolt", base+".fdata"
	if b.again {
		v.note = "the profile of an earlier run"
		_, err := os.Stat(v.binary)
		return v, err
	}
	fdata, note, err := w.take(ctx, base)
	if err != nil {
		return v, err
	}
	v.note = note
	_, err = execute(ctx, append([]string{llvm + "llvm-bolt", p.binary, "-o", v.binary, "-data", fdata}, layout...)...)
	return v, err
}

// instrument counts branches with llvm-bolt's instrumentation.
func (p prepared) instrument(ctx context.Context, base string) (fdata, note string, err error) {
	binary, fdata := base+".counting", base+".fdata"
	if _, err := execute(ctx, llvm+"llvm-bolt", p.binary, "-o", binary, "-instrument", "-instrumentation-file="+fdata); err != nil {
		return "", "", err
	}
	r, err := p.once(ctx, binary, p.training)
	return fdata, fmt.Sprintf("every branch counted, %.1f s of CPU time for the load", r.cpu.Seconds()), err
}

// sample profiles a process with fulgur bolt while it repeats the training load, and
// converts the profile with perf2bolt.
func (b *bench) sample(ctx context.Context, p prepared, base string, args []string) (fdata, note string, err error) {
	target, err := p.repeat(ctx, p.binary, p.training)
	if err != nil {
		return "", "", err
	}
	defer target.kill()
	profile, fdata := base+".preagg", base+".fdata"
	cmd := exec.CommandContext(ctx, b.fulgur, append([]string{
		"bolt", "-p", strconv.Itoa(target.pid()), "--llvm", "22", "--stats", "json", "-o", profile}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	start := time.Now()
	if err := cmd.Run(); err != nil {
		return "", "", fmt.Errorf("%v: %w\n%s", cmd.Args, err, &stderr)
	}
	took := time.Since(start)
	s, err := readSummary(stderr.Bytes())
	if err != nil {
		return "", "", err
	}
	argv := []string{llvm + "perf2bolt", p.binary, "--pa", "-p", profile, "-o", fdata}
	if slices.Contains(args, basic) {
		argv = append(argv, "--basic-events")
	}
	_, err = execute(ctx, argv...)
	return fdata, fmt.Sprintf("%s in %.0f s", s.note(), took.Seconds()), err
}

// summary holds the fields of fulgur bolt --stats json that the benchmark uses.
type summary struct {
	Samples  uint64
	Records  uint64
	Binaries []struct {
		PerByte float64 `json:"taken_by_executable_bytes"`
		Unseen  float64 `json:"unseen_share"`
	}
	Stepping struct {
		MaxSlowdown float64 `json:"max_slowdown"`
	}
	Counting struct {
		Outcomes, Jumps uint64
		Windows         uint64
		Overhead        float64
		LongestStall    float64 `json:"longest_stall_seconds"`
	}
}

// readSummary reads the summary, and skips the lines before it.
func readSummary(stderr []byte) (s summary, err error) {
	at := bytes.IndexByte(stderr, '{')
	if at < 0 {
		return s, fmt.Errorf("no summary in:\n%s", stderr)
	}
	if err := json.NewDecoder(bytes.NewReader(stderr[at:])).Decode(&s); err != nil {
		return s, fmt.Errorf("read the summary: %w\n%s", err, stderr)
	}
	return s, nil
}

// note describes the profile.
func (s summary) note() string {
	if c := s.Counting; c.Outcomes > 0 && c.Windows == 0 {
		return fmt.Sprintf("%d outcomes of %d jumps, %.1f %% of the progress lost,", c.Outcomes, c.Jumps, 100*c.Overhead)
	} else if c.Outcomes > 0 {
		return fmt.Sprintf("%d outcomes of %d jumps, %.1f %% of the progress lost, longest stall %.1f ms,", c.Outcomes, c.Jumps, 100*c.Overhead, 1e3*c.LongestStall)
	}
	if s.Records == 0 || len(s.Binaries) == 0 {
		return fmt.Sprintf("%d samples", s.Samples)
	}
	b := s.Binaries[0]
	return fmt.Sprintf("%d branches, %.3f for each byte of code, %.1f %% of the execution not seen,", s.Records, b.PerByte, 100*b.Unseen)
}
