package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// simulatedShare is the share of a load that is simulated: programs take a hundred times as long in
// valgrind.
const simulatedShare = 0.05

// simulation is what valgrind counts in a run. Unlike CPU times, the counts do not depend on what else
// the machine does.
type simulation struct {
	instructions float64
	// misses is the number of instruction fetches that miss the first-level cache, of the size that
	// valgrind finds on this machine.
	misses float64
}

// simulated is a subject with its simulations, by variant. The first variant has no profile.
type simulated struct {
	subject     string
	variants    []variant
	simulations []simulation
}

// simulate runs a part of the measured load with all variants in valgrind.
func (b *bench) simulate(ctx context.Context, s subject) (r simulated, err error) {
	r.subject = s.name
	p, err := s.prepare(ctx, b.dir)
	if err != nil {
		return r, err
	}
	dir, err := os.MkdirTemp(b.dir, "simulate")
	if err != nil {
		return r, err
	}
	defer os.RemoveAll(dir)
	s.size = int(float64(s.size) * simulatedShare)
	load := filepath.Join(dir, "load")
	if err := s.write(load, 2); err != nil {
		return r, err
	}
	var want [sha256.Size]byte
	for _, w := range b.chosen(p) {
		v, err := b.build(ctx, p, w)
		if err != nil {
			return r, fmt.Errorf("%s: %w", w.name, err)
		}
		progress("%s, simulation: %s", s.name, w.name)
		got, output, err := simulateRun(ctx, s, v.binary, load, dir)
		if err != nil {
			return r, fmt.Errorf("%s: %w", w.name, err)
		}
		if len(r.variants) == 0 {
			want = output
		}
		if output != want {
			return r, fmt.Errorf("the output of %s differs from the others", v.binary)
		}
		r.variants, r.simulations = append(r.variants, v), append(r.simulations, got)
	}
	return r, nil
}

// simulateRun runs a binary with a load in valgrind's cachegrind.
func simulateRun(ctx context.Context, s subject, binary, load, dir string) (r simulation, output [sha256.Size]byte, err error) {
	counts := filepath.Join(dir, "counts")
	// once takes a path, not a command line, so a script starts valgrind.
	script := filepath.Join(dir, "program")
	text := fmt.Sprintf("#!/bin/sh\nexec valgrind --tool=cachegrind --cache-sim=yes --cachegrind-out-file='%[1]s' --log-file='%[1]s.log' '%[2]s' \"$@\"\n", counts, binary)
	if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
		return r, output, err
	}
	done, err := s.once(ctx, script, load)
	if err != nil {
		return r, output, err
	}
	// "summary:" is followed by the sums of the columns that "events:" names.
	if r.instructions, err = field(counts, "summary:", 0); err != nil {
		return r, output, err
	}
	r.misses, err = field(counts, "summary:", 1)
	return r, done.output, err
}

// field returns the number at index n after a word in a file.
func field(path, word string, n int) (float64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), word)
	line, _, _ := strings.Cut(rest, "\n")
	fields := strings.Fields(line)
	if len(fields) <= n {
		return 0, fmt.Errorf("%s: no number %d after %s", path, n, word)
	}
	return strconv.ParseFloat(fields[n], 64)
}

// writeSimulations writes simulations as Markdown.
func writeSimulations(w io.Writer, machine string, all []simulated) error {
	out := bufio.NewWriter(w) // keeps its first error until Flush
	fmt.Fprintf(out, "%s. Changes in valgrind's counts against no profile. Share: of the change of the misses with\nllvm-bolt's instrumentation.\n\n", machine)
	fmt.Fprintln(out, "| program | profile | misses of the instruction cache | share | instructions | not seen | wrong |")
	fmt.Fprintln(out, "|---|---|---:|---:|---:|---:|---:|")
	for _, r := range all {
		if err := setAccuracy(r.variants); err != nil {
			return err
		}
		none, best := r.simulations[0], 0.0
		for i, v := range r.variants {
			if v.file == instrumentedFile {
				best = r.simulations[i].misses/none.misses - 1
			}
		}
		for i, v := range r.variants[1:] {
			s := r.simulations[i+1]
			share, accuracy := "", " | "
			if best < 0 && v.file != instrumentedFile {
				share = fmt.Sprintf("%.2f", (s.misses/none.misses-1)/best)
			}
			if v.accuracy != nil {
				accuracy = v.accuracy.String()
			}
			fmt.Fprintf(out, "| %s | %s | %s | %s | %s | %s |\n", r.subject, v.name, percent(s.misses/none.misses-1), share,
				percent(s.instructions/none.instructions-1), accuracy)
		}
	}
	return out.Flush()
}
