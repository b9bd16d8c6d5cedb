package e2e

import (
	"math"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"fulgur/internal/testenv"
)

// leaves counts the samples of a command by the function that they are in.
type leaves map[string]int

func (l leaves) total() (sum int) {
	for _, n := range l {
		sum += n
	}
	return sum
}

func (l leaves) share(function string) float64 {
	return float64(l[function]) / float64(l.total())
}

// foldedLeaves are those of comm in folded stacks.
func foldedLeaves(stacks map[string]int, comm string) leaves {
	l := leaves{}
	for stack, n := range stacks {
		if frames := strings.Split(stack, ";"); frames[0] == comm {
			l[frames[len(frames)-1]] += n
		}
	}
	return l
}

// scriptLeaves are those of comm in what perf script writes: for each sample a
// line with the command's name, then a line for each frame, innermost first,
// then an empty one.
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

// sampleWithBoth has fulgur and perf sample the same run of a program, from
// its first instruction to its last.
func sampleWithBoth(t *testing.T, path string) (fulgur, perf leaves) {
	t.Helper()
	data := filepath.Join(t.TempDir(), "perf.data")
	perfPath := testenv.Tool(t, "perf")
	// With a real-time priority little else takes the program's place: the two
	// sample at different moments, so each time adds to what they differ by.
	stacks := profile(t, []string{"-e", "cpu-clock", "-F", "999"},
		perfPath, "record", "-q", "-e", "cpu-clock", "-F", "999", "-g", "-o", data, testenv.Tool(t, "chrt"), "--fifo", "1", path)
	script, err := exec.Command(perfPath, "script", "-i", data, "-F", "comm,ip,sym").Output()
	if err != nil {
		t.Fatal(err)
	}
	comm := filepath.Base(path)
	return foldedLeaves(stacks, comm), scriptLeaves(string(script), comm)
}

// On a program that divides its time in known shares fulgur counts what perf
// counts: each function within a hundredth of all samples, and all samples
// within one.
func TestCountsAsPerf(t *testing.T) {
	testenv.Root(t)
	testenv.Tool(t, "perf")
	path := compile(t, "shares.c", "shares", "-static")
	const tolerance = 0.01
	agree := func() bool {
		fulgur, perf := sampleWithBoth(t, path)
		t.Logf("fulgur %d: %v", fulgur.total(), fulgur)
		t.Logf("perf %d: %v", perf.total(), perf)
		if perf.total() < 500 {
			t.Fatalf("perf has %d samples, too few to compare", perf.total())
		}
		agree := math.Abs(float64(fulgur.total()-perf.total())) <= tolerance*float64(perf.total())
		for _, function := range []string{"most", "some", "little"} {
			agree = agree && math.Abs(fulgur.share(function)-perf.share(function)) <= tolerance
		}
		return agree
	}
	for range 2 { // the first may have been disturbed
		if agree() {
			return
		}
	}
	t.Error("fulgur's counts are not perf's, twice")
}
