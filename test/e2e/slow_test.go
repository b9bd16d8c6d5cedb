package e2e

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	pprof "github.com/google/pprof/profile"

	"fulgur/internal/testenv"
)

// sideOf has the times of a side in ns, by what threads do and by the part of the request.
type sideOf struct {
	intervals                         int
	total, running, runnable, waiting int
	parts                             map[string]int // off the CPU in parts, and on the CPU if there are samples
	off                               map[string]int
	lock, unlocked                    int // waits in lock_part, and those of them that the function hold ended
}

// slowParts are the functions of testdata/slow.c, one for each kind of request.
var slowParts = []string{"quick_part", "nap_part", "lock_part", "spin_part", "share_part", "read_part"}

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
		var waker []string
		if i := slices.Index(names, "[woken by]"); i >= 0 {
			waker, names = names[:i], names[i+1:]
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
				if slices.Contains(names, "lock_part") {
					side.lock += n
					if slices.Contains(waker, "hold") {
						side.unlocked += n
					}
				}
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
	dir := t.TempDir()
	file, lengths, out := fileToRead(t, dir), filepath.Join(dir, "lengths"), filepath.Join(dir, "out.pb.gz")
	r := fulgur(t, "slow", "-e", "uprobe:"+slow+":handle", "--over", "20ms", "--show", "arg0", "--list", "64", "--waker-stacks", "-o", out, "--", slow, file, lengths)
	if r.code != 0 {
		t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
	}
	checkSlow(t, r, out)
	checkSlowest(t, numbers(t, r.stdout), out)
	if slow, _ := readSides(t, out); slow.unlocked < slow.lock-slow.lock/50 || slow.lock == 0 {
		t.Errorf("the holder of the lock ended %d ns of waits for it, want %d", slow.unlocked, slow.lock)
	}
}

// fileToRead returns a file for testdata/slow.c to read.
func fileToRead(t *testing.T, dir string) string {
	t.Helper()
	file := filepath.Join(dir, "data")
	if err := os.WriteFile(file, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// slowest are the slowest intervals of a report, as JSON.
type slowest struct {
	Slowest []struct {
		Length   float64           `json:"length_seconds"`
		Running  float64           `json:"running_seconds"`
		Runnable float64           `json:"runnable_seconds"`
		Waiting  float64           `json:"waiting_seconds"`
		Slow     bool              `json:"slow"`
		Task     string            `json:"name"`
		Fields   map[string]string `json:"fields"`
	} `json:"slowest"`
}

// slowestOf returns the slowest intervals in a file.
func slowestOf(t *testing.T, path string) (s slowest) {
	t.Helper()
	r := fulgur(t, "report", "--format", "json", path)
	if err := json.Unmarshal([]byte(r.stdout), &s); err != nil {
		t.Fatalf("%v: %s", err, r.stderr)
	}
	return s
}

// checkSlowest compares the list of the slowest intervals with the account of testdata/slow.c.
func checkSlowest(t *testing.T, own map[string]int, out string) {
	t.Helper()
	list := slowestOf(t, out)
	if len(list.Slowest) != 64 {
		t.Fatalf("got %d of the slowest intervals, want 64", len(list.Slowest))
	}
	slow, others := readSides(t, out)
	if n := slow.intervals + others.intervals; n < 64 {
		t.Fatalf("only %d intervals", n)
	}
	const delay = 0.98 * 0.030
	listed, before := 0, list.Slowest[0].Length
	for i, s := range list.Slowest {
		if s.Length > before || s.Length*1e9 > float64(own["longest"]) {
			t.Errorf("row %d: %v s long, want at most %v s, as before, and %d ns", i, s.Length, before, own["longest"])
		}
		before = s.Length
		if math.Abs(s.Running+s.Runnable+s.Waiting-s.Length) > 1e-9 {
			t.Errorf("row %d: got parts of %v, %v and %v s of %v s", i, s.Running, s.Runnable, s.Waiting, s.Length)
		}
		if s.Slow != (s.Length >= 0.020) || s.Task != "slow" {
			t.Errorf("row %d: %v s of %s: slow is %t", i, s.Length, s.Task, s.Slow)
		}
		if s.Slow {
			listed++
		}
		// What the program delayed on purpose, by its own number of the kind.
		switch kind := s.Fields["arg0"]; kind {
		case "0": // delayed by the machine, if at all
		case "1", "2":
			least := delay
			if kind == "2" || testenv.InVM() { // the lock may have been held for a while, and clocks of emulated CPUs differ
				least = s.Length / 2
			}
			if s.Waiting+s.Runnable < least {
				t.Errorf("row %d of kind %s: off the CPU for %v s, want at least %v s", i, kind, s.Waiting+s.Runnable, least)
			}
		case "3", "4", "5":
			if kind != "5" && !testenv.InVM() && s.Running < delay {
				t.Errorf("row %d of kind %s: ran for %v s, want at least %v s", i, kind, s.Running, delay)
			}
		default:
			t.Errorf("row %d: got kind %q", i, kind)
		}
	}
	if want := min(slow.intervals, 64); listed != want {
		t.Errorf("got %d slow intervals in the list, want %d", listed, want)
	}
	page := filepath.Join(t.TempDir(), "out.html")
	if r := fulgur(t, "convert", "-o", page, out); r.code != 0 {
		t.Fatal(r.stderr)
	}
	if diff := cmp.Diff(list, slowestOf(t, page)); diff != "" {
		t.Errorf("converted to a page: -want +got:\n%s", diff)
	}
}

// atTheEnd matches the bound of slow intervals in the summary.
var atTheEnd = regexp.MustCompile(`slow at the end: ([0-9.]+) (ns|µs|ms|s) or longer`)

// At most the given share of the program's own lengths reach the bound that fulgur found, and with the next lower
// bound, an eighth below, more would. It was found at some time, when the program had handled a part of the requests.
func TestSlowestShare(t *testing.T) {
	testenv.OneKernel(t)
	testenv.Root(t)
	slow := compile(t, "slow.c", "slow", "-pthread")
	dir := t.TempDir()
	lengths := filepath.Join(dir, "lengths")
	const (
		share  = 0.03
		enough = 334 // intervals, from which on the bound is known: ten of them are slow
	)
	r := fulgur(t, "slow", "-e", "uprobe:"+slow+":handle", "--slowest", "3%", "-o", filepath.Join(dir, "out.pb.gz"), "--", slow, fileToRead(t, dir), lengths)
	found := atTheEnd.FindStringSubmatch(r.stderr)
	if r.code != 0 || found == nil {
		t.Fatalf("exit code %d, no bound of slow intervals: %s", r.code, r.stderr)
	}
	bound, err := strconv.ParseFloat(found[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	bound *= map[string]float64{"ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9}[found[2]]
	text, err := os.ReadFile(lengths)
	if err != nil {
		t.Fatal(err)
	}
	const rounding = 0.01 // of the bound in the summary
	n, reach, near, ok := 0, 0, 0, false
	for line := range strings.Lines(string(text)) {
		var inside, outside float64
		if _, err := fmt.Sscan(line, &inside, &outside); err != nil {
			t.Fatal(err)
		}
		n++
		if inside >= bound*(1+rounding) {
			reach++
		}
		if outside >= bound*(1-rounding)*7/8 {
			near++
		}
		ok = ok || n >= enough && float64(reach) <= share*float64(n) && float64(near) > share*float64(n)
	}
	if n != numbers(t, r.stdout)["requests"] || !ok {
		t.Errorf("%d of %d requests take %.0f ns or longer, and %d an eighth less: not the slowest %v", reach, n, bound, near, share)
	}
	slowSide, others := readSides(t, filepath.Join(dir, "out.pb.gz"))
	undecided := 0
	for _, m := range neitherSide.FindAllStringSubmatch(r.stderr, -1) {
		k, _ := strconv.Atoi(m[1])
		undecided += k
	}
	if got := slowSide.intervals + others.intervals + undecided; got != n || slowSide.intervals == 0 || undecided < enough {
		t.Errorf("got %d slow, %d others, %d on neither side; want a sum of %d", slowSide.intervals, others.intervals, undecided, n)
	}
}

// Strings of the first event are in the list of the slowest intervals: those of a tracepoint, whose type is known, and
// those at the address in an argument.
func TestSlowShow(t *testing.T) {
	testenv.OneKernel(t)
	testenv.Root(t)
	dir := t.TempDir()
	long := filepath.Join(dir, strings.Repeat("x", 80))
	if err := os.WriteFile(long, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	read := compile(t, "slowread.c", "slowread")
	for name, test := range map[string]struct{ event, show, field string }{
		"tracepoint": {"syscalls:sys_enter_openat", "filename,field:flags", "filename"},
		"argument":   {"uprobe:" + read + ":read_file", "arg0:string", "arg0"},
	} {
		out := filepath.Join(dir, name+".pb.gz")
		r := fulgur(t, "slow", "-e", test.event, "--over", "1ns", "--show", test.show, "--list", "64", "-o", out, "--", read, long)
		if r.code != 0 {
			t.Fatalf("%s: exit code %d, want 0: %s", name, r.code, r.stderr)
		}
		want, found := long[:63]+"…", false
		for _, s := range slowestOf(t, out).Slowest {
			found = found || s.Fields[test.field] == want && s.Task == "slowread"
		}
		if !found {
			t.Errorf("%s: no interval has %s %q: %+v", name, test.field, want, slowestOf(t, out).Slowest)
		}
	}
}

// leftMatches matches the number of intervals that did not end.
var leftMatches = regexp.MustCompile(`(\d+) intervals? began but did not end`)

// Calls that are left by an exception, the end of their thread or the execution of another program end nowhere: they
// are on neither side, and no time of theirs is.
func TestSlowLeft(t *testing.T) {
	testenv.OneKernel(t)
	testenv.Root(t)
	left := testenv.Compile(t, "slowleft", "g++", "-O1", "-fno-omit-frame-pointer", "-Wall", "-Wextra", "-Werror", "-pthread", "testdata/slowleft.cc")
	out := filepath.Join(t.TempDir(), "out.pb.gz")
	r := fulgur(t, "slow", "-e", "uprobe:"+left+":handle", "--over", "10ms", "-o", out, "--", left)
	if r.code != 0 {
		t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
	}
	own := numbers(t, r.stdout)
	slow, others := readSides(t, out)
	unseen := 0
	if m := neitherSide.FindStringSubmatch(r.stderr); m != nil {
		unseen, _ = strconv.Atoi(m[1])
	}
	if slow.intervals < own["returned"]-unseen || slow.intervals > own["returned"] || others.intervals != 0 {
		t.Errorf("got %d slow intervals and %d others, want %d and 0", slow.intervals, others.intervals, own["returned"])
	}
	if least, most := own["least_time"]-unseen*own["longest"], own["most_time"]; slow.total < least || slow.total > most {
		t.Errorf("got %d ns, want %d to %d", slow.total, least, most)
	}
	m := leftMatches.FindStringSubmatch(r.stderr)
	if len(m) != 2 || m[1] != strconv.Itoa(own["left"]) {
		t.Errorf("got %v calls that did not end, want %d: %s", m, own["left"], r.stderr)
	}
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
		between("off the CPU in read_part", slow.off["read_part"], own["least_read"]-slack(own["least_read"]), own["most_read"])
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
