package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	pprof "github.com/google/pprof/profile"

	"fulgur/internal/testenv"
)

// sideOf has the times of a side in ns, by what threads do and by the part of the request.
type sideOf struct {
	intervals                         int
	total, running, runnable, waiting int
	parts                             map[string]int // off the CPU in parts, and on the CPU if there are samples
	off                               map[string]int
}

// slowParts are the functions of testdata/slow.c, one for each kind of request.
var slowParts = []string{"quick_part", "nap_part", "lock_part", "spin_part", "share_part"}

// readSides reads both sides of a pprof file.
func readSides(t *testing.T, path string) (slow, others sideOf) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p, err := pprof.Parse(f)
	if err != nil {
		t.Fatal(err)
	}
	index := map[string]int{}
	for i, v := range p.SampleType {
		index[v.Type] = i
	}
	slow.parts, slow.off, others.parts, others.off = map[string]int{}, map[string]int{}, map[string]int{}, map[string]int{}
	for _, s := range p.Sample {
		var names []string // leaf first
		for _, l := range s.Location {
			for _, line := range l.Line {
				names = append(names, line.Function.Name)
			}
		}
		slow.intervals += int(s.Value[index["slow intervals"]])
		others.intervals += int(s.Value[index["intervals"]] - s.Value[index["slow intervals"]])
		for _, side := range []struct {
			*sideOf
			value string
		}{{&slow, "slow"}, {&others, "others"}} {
			n := int(s.Value[index[side.value]])
			side.total += n
			on := false
			switch top := names[0]; {
			case top == "[runnable]" || top == "[preempted]" || top == "[yield]":
				side.runnable += n
			case strings.HasPrefix(top, "[") && top != "[running]":
				side.waiting += n
			default:
				on = true
				side.running += n
			}
			for _, part := range slowParts {
				if slices.Contains(names, part) {
					side.parts[part] += n
					if !on {
						side.off[part] += n
					}
				}
			}
		}
	}
	return slow, others
}

// switchTime is the most that a switch takes, in ns, by which the clocks of threads and of switches differ.
const switchTime = 20_000

// neitherSide matches what the summary says about intervals on neither side.
var neitherSide = regexp.MustCompile(`on neither side: (\d+) interval`)

// The slow side has exactly the requests that the program delays, and each kind of time agrees with the
// program's own account.
func TestSlow(t *testing.T) {
	testenv.EveryKernel(t)
	testenv.Root(t)
	slow := compile(t, "slow.c", "slow", "-pthread")
	out := filepath.Join(t.TempDir(), "out.pb.gz")
	r := fulgur(t, "slow", "-e", "uprobe:"+slow+":handle", "--over", "20ms", "-o", out, "--", slow)
	if r.code != 0 {
		t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
	}
	checkSlow(t, r, out)
}

// checkSlow compares a profile with the account of testdata/slow.c.
func checkSlow(t *testing.T, r result, out string) {
	t.Helper()
	own := numbers(t, r.stdout)
	slow, others := readSides(t, out)
	// The kernel does not report each switch in a virtual machine. Such intervals are on neither side.
	unseen := 0
	for _, m := range neitherSide.FindAllStringSubmatch(r.stderr, -1) {
		n, err := strconv.Atoi(m[1])
		if err != nil {
			t.Fatal(err)
		}
		unseen += n
	}
	if unseen*100 > own["requests"] {
		t.Errorf("%d of %d requests are on neither side", unseen, own["requests"])
	}
	between := func(what string, got, least, most int) {
		t.Helper()
		if got < least || got > most {
			t.Errorf("%s: got %d, want %d to %d", what, got, least, most)
		}
	}
	missing := unseen * own["longest"] // at most
	between("slow requests", slow.intervals, own["least"]-unseen, own["most"])
	between("requests", slow.intervals+others.intervals, own["requests"]-unseen, own["requests"])
	between("time of slow requests", slow.total, own["least_time"]-missing, own["most_time"])

	// The thread's CPU clock excludes the time that the host and interrupts took. What a switch takes belongs
	// to one thread or the other.
	stolen, switches := own["stolen"], own["switches"]*switchTime
	slack := func(n int) int { return n/50 + missing + stolen + switches }
	if !testenv.InVM() { // the clock of the scheduler has another rate in emulated machines
		between("running", slow.running, own["least_cpu"]-slack(own["least_cpu"])+stolen, own["most_cpu"]+slack(own["most_cpu"]))
		between("runnable", slow.runnable, own["delays"]-slack(own["delays"]), own["delays"]+slack(own["delays"]))
	}
	between("off the CPU in nap_part", slow.off["nap_part"], own["least_nap"]-own["least_nap"]/50-missing-stolen, own["most_nap"])
	between("off the CPU in lock_part", slow.off["lock_part"], own["least_lock"]-own["least_lock"]/50-missing-stolen, own["most_lock"])

	if got := slow.running + slow.runnable + slow.waiting; got != slow.total {
		t.Errorf("got a sum of %d, want %d", got, slow.total)
	}

	// No request that was delayed is on the other side, nor is one that was not on this side, unless the
	// machine delayed it as long.
	for _, part := range slowParts[1:] {
		if n := others.parts[part]; n != 0 {
			t.Errorf("got %d ns in %s on the other side", n, part)
		}
	}
	between("time of quick requests on the slow side", slow.parts["quick_part"], 0, own["most_quick"])
}
