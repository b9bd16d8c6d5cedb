package e2e

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"fulgur/internal/bpf"
	"fulgur/internal/testenv"
	"fulgur/internal/testenv/stat"
)

// labelsPath is the path of testdata/labels.
var labelsPath string

// buildLabels builds testdata/labels without symbols, the first time, and returns its path.
func buildLabels(t *testing.T) string {
	t.Helper()
	building.Lock()
	defer building.Unlock()
	if labelsPath != "" {
		return labelsPath
	}
	program := filepath.Join(built, "labels")
	build := exec.Command(testenv.Tool(t, "go"), "build", "-ldflags=-s -w", "-o", program, "./testdata/labels")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", build, err, out)
	}
	labelsPath = program
	return program
}

// ownTimes returns the CPU times, or the elapsed times, that testdata/labels or testdata/context.c
// printed.
func ownTimes(t *testing.T, stdout string) map[string]float64 {
	t.Helper()
	values := map[string]float64{}
	for line := range strings.Lines(stdout) {
		var kind string
		var used float64
		if _, err := fmt.Sscan(line, &kind, &used); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		values[kind] = used
	}
	return values
}

// The samples of a Go program are divided among its labels as its CPU time is, by its own account.
func TestLabels(t *testing.T) {
	parallel(t)
	testenv.Root(t)
	program := buildLabels(t)
	file := filepath.Join(t.TempDir(), "labels.folded")
	_, own := measureReady(t, exec.Command(program, "0.5"), "profile", "-F", "997", "--by", "label=kind", "-o", file)
	compareShares(t, kindSamples(t, file), ownTimes(t, own))
}

// kindSamples returns the samples of each kind in folded stacks of testdata/labels.
func kindSamples(t *testing.T, file string) map[string]int {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	samples := map[string]int{}
	for stack, n := range folded(t, string(text)) {
		kind, frames, _ := strings.Cut(stack, ";")
		if kind == "[no kind]" {
			kind = "none"
		}
		if strings.Contains(frames, "main.burn") { // other functions are not in the program's account
			samples[kind] += n
		}
	}
	return samples
}

// Groups by one label need only its values: other labels that differ all the time cost nothing. A
// hint names the keys of labels if none is the wanted one.
func TestSingleLabel(t *testing.T) {
	parallel(t)
	testenv.Root(t)
	program := buildLabels(t)
	for key, hint := range map[string]string{"kind": "", "kin": "no sample has the label kin; some have kind, turn, worker"} {
		file := filepath.Join(t.TempDir(), "labels.folded")
		r, own := measureReady(t, exec.Command(program, "0.5", "unique"), "profile", "-F", "4999", "--by", "label="+key, "-o", file)
		if strings.Contains(r.stderr, "without their labels") {
			t.Error(r.stderr)
		}
		if !strings.Contains(r.stderr, hint) || hint == "" && strings.Contains(r.stderr, "no sample has") {
			t.Errorf("got this summary, want the hint %q:\n%s", hint, r.stderr)
		}
		if hint == "" {
			compareShares(t, kindSamples(t, file), ownTimes(t, own))
		}
	}
}

// Labels survive conversions between formats that have them, and group the samples of stored
// profiles.
func TestConvertLabels(t *testing.T) {
	parallel(t)
	testenv.Root(t)
	dir := t.TempDir()
	first, second, third := filepath.Join(dir, "a.pb.gz"), filepath.Join(dir, "b.otlp"), filepath.Join(dir, "c.pb.gz")
	_, own := measureReady(t, exec.Command(buildLabels(t), "0.5"), "profile", "-F", "997", "-o", first)
	for _, files := range [][2]string{{first, second}, {second, third}} {
		if c := fulgur(t, "convert", "-o", files[1], files[0]); c.code != 0 {
			t.Fatalf("exit code %d: %s", c.code, c.stderr)
		}
	}
	var before map[string]int
	for _, file := range []string{first, second, third} {
		grouped := filepath.Join(dir, "grouped.folded")
		if c := fulgur(t, "convert", "--by", "label=kind", "-o", grouped, file); c.code != 0 || c.stderr != "" {
			t.Fatalf("%s: exit code %d: %s", file, c.code, c.stderr)
		}
		got := kindSamples(t, grouped)
		if before == nil {
			before = got
			compareShares(t, got, ownTimes(t, own))
		}
		if !maps.Equal(got, before) {
			t.Errorf("%s: got samples %v, want %v", file, got, before)
		}
	}
	c := fulgur(t, "convert", "--by", "label=kin", "-o", filepath.Join(dir, "none.folded"), first)
	if hint := "no sample has the label kin; some have kind, turn, worker"; c.code != 0 || !strings.Contains(c.stderr, hint) {
		t.Errorf("exit code %d, got %q, want the hint %q", c.code, c.stderr, hint)
	}
}

// fulgur top shows groups before functions.
func TestTopLabels(t *testing.T) {
	parallel(t)
	testenv.Root(t)
	program := exec.Command(buildLabels(t), "600")
	startTarget(t, program)
	pid := strconv.Itoa(program.Process.Pid)
	r := sampleWork(t, time.Second, []string{pid}, "top", "-p", pid, "-F", "997", "--by", "label=kind", "--interval", "0.4", "--rows", "9")
	// The label k5 has half of the time, but an interval may have few samples.
	if r.code != 0 || !regexp.MustCompile(`(?m)^ *SAMPLES +SHARE +KIND\n +\d+ +\d+\.\d% +k5$`).MatchString(r.stdout) {
		t.Errorf("exit code %d, got\n%s%s", r.code, r.stdout, r.stderr)
	}
}

// compareShares checks that samples are divided as the times that a program measured itself. Its
// own bookkeeping takes up to a hundredth of them.
func compareShares(t *testing.T, samples map[string]int, times map[string]float64) {
	t.Helper()
	t.Logf("got samples %v, times by the program's own account %v", samples, times)
	if len(samples) != len(times) {
		t.Errorf("got labels %v, want %v", samples, times)
	}
	all, total := 0, 0.0
	for _, n := range samples {
		all += n
	}
	for _, used := range times {
		total += used
	}
	for kind, used := range times {
		due := stat.Binomial(all, used/total)
		due.Low -= all / 100
		due.High += all / 100
		due.Check(t, kind, samples[kind])
	}
}

// In a pprof file, samples have all labels of the program, even if each set is new. No sample is
// lost, whether or not its labels fit.
func TestUniqueLabels(t *testing.T) {
	parallel(t)
	testenv.Root(t)
	program := buildLabels(t)
	file := filepath.Join(t.TempDir(), "labels.pb.gz")
	r, printed := measureReady(t, exec.Command(program, "1", "unique"), "profile", "-F", "4999", "-o", file)
	p := readPprof(t, file)
	labeled, unlabeled, own := map[string]int{}, 0, ownTimes(t, printed)
	turns, sets, sent := map[string]bool{}, map[string]bool{}, 0
	for _, s := range p.Sample {
		burns := false
		for _, l := range s.Location {
			for _, line := range l.Line {
				if line.Function.Name == "[stack lost]" {
					t.Error("a stack was lost")
				}
				burns = burns || line.Function.Name == "main.burn"
			}
		}
		kind := s.Label["kind"]
		if len(kind) == 0 {
			if burns {
				unlabeled += int(s.Value[0])
			}
			continue
		}
		if len(s.Label["turn"]) != 1 || len(s.Label["worker"]) != 1 {
			t.Fatalf("got labels %v, want kind, turn and worker", s.Label)
		}
		turns[s.Label["turn"][0]] = true
		labeled[kind[0]] += int(s.Value[0])
		sent += int(unsafe.Offsetof(bpf.StackRecord{}.Frames)) + 8*len(s.Location)
		if set := fmt.Sprint(s.Label); !sets[set] {
			sets[set] = true
			sent += int(unsafe.Offsetof(bpf.LabelRecord{}.Labels) + 3*unsafe.Sizeof(bpf.LabelRecord{}.Labels[0]))
		}
	}
	t.Logf("%d turns, %v, %v samples without labels", len(turns), labeled, unlabeled)
	// Samples lose their labels beyond the limits of bpf/ring.h and bpf/labels.h, and the summary counts them.
	const window, most = 1 << 27, 128 << 10                                       // ns, bytes
	if windows := int(p.DurationNanos/window) + 2; sent > windows*(most+most/8) { // the kernel's sums are racy
		t.Errorf("got %d bytes of labels and their stacks, want at most %d in each of %d windows", sent, most, windows)
	}
	lost := 0
	if m := regexp.MustCompile(`(?m)^ +(\d+) (?:of \d+ )?samples? without (?:its|their) labels `).FindStringSubmatch(r.stderr); m != nil {
		lost, _ = strconv.Atoi(m[1])
	}
	all, total := unlabeled, 0.0
	for _, n := range labeled {
		all += n
	}
	for _, used := range own {
		total += used
	}
	// The summary also counts samples outside of burn.
	if most := stat.Binomial(all, own["none"]/total).High + all/100; unlabeled-lost > most {
		t.Errorf("%d of %d samples lack labels and %d lost them, chance allows %d\n%s", unlabeled, all, lost, most, r.stderr)
	}
	t.Logf("%d bytes of labels and their stacks, %d samples that lost them", sent, lost)
	delete(own, "none")
	compareShares(t, labeled, own)
	if len(turns) < 100 {
		t.Errorf("got %d values of turn, want at least 100", len(turns))
	}
}
