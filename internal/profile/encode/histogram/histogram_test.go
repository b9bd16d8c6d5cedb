package histogram

import (
	"strings"
	"testing"
)

// The expected lines are the output of libbpf-tools' biolatency.
func TestLines(t *testing.T) {
	const want = `     usecs               : count    distribution
         0 -> 1          : 0        |                                        |
         2 -> 3          : 1        |*****                                   |
         4 -> 7          : 0        |                                        |
         8 -> 15         : 8        |****************************************|
        16 -> 31         : 7        |***********************************     |`
	if got := strings.Join(Lines("usecs", []uint64{0, 1, 0, 8, 7, 0, 0}), "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := Lines("usecs", make([]uint64, 32)); got != nil {
		t.Errorf("no requests: got %q, want nil", got)
	}
}
