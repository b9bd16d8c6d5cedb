package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// program is a program that a round runs.
type program struct {
	// name is the name of its profiles, and pack the name of the file that they are packed into.
	name, pack string
	argv       func(dir string) []string
}

// steps runs testdata/steps.c, whose function checksum takes more time with extra repetitions: 1 of
// them is about 0.35 % of the whole.
func steps(extra string) func(string) []string {
	return func(dir string) []string { return []string{filepath.Join(dir, "steps"), "5000", extra} }
}

// programs are those of a round. The first two are equal.
var programs = []program{
	{"steps-a", "steps", steps("0")},
	{"steps-5", "slower-5", steps("14")},
	{"xz", "xz", func(dir string) []string { return []string{"xz", "-6", "-T1", "-c", filepath.Join(dir, "text")} }},
	{"steps-2", "slower-2", steps("6")},
	{"steps-b", "steps", steps("0")},
	{"python", "python", func(dir string) []string {
		return []string{"/usr/bin/python3", filepath.Join(dir, "words.py"), filepath.Join(dir, "text"), "75"}
	}},
	{"steps-1", "slower-1", steps("3")},
}

// frequency is the rate of samples in Hz.
const frequency = "1999"

// record profiles every program in each round, into dir.
func record(ctx context.Context, fulgur, dir string, first, rounds, step int) error {
	if err := prepare(ctx, dir); err != nil {
		return err
	}
	for round := first; round < rounds; round += step {
		for _, p := range programs {
			out := filepath.Join(dir, fmt.Sprintf("%s-%03d.pb.gz", p.name, round))
			if _, err := os.Stat(out); err == nil {
				continue
			}
			cmd := exec.CommandContext(ctx, fulgur, append([]string{"profile", "-F", frequency, "-q", "-o", out, "--"}, p.argv(dir)...)...)
			cmd.Stderr = os.Stderr
			if err := cmd.Run(); err != nil {
				return fmt.Errorf("%s in round %d: %w", p.name, round, err)
			}
		}
	}
	return nil
}

// prepare puts the programs and their input into dir.
func prepare(ctx context.Context, dir string) error {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	const sources = "test/diffnoise/testdata"
	if _, err := os.Stat(filepath.Join(dir, "steps")); err == nil {
		return nil
	}
	script, err := os.ReadFile(filepath.Join(sources, "words.py"))
	if err != nil {
		return err
	}
	for name, content := range map[string][]byte{"words.py": script, "text": []byte(text())} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return err
		}
	}
	out, err := exec.CommandContext(ctx, "gcc", "-O2", "-g", "-o", filepath.Join(dir, "steps"), filepath.Join(sources, "steps.c")).CombinedOutput()
	if err != nil {
		return fmt.Errorf("compile steps.c: %w\n%s", err, out)
	}
	return nil
}

// text returns 900 KB of words, the same each time: some are frequent.
func text() string {
	rng := rand.New(rand.NewPCG(1, 1))
	syllables := strings.Fields("ka lo mi ne tu ra si po ve da gu ze")
	words := make([]string, 4000)
	for i := range words {
		for range 1 + rng.IntN(4) {
			words[i] += syllables[rng.IntN(len(syllables))]
		}
	}
	var b strings.Builder
	for b.Len() < 900_000 {
		b.WriteString(words[min(len(words)-1, int(300*rng.ExpFloat64()))])
		b.WriteByte(' ')
	}
	return b.String()
}
