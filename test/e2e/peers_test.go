package e2e

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"fulgur/internal/testenv"
)

// Each wait for a socket has the peer and the time of the program's own account. If another thread replaces the
// descriptor meanwhile, the peer is unknown.
func TestPeers(t *testing.T) {
	testenv.EveryKernel(t)
	testenv.Root(t)
	peers := compile(t, "peers.c", "peers", "-pthread")
	dir := t.TempDir()
	out := filepath.Join(dir, "out.folded")
	r := fulgur(t, "offcpu", "--by", "peer", "-o", out, "--", peers, filepath.Join(dir, "socket"), fmt.Sprint("fulgur-test-", os.Getpid()))
	if r.code != 0 {
		t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
	}
	times, waits := map[string]int{}, map[string]int{}
	ofSocket := regexp.MustCompile(`;\[(socket|accept|connect)\]$`)
	for stack, us := range readFolded(t, out) {
		peer, rest, _ := strings.Cut(stack, ";")
		if peer == "[no peer]" && ofSocket.MatchString(rest) || peer != "[no peer]" && !ofSocket.MatchString(rest) && !strings.HasSuffix(rest, ";[preempted]") {
			t.Errorf("got %d µs of %s in the stack %s", us, peer, rest)
		}
		if peer != "[no peer]" {
			times[peer] += us * 1000
			waits[peer]++
		}
	}
	for line := range strings.Lines(r.stdout) {
		var least, most int
		if _, err := fmt.Sscan(line, &least, &most); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		peer := strings.TrimSpace(strings.SplitN(line, " ", 3)[2])
		rounding := 1000 * waits[peer] // of each stack
		least, most = least-rounding, most+rounding
		if testenv.Patience(1) > 1 {
			least, most = 1, math.MaxInt // an emulated machine's late ticks shorten time-outs, and the clocks of its CPUs differ
		}
		if n := times[peer]; n < least || n > most {
			t.Errorf("got %d ns of waits for %s, want %d to %d", n, peer, least, most)
		}
		delete(times, peer)
	}
	if len(times) > 0 {
		t.Errorf("got peers that the program does not have: %v", times)
	}
	if strings.Count(r.stdout, "\n") != 18 {
		t.Errorf("got the account %q, want 18 waits", r.stdout)
	}
}
