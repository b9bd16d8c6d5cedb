package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"fulgur/internal/testenv"
)

// lines runs fulgur on a terminal of the given width until it exits, and returns the lines
// that it wrote.
func lines(t *testing.T, columns uint16, args ...string) []string {
	t.Helper()
	c := onTerminal(t, columns, 40, args...)
	_ = c.cmd.Wait() // errors are part of the tests
	return strings.Split(strings.ReplaceAll(c.drained(), "\r\n", "\n"), "\n")
}

// Messages on a terminal are wrapped between words.
func TestMessagesFit(t *testing.T) {
	profile := filepath.Join(t.TempDir(), "a.folded")
	if err := os.WriteFile(profile, []byte(strings.Repeat("a_rather_long_name;", 20)+"leaf 1000\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const columns = 60
	for _, args := range [][]string{
		{"latency", "-e", "openat", "1"},
		{"count", "openat", "1"},
		{"report", profile},
	} {
		for _, line := range lines(t, columns, args...) {
			line = escapes.ReplaceAllString(line, "")
			if n := len([]rune(line)); n > columns && strings.Contains(strings.TrimSpace(line), " ") {
				t.Errorf("%v: got a line of %d characters, want at most %d: %q", args, n, columns, line)
			}
		}
	}
}

// A terminal shows only the largest stacks, the largest one last, and says how to get the
// others. A file has all.
func TestLargestStacks(t *testing.T) {
	dir := t.TempDir()
	profile, all := filepath.Join(dir, "a.folded"), filepath.Join(dir, "all.txt")
	var folded strings.Builder
	for i := range 25 {
		fmt.Fprintf(&folded, "app;f%d %d\n", i+1, i+1)
	}
	if err := os.WriteFile(profile, []byte(folded.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	got := strings.Join(lines(t, 80, "convert", "--format", "text", profile), "\n")
	if strings.Contains(got, "f15\n") || !strings.Contains(got, "f16\n") || strings.Index(got, "f25\n") < strings.Index(got, "f24\n") {
		t.Errorf("got %q, want the 10 largest stacks, the largest one last", got)
	}
	if want := "15 smaller stacks (36.9 %) not shown: -o FILE writes all"; !strings.Contains(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	lines(t, 80, "convert", "-o", all, profile)
	written, err := os.ReadFile(all)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(written), "    f"); n != 25 || strings.Contains(string(written), "not shown") {
		t.Errorf("got %d stacks in a file: %s\nwant all 25", n, written)
	}
}

// The line of progress never wraps, however narrow the terminal is: the next one could not
// overwrite it.
func TestProgressFits(t *testing.T) {
	parallel(t)
	testenv.Root(t)
	testenv.AnyKernel(t)
	c := onTerminal(t, 30, 10, "profile", "-o", filepath.Join(t.TempDir(), "p.folded"), "600")
	progress := regexp.MustCompile(`[^\r\n]* samples?, \d+ stacks?[^\r\n]*`)
	testenv.Await(t, func() bool { return progress.MatchString(c.written()) },
		func() string { return fmt.Sprintf("got %q, want progress", c.written()) })
	if err := c.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	for _, line := range progress.FindAllString(c.until("written:"), -1) {
		if !strings.HasPrefix(line, "\x1b[K\x1b[?7l") || !strings.HasSuffix(strings.TrimSuffix(line, "\r"), "\x1b[?7h") {
			t.Errorf("got %q, want a line that the terminal cuts", line)
		}
	}
}
