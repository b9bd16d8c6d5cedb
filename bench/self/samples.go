package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
)

// sample is a line of fulgur's stream; see docs/live.md.
type sample struct {
	Time    time.Time
	Weight  uint64 // ns
	Kernel  []frame
	User    []frame
	Dropped uint64 // the only field of its line
}

type frame struct{ Address, Function, Module string }

// name returns the name of a frame in folded stacks.
func (f frame) name() string {
	name := f.Function
	if name == "" {
		name = f.Module + "+" + f.Address
	}
	return strings.ReplaceAll(name, ";", ":")
}

// stacks holds the samples of a run of fulgur.
type stacks struct {
	samples map[string]int     // by folded stack, whose first frame is the phase
	cpu     [phaseCount]uint64 // ns
	dropped uint64             // samples
}

// readSamples reads a stream of samples.
func readSamples(path string, p phases) (s stacks, err error) {
	f, err := os.Open(path)
	if err != nil {
		return s, err
	}
	defer f.Close()
	s.samples = map[string]int{}
	for lines := json.NewDecoder(f); ; {
		var next sample
		if err := lines.Decode(&next); errors.Is(err, io.EOF) {
			return s, nil
		} else if err != nil {
			return s, fmt.Errorf("read fulgur's samples: %w", err)
		}
		s.dropped += next.Dropped
		if next.Weight > 0 {
			s.add(next, p.of(next.Time))
		}
	}
}

func (s *stacks) add(next sample, of phase) {
	names := []string{of.String()}
	for _, half := range [][]frame{next.User, next.Kernel} {
		for _, f := range slices.Backward(half) {
			names = append(names, f.name())
		}
	}
	s.samples[strings.Join(names, ";")]++
	s.cpu[of] += next.Weight
}

// folded returns the samples as folded stacks.
func (s *stacks) folded() []byte {
	var b bytes.Buffer
	for _, stack := range slices.Sorted(maps.Keys(s.samples)) {
		fmt.Fprintf(&b, "%s %d\n", stack, s.samples[stack])
	}
	return b.Bytes()
}

// table returns the duration and the CPU time of each phase as a Markdown table.
func (s *stacks) table(p phases) string {
	var b strings.Builder
	b.WriteString("| phase | time s | CPU s |\n|---|---:|---:|\n")
	for of := range phaseCount {
		fmt.Fprintf(&b, "| %s | %.3f | %.3f |\n", of, p.lasted(of).Seconds(), float64(s.cpu[of])/1e9)
	}
	if s.dropped > 0 {
		fmt.Fprintf(&b, "\n%d samples were dropped.\n", s.dropped)
	}
	return b.String()
}
