package events

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fulgur/internal/testenv"
)

// Names with characters that a shell would execute are never offered.
func TestCompleteFiles(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"app", "apple", "a b", "a$(id)", "a`id`", "a;id", "a'", "b"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "aside"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("aside", filepath.Join(dir, "alink")); err != nil {
		t.Fatal(err)
	}
	before := "uprobe:" + dir + "/"
	want := []string{before + "alink/", before + "app:", before + "apple:", before + "aside/"}
	if got := Complete(before + "a"); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	t.Chdir(dir)
	if got, want := Complete("usdt:ap"), []string{"usdt:app:", "usdt:apple:"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, word := range []string{"uprobe:$(id)", "uprobe:" + dir + "/none/", "uprobe:" + dir + "/app:", "usdt:" + dir + "/app:", "no:", "uprobe:/dev/zero:", "uprobe:a\x00"} {
		if got := Complete(word); len(got) > 0 {
			t.Errorf("%q: got %q, want nothing", word, got)
		}
	}
}

func TestCompleteKinds(t *testing.T) {
	got := Complete("")
	for _, kind := range kinds {
		if !slices.Contains(got, kind+":") {
			t.Errorf("got %q, want %s", got, kind)
		}
	}
	if CompletesFile("uprobe") || CompletesFile("kprobe:") || !CompletesFile("uprobe:") || !CompletesFile("usdt:/a:b") {
		t.Error("got the wrong kinds for files")
	}
}

// If there are many names, their next word is offered, and nothing if there are too many.
func TestCompleteMany(t *testing.T) {
	c := completer{word: "kprobe:", seen: map[string]bool{}}
	for i := range maxComplete {
		c.add(fmt.Sprintf("kprobe:vfs_%d", i))
	}
	if got := c.list(); len(got) != maxComplete {
		t.Errorf("got %d names, want all", len(got))
	}
	c.add("kprobe:single")
	if got, want := c.list(), []string{"kprobe:single", "kprobe:vfs_"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for i := range maxComplete {
		c.add(fmt.Sprintf("kprobe:a%d", i))
	}
	if got := c.list(); len(got) != 0 {
		t.Errorf("got %q, want nothing", got)
	}
}

// The names of the kernel are found.
func TestCompleteKernel(t *testing.T) {
	testenv.Root(t)
	for word, want := range map[string]string{
		"tracepoint:sch": "tracepoint:sched:", "tracepoint:sched:sched_swit": "tracepoint:sched:sched_switch",
		"sched:sched_swit": "sched:sched_switch", "sch": "sched:", "kprobe:vfs_rea": "kprobe:vfs_read",
	} {
		got := Complete(word)
		if !slices.Contains(got, want) {
			t.Errorf("%s: got %q, want %s", word, got, want)
		}
		for _, s := range got {
			if !strings.HasPrefix(s, word) {
				t.Errorf("%s: got %s", word, s)
			}
		}
	}
}
