package timerslack

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"fulgur/internal/linux/procfs"
	"fulgur/internal/testenv"
)

// Set reaches all threads, also the runtime's own.
func TestSet(t *testing.T) {
	testenv.Root(t)
	const slack = 123 * time.Microsecond
	before := slackOf(t, os.Getpid())
	threads, err := procfs.Self.Threads() // later ones may have been started by a thread that had the old slack
	if err != nil || len(threads) < 2 {
		t.Fatalf("got threads %v, %v; want at least the runtime's monitor and another", threads, err)
	}
	if err := Set(slack); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := Set(before); err != nil {
			t.Error(err)
		}
	})
	for _, tid := range threads {
		if got := slackOf(t, tid); got != slack {
			t.Errorf("thread %d: got a slack of %s, want %s", tid, got, slack)
		}
	}
}

func slackOf(t *testing.T, tid int) time.Duration {
	t.Helper()
	b, err := os.ReadFile(procfs.Path(tid, "timerslack_ns"))
	if err != nil {
		t.Fatal(err)
	}
	ns, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(ns)
}
