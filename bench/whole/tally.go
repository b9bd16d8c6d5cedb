package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// tally counts stacks by their end.
type tally map[string]int

// The ends of a whole stack, and of a thread that has given up its memory to exit.
const (
	complete = "complete"
	gone     = "no user stack"
)

func (t tally) sum() (n int) {
	for _, of := range t {
		n += of
	}
	return n
}

// String formats the share of whole stacks.
func (t tally) String() string {
	if len(t) == 0 {
		return " no stacks"
	}
	return fmt.Sprintf(" %.1f %% of %d", 100*float64(t[complete])/float64(t.sum()), t.sum())
}

// reasons lists the other ends, the most frequent first.
func (t tally) reasons() string {
	ends := slices.SortedFunc(maps.Keys(t), func(a, b string) int { return cmp.Or(cmp.Compare(t[b], t[a]), cmp.Compare(a, b)) })
	var all []string
	for _, end := range ends {
		if end != complete {
			all = append(all, fmt.Sprintf("%s %d", end, t[end]))
		}
	}
	return strings.Join(all, ", ")
}

// sample runs a program under fulgur.
func (o *options) sample(ctx context.Context, fulgur, dir string, s subject) (tally, error) {
	out := filepath.Join(dir, "samples.jsonl")
	limit := time.Duration(o.seconds) * time.Second
	ctx, cancel := context.WithTimeout(ctx, limit+time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, fulgur, "profile", "-F", "199", "--stream", "--format", "jsonl", "-o", out,
		"--", "timeout", strconv.Itoa(o.seconds), "sh", "-c", s.script)
	c.Dir, c.WaitDelay = dir, time.Second
	text, err := c.CombinedOutput() // fulgur exits with the code of timeout
	if ctx.Err() != nil {
		return nil, fmt.Errorf("%s: %w", s.name, ctx.Err())
	}
	file, openErr := os.Open(out)
	if openErr != nil {
		return nil, fmt.Errorf("%s: fulgur wrote nothing: %w\n%s", s.name, errors.Join(err, openErr), text)
	}
	defer file.Close()
	t := tally{}
	for lines := json.NewDecoder(bufio.NewReader(file)); lines.More(); {
		var sample struct {
			Comm string
			End  string
			User []json.RawMessage
		}
		if err := lines.Decode(&sample); err != nil {
			return nil, fmt.Errorf("%s: %w", out, err)
		}
		if len(sample.User) > 0 && sample.End != gone && sample.Comm != "sh" && sample.Comm != "timeout" {
			t[sample.End]++
		}
	}
	return t, os.Remove(out)
}
