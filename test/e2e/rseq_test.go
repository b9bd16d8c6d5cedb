package e2e

import (
	"bytes"
	"debug/elf"
	"fmt"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"fulgur/internal/testenv"
)

// TestCountSparesSequences refuses to put breakpoints into a restartable sequence, with which a program
// loses increments of its counters. Breakpoints next to the sequence lose none.
func TestCountSparesSequences(t *testing.T) {
	testenv.Root(t)
	testenv.AnyKernel(t)
	if runtime.GOARCH != "amd64" {
		testenv.Unsupported(t, "the program has a sequence for x86-64 only")
	}
	parallel(t)
	program := compile(t, "rseq.c", "rseq", "-pthread")
	at := map[string]elf.Symbol{}
	for _, s := range testenv.Symbols(t, program) {
		at[s.Name] = s
	}
	offset := func(label string) uint64 { return at[label].Value - at["add"].Value }
	event := func(offset uint64) string { return fmt.Sprintf("uprobe:%s:add+%#x", program, offset) }

	target := testenv.Command(t, program)
	target.Stdout = new(bytes.Buffer)
	in := start(t, target)
	pid := strconv.Itoa(target.Process.Pid)

	// Before the address of the descriptor is stored, after that, and at the first instruction after the sequence.
	names := []string{program + ":add", program + ":add+" + fmt.Sprintf("%#x", offset("add_store")), program + ":add+" + fmt.Sprintf("%#x", offset("add_end"))}
	for _, name := range names {
		out := filepath.Join(t.TempDir(), "out.folded")
		c := command(t, "count", "-e", "uprobe:"+name, "-p", pid, "-o", out)
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		awaitSampling(t, c)
		testenv.AwaitCPUTime(t, target.Process.Pid, 500_000_000)
		if r := interrupt(t, c); r.code != 0 || count(readFolded(t, out), "add") == 0 {
			t.Errorf("%s: got code %d and no hits: %s", name, r.code, r.stderr)
		}
	}
	refuse := func(why string, events ...string) {
		t.Helper()
		for _, e := range events {
			if r := fulgur(t, "count", "-e", e, "-p", pid, "1"); r.code != 2 || !strings.Contains(r.stderr, why) {
				t.Errorf("%s: got code %d and %q, want 2 and %q", e, r.code, r.stderr, why)
			}
		}
	}
	refuse("restartable sequence", event(offset("add_begin")), event(offset("add_loop")), event(offset("add_commit")),
		"uprobe:"+program+":add_commit")
	refuse("its bounds are unknown", "uretprobe:"+program+":add_commit")
	refuse("no instruction begins there", event(offset("add_begin")+1), event(offset("add_end")-1))

	// A pattern leaves the place out.
	r := fulgur(t, "count", "-e", "uprobe:"+program+":add*", "-p", pid, "-o", filepath.Join(t.TempDir(), "out.folded"), "1")
	if r.code != 0 || !strings.Contains(r.stderr, "add_commit") || !strings.Contains(r.stderr, "restartable sequence") {
		t.Errorf("pattern: got code %d and %q", r.code, r.stderr)
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := target.Wait(); err != nil {
		t.Fatal(err)
	}
	var sum, increments uint64
	if _, err := fmt.Sscan(target.Stdout.(*bytes.Buffer).String(), &sum, &increments); err != nil || sum != increments || sum == 0 {
		t.Errorf("the counters have %d of %d increments (%v)", sum, increments, err)
	}
}
