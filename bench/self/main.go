// Self profiles fulgur with fulgur, and writes a flame graph page of fulgur's CPU time by phase: the
// start, until the BPF programs are attached; sampling; and the end, from the last sample to the exit.
// It also prints the duration and the CPU time of each phase. The time of BPF programs is not part of
// fulgur's CPU time.
//
// It needs root and Go. Usage, at the root of the repository:
//
//	go run ./bench/self [-o self.html] [-frequency 999] [arguments of fulgur]
//
// Without arguments, fulgur profiles the whole machine for five seconds, at 49 Hz.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"

	"fulgur/bench/program"
)

func main() {
	program.Main("bench/self", run)
}

func run(ctx context.Context, args []string) (err error) {
	f := flag.NewFlagSet(filepath.Base(os.Args[0]), flag.ContinueOnError)
	page := f.String("o", "self.html", "`FILE` for the page")
	frequency := f.Int("frequency", 999, "samples per second on each CPU")
	if err := f.Parse(args); err != nil {
		return err
	}
	if *frequency < 1 {
		return errors.New("-frequency must be at least 1")
	}
	if os.Geteuid() != 0 {
		return errors.New("profiling needs root")
	}
	dir, err := os.MkdirTemp("", "fulgur-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	subject := f.Args()
	if len(subject) == 0 {
		subject = []string{"profile", "-q", "-o", filepath.Join(dir, "page.html"), "5"}
	}
	log, samples := filepath.Join(dir, "log"), filepath.Join(dir, "samples")
	fulgur, err := program.Build(ctx, dir)
	if err != nil {
		return err
	}
	// After the command's name: what follows the flags may be a program with arguments of its own.
	if err := observe(ctx, fulgur, *frequency, slices.Insert(subject, 1, "--log", log), samples); err != nil {
		return err
	}
	p, err := readPhases(log)
	if err != nil {
		return err
	}
	b, err := readSamples(samples, p)
	if err != nil {
		return err
	}
	convert := exec.CommandContext(ctx, fulgur, "convert", "--format", "html", "-o", *page, "-")
	convert.Stdin = bytes.NewReader(b.folded())
	if out, err := convert.CombinedOutput(); err != nil {
		return fmt.Errorf("make the page: %w\n%s", err, out)
	}
	fmt.Print(b.table(p))
	fmt.Printf("\n%s shows the CPU time of each function.\n", *page)
	return nil
}

// observe runs fulgur with the given arguments under a second fulgur, which writes samples of the first
// to the file samples, as JSON lines.
func observe(ctx context.Context, fulgur string, frequency int, args []string, samples string) error {
	out, err := os.Create(samples)
	if err != nil {
		return err
	}
	argv := append([]string{"profile", "--stream", "--format", "jsonl", "-q", "-F", strconv.Itoa(frequency), "--", fulgur}, args...)
	cmd := exec.CommandContext(ctx, fulgur, argv...)
	var stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = out, &stderr
	err = cmd.Run()
	if err != nil {
		err = fmt.Errorf("profile fulgur: %w\n%s", err, stderr.Bytes())
	}
	return errors.Join(err, out.Close())
}
