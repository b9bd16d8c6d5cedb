package branches

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"fulgur/internal/testenv"
)

// noting returns the paths of two scripts. Each appends its name, arguments and standard
// input to a file, and then runs the commands given for it.
func noting(t *testing.T, original, optimized string) (c *checker, noted func() []string) {
	t.Helper()
	dir := t.TempDir()
	notes := filepath.Join(dir, "notes")
	paths := map[string]string{}
	for name, then := range map[string]string{"original": original, "optimized": optimized} {
		paths[name] = filepath.Join(dir, name)
		text := fmt.Sprintf("#!/bin/sh\necho \"${0##*/} $* $(cat)\" >> %s\n%s\n", notes, then)
		if err := os.WriteFile(paths[name], []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	in := filepath.Join(dir, "in")
	if err := os.WriteFile(in, []byte("head\nbody"), 0o644); err != nil {
		t.Fatal(err)
	}
	stdin, err := os.Open(in)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stdin.Close() })
	if _, err := stdin.Seek(5, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	c = &checker{
		argv: []string{"program", "-x"}, original: paths["original"], optimized: paths["optimized"], code: 3,
		atMost: time.Hour, stdin: again(stdin), note: func(text string) { t.Log(text) },
	}
	if _, err := io.ReadAll(stdin); err != nil { // as the measured command does
		t.Fatal(err)
	}
	return c, func() []string {
		b, err := os.ReadFile(notes)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		return strings.Fields(strings.ReplaceAll(strings.TrimSpace(string(b)), " ", "_"))
	}
}

// The programs run in turn, with the same arguments and input.
func TestCheckRuns(t *testing.T) {
	c, noted := noting(t, "exit 3", "exit 3")
	if got := c.run(t.Context()); got.Verdict != notCompared || !strings.Contains(got.Reason, "ms of CPU time") {
		t.Errorf("got %+v, want runs that are too short", got)
	}
	runs := noted()
	if len(runs) != 2*(maxRuns+1) {
		t.Errorf("got %d runs, want %d", len(runs), 2*(maxRuns+1))
	}
	for i, run := range runs {
		if want := []string{"original_-x_body", "optimized_-x_body"}[i%2]; run != want {
			t.Errorf("run %d is %q, want %q", i, run, want)
		}
	}
}

// The check ends when a program behaves in another way than before.
func TestCheckExitCode(t *testing.T) {
	for name, test := range map[string]struct {
		original, optimized string
		want                string
		runs                int
	}{
		"original":  {"exit 4", "exit 3", "the original exits with code 4 when run again, not with 3 as before", 1},
		"optimized": {"exit 3", "kill -SEGV $$", "the optimized program exits with code 139 when run again", 2},
	} {
		t.Run(name, func(t *testing.T) {
			c, noted := noting(t, test.original, test.optimized)
			got := c.run(t.Context())
			if got.Verdict != notCompared || !strings.Contains(got.Reason, test.want) || len(noted()) != test.runs {
				t.Errorf("got %+v after %d runs; want %q after %d", got, len(noted()), test.want, test.runs)
			}
		})
	}
	c, _ := noting(t, "exit 3", "exit 3")
	c.optimized += "-gone"
	if got := c.run(t.Context()); got.Verdict != notCompared || !strings.Contains(got.Reason, "no such file") {
		t.Errorf("got %+v for a missing program", got)
	}
}

// A program that does not end is killed with its children, when time is up or the user
// interrupts.
func TestCheckEnds(t *testing.T) {
	for name, want := range map[string]string{"time": "were too short for 6 runs of each program: allow more with", "interrupt": "interrupted"} {
		t.Run(name, func(t *testing.T) {
			c, noted := noting(t, `sleep 1000 & echo "$! $$" >> "${0%/*}/notes"; wait`, "")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if name == "time" {
				c.atMost = 300 * time.Millisecond
			}
			ran := make(chan comparison, 1)
			go func() { ran <- c.run(ctx) }()
			if name == "interrupt" {
				testenv.Await(t, func() bool { return len(noted()) >= 2 }, func() string { return fmt.Sprintf("the program noted only %q", noted()) })
				cancel()
			}
			if got := testenv.Receive(t, ran, "the check does not end"); got.Verdict != notCompared || !strings.Contains(got.Reason, want) {
				t.Errorf("got %+v, want %q", got, want)
			}
			for _, line := range noted()[min(1, len(noted())):] {
				for field := range strings.SplitSeq(line, "_") {
					pid, err := strconv.Atoi(field)
					if err != nil {
						t.Fatal(err)
					}
					awaitDeath(t, pid)
				}
			}
		})
	}
}

// awaitDeath waits until a process has died.
func awaitDeath(t *testing.T, pid int) {
	t.Helper()
	testenv.Await(t, func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err != nil || strings.Contains(string(stat), ") Z ")
	}, func() string { return fmt.Sprintf("process %d still runs", pid) })
}

// Standard input that cannot be read again is refused; a terminal becomes /dev/null.
func TestCheckStdin(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	var refused runError
	if _, err := again(r)(); !errors.As(err, &refused) {
		t.Errorf("pipe: got %v", err)
	}
	terminal, err := os.Open("/dev/zero") // endless, unlike the input of the runs
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	f, err := again(terminal)()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if n, err := f.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("character device: read %d bytes, %v; want the end of the file", n, err)
	}
}
