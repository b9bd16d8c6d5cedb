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

// race runs the measured load with all variants in turn. Each round begins with another
// variant. It appends the machine's load average of each round to loads.
func (p prepared) race(ctx context.Context, rounds int, variants []variant, loads *[]float64) error {
	var want [sha256.Size]byte
	for round := range rounds {
		progress("%s: round %d of %d", p.name, round+1, rounds)
		for i := range variants {
			v := &variants[(round+i)%len(variants)]
			r, err := p.once(ctx, v.binary, p.measured)
			if err != nil {
				return err
			}
			if round == 0 && i == 0 {
				want = r.output
			}
			if r.output != want {
				return fmt.Errorf("the output of %s differs from the others", v.binary)
			}
			v.times = append(v.times, r.cpu)
		}
		load, err := loadAverage()
		if err != nil {
			return err
		}
		*loads = append(*loads, load)
	}
	return nil
}

// slowdown holds the durations of the same work alone and stepped at an overhead of 10 %,
// and the slowdown that fulgur reports.
type slowdown struct {
	alone, stepped []time.Duration
	reported       []float64
}

func (b *bench) slowdown(ctx context.Context, p prepared) (s slowdown, err error) {
	for round := range b.rounds {
		progress("%s: slowdown: round %d of %d", p.name, round+1, b.rounds)
		alone, err := b.lifetime(ctx, p, nil)
		if err != nil {
			return s, err
		}
		var reported float64
		stepped, err := b.lifetime(ctx, p, &reported)
		if err != nil {
			return s, err
		}
		s.alone, s.stepped, s.reported = append(s.alone, alone), append(s.stepped, stepped), append(s.reported, reported)
	}
	return s, nil
}

// lifetime returns the time of a process that does the load a few times. If reported is not
// nil, the process is stepped, and *reported is set to fulgur's figure for the slowdown.
func (b *bench) lifetime(ctx context.Context, p prepared, reported *float64) (time.Duration, error) {
	const times = 4
	t, err := p.start(ctx, p.binary)
	if err != nil {
		return 0, err
	}
	var stderr bytes.Buffer
	fulgur := exec.CommandContext(ctx, b.fulgur, "bolt", "--branches", "stepping", "--max-overhead", "10%", "--stats", "json",
		"-p", strconv.Itoa(t.pid()), "-o", filepath.Join(b.dir, "slowdown.preagg"), "600")
	fulgur.Stderr = &stderr
	if reported != nil {
		if err := fulgur.Start(); err != nil {
			t.kill()
			return 0, err
		}
		time.Sleep(time.Second) // until it has read the process
	}
	start := time.Now()
	for range times {
		if err := t.do(p.measured); err != nil {
			t.kill()
			return 0, fmt.Errorf("%s: %w", p.binary, err)
		}
	}
	if _, err := t.finish(); err != nil {
		return 0, err
	}
	took := time.Since(start)
	if reported != nil {
		if err := fulgur.Wait(); err != nil {
			return 0, fmt.Errorf("%v: %w\n%s", fulgur.Args, err, &stderr)
		}
		s, err := readSummary(stderr.Bytes())
		if err != nil {
			return 0, err
		}
		*reported = s.Stepping.MaxSlowdown
	}
	return took, nil
}
