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

const noPeer = "[no peer]"

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
	times, stacks := map[string]int{}, map[string]int{}
	ofSocket := regexp.MustCompile(`;\[(socket|accept|connect)\]$`)
	for stack, us := range readFolded(t, out) {
		peer, rest, _ := strings.Cut(stack, ";")
		polls := strings.HasSuffix(rest, ";[poll]")
		if peer == noPeer && ofSocket.MatchString(rest) ||
			peer != noPeer && !ofSocket.MatchString(rest) && !polls && !strings.HasSuffix(rest, ";[preempted]") {
			t.Errorf("got %d µs of %s in the stack %s", us, peer, rest)
		}
		if peer != noPeer || polls {
			times[peer] += us * 1000
			stacks[peer]++
		}
	}
	wants := map[string]bounds{}
	for line := range strings.Lines(r.stdout) {
		var b bounds
		if _, err := fmt.Sscan(line, &b.least, &b.most); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		peer := strings.TrimSpace(strings.SplitN(line, " ", 3)[2])
		wants[peer] = bounds{wants[peer].least + b.least, wants[peer].most + b.most}
	}
	for peer, want := range wants {
		rounding := 1000 * stacks[peer]
		want = bounds{want.least - rounding, want.most + rounding}
		if testenv.Patience(1) > 1 {
			want = bounds{1, math.MaxInt} // an emulated machine's late ticks shorten time-outs, and the clocks of its CPUs differ
		}
		if n := times[peer]; n < want.least || n > want.most {
			t.Errorf("got %d ns of waits for %s, want %d to %d", n, peer, want.least, want.most)
		}
		delete(times, peer)
	}
	if len(times) > 0 {
		t.Errorf("got peers that the program does not have: %v", times)
	}
	if strings.Count(r.stdout, "\n") != 23 {
		t.Errorf("got the account %q, want 23 waits", r.stdout)
	}
}

// bounds are those of a time, in ns.
type bounds struct{ least, most int }
