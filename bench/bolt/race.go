package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

// race has all variants run the script that is measured, in turn, with another
// one first in each round.
func (b *bench) race(ctx context.Context, rounds int, variants []variant) error {
	var want [sha256.Size]byte
	for round := range rounds {
		progress("round %d of %d", round+1, rounds)
		for i := range variants {
			v := &variants[(round+i)%len(variants)]
			r, err := runScript(ctx, v.binary, b.measured)
			if err != nil {
				return err
			}
			if round == 0 && i == 0 {
				want = r.output
			}
			if r.output != want {
				return fmt.Errorf("%s prints something else than the others", v.binary)
			}
			v.times = append(v.times, r.cpu)
		}
	}
	return nil
}

// slowdown is how long a process takes for the same, left alone and stepped at
// an overhead of 10 %.
type slowdown struct {
	alone, stepped []time.Duration
}

func (b *bench) slowdown(ctx context.Context, rounds int) (s slowdown, err error) {
	for round := range rounds {
		progress("slowdown: round %d of %d", round+1, rounds)
		alone, err := b.lifetime(ctx, false)
		if err != nil {
			return s, err
		}
		stepped, err := b.lifetime(ctx, true)
		if err != nil {
			return s, err
		}
		s.alone, s.stepped = append(s.alone, alone), append(s.stepped, stepped)
	}
	return s, nil
}

// lifetime returns how long a process takes to run the script a few times.
func (b *bench) lifetime(ctx context.Context, stepped bool) (time.Duration, error) {
	const times = 4
	t, err := startTarget(ctx, b.sqlite)
	if err != nil {
		return 0, err
	}
	defer t.stop()
	var stderr bytes.Buffer
	fulgur := exec.CommandContext(ctx, b.fulgur, "bolt", "--branches", "stepping", "--max-overhead", "10%",
		"-p", strconv.Itoa(t.pid()), "-o", filepath.Join(b.dir, "slowdown.preagg"), "600")
	fulgur.Stderr = &stderr
	if stepped {
		if err := fulgur.Start(); err != nil {
			return 0, err
		}
		time.Sleep(time.Second) // until it looks at the process
	}
	start := time.Now()
	t.repeat(b.measured, times)
	err = t.cmd.Wait()
	took := time.Since(start)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", b.sqlite, err)
	}
	if stepped {
		if err := fulgur.Wait(); err != nil {
			return 0, fmt.Errorf("%v: %w\n%s", fulgur.Args, err, &stderr)
		}
	}
	return took, nil
}
