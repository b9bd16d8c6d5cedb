package e2e

import (
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"fulgur/internal/testenv"
	"fulgur/internal/testenv/stat"
)

// leaves counts the samples of a command by the innermost function.
type leaves map[string]int

func (l leaves) total() (sum int) {
	for _, n := range l {
		sum += n
	}
	return sum
}

// foldedLeaves returns the leaves of comm in folded stacks.
func foldedLeaves(stacks map[string]int, comm string) leaves {
	l := leaves{}
	for stack, n := range stacks {
		if frames := strings.Split(stack, ";"); frames[0] == comm {
			l[frames[len(frames)-1]] += n
		}
	}
	return l
}

// scriptLeaves returns the leaves of comm in the output of perf script: for each
// sample, a line with the command's name, a line for each frame, innermost first,
// and an empty line.
func scriptLeaves(s, comm string) leaves {
	l := leaves{}
	for sample := range strings.SplitSeq(s, "\n\n") {
		name, frames, _ := strings.Cut(strings.TrimLeft(sample, "\n"), "\n")
		if strings.TrimSpace(name) != comm {
			continue
		}
		leaf, _, _ := strings.Cut(frames, "\n")
		_, function, _ := strings.Cut(strings.TrimSpace(leaf), " ")
		l[function]++
	}
	return l
}

// sampleWithBoth samples the same run of a program with fulgur and perf, from its
// first instruction to its last. It returns the leaves of both and fulgur's summary.
func sampleWithBoth(t *testing.T, frequency int, argv ...string) (ours, theirs leaves, summary string) {
	t.Helper()
	dir := t.TempDir()
	out, data := filepath.Join(dir, "out.folded"), filepath.Join(dir, "perf.data")
	perf, rate := testenv.Tool(t, "perf"), strconv.Itoa(frequency)
	r := fulgur(t, append([]string{"profile", "-e", "cpu-clock", "-F", rate, "-o", out, "--",
		perf, "record", "-q", "-e", "cpu-clock", "-F", rate, "-g", "-o", data}, argv...)...)
	if r.code != 0 {
		t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
	}
	script, err := exec.Command(perf, "script", "-i", data, "-F", "comm,ip,sym").Output()
	if err != nil {
		t.Fatal(err)
	}
	comm := filepath.Base(argv[0])
	return foldedLeaves(readFolded(t, out), comm), scriptLeaves(string(script), comm), r.stderr
}

// For a program that divides its time in known shares, fulgur's counts match perf's,
// and the program's CPU time.
func TestCountsAsPerf(t *testing.T) {
	testenv.Root(t)
	testenv.Tool(t, "perf")
	const frequency = 999
	times := filepath.Join(t.TempDir(), "times")
	ours, theirs, summary := sampleWithBoth(t, frequency, compile(t, "shares.c", "shares", "-static"), times)
	t.Logf("fulgur %d: %v", ours.total(), ours)
	t.Logf("perf %d: %v", theirs.total(), theirs)
	functions := []string{"most", "some", "little"}
	reports := strings.Split(read(t, times), "\n")
	inThree := func(l leaves) int { return l["most"] + l["some"] + l["little"] }
	for i, function := range functions {
		checkTicks(t, function, ours[function], parseWork(t, reports[i]), frequency, summary)
		stat.Split(ours[function]+theirs[function], float64(inThree(ours))/float64(inThree(theirs))).
			Check(t, "of fulgur's and perf's samples in "+function+" fulgur's", ours[function])
	}
}
