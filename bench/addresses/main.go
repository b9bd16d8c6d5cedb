// Addresses measures how long symbolizers take to find functions, including inlined ones,
// with files and lines, at random addresses of a program. It compares fulgur's
// symbolizer, which is this program started again, with llvm-symbolizer and addr2line -i.
// Each is a separate process, whose start counts; the program is in the page cache. They
// run in turn in each round.
//
// The program is ./bench/workload/templates.cpp, built with debug information.
// Arguments name further files, which must contain debug information.
//
// It needs g++, llvm-symbolizer and addr2line. Usage, at the root of the
// repository:
//
//	go run ./bench/addresses [-rounds 5] [-addresses 10000] [-units 16] [FILE...]
package main

import (
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"

	"fulgur/bench/program"
)

// The aims: fulgur's time as a share of llvm-symbolizer's, and its peak memory as a share
// of the size of the debug information.
const (
	timeShare   = 0.1
	memoryShare = 0.2
)

// options holds the flags.
type options struct {
	rounds, addresses, units int
	child                    string
	files                    []string
}

func main() {
	program.Main("bench/addresses", run)
}

func run(ctx context.Context, args []string) error {
	var o options
	f := flag.NewFlagSet(filepath.Base(os.Args[0]), flag.ContinueOnError)
	f.IntVar(&o.rounds, "rounds", 5, "how often each tool runs; medians are shown")
	f.IntVar(&o.addresses, "addresses", 10000, "how many addresses to ask about")
	f.IntVar(&o.units, "units", 16, "how many units to build the program of; 0 for no program")
	f.StringVar(&o.child, "child", "", "answer for this file, as the tools do")
	if err := f.Parse(args); err != nil {
		return err
	}
	o.files = f.Args()
	if o.child != "" {
		return child(ctx, o.child, os.Stdin, os.Stdout)
	}
	if o.rounds < 1 || o.addresses < 1 || o.units < 0 {
		return errors.New("-rounds and -addresses must be at least 1, -units not negative")
	}
	return compare(ctx, o)
}

// compare builds the program, runs the tools and writes their costs.
func compare(ctx context.Context, o options) (err error) {
	dir, err := os.MkdirTemp("", "fulgur-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if o.units > 0 {
		built, err := buildProgram(ctx, dir, o.units)
		if err != nil {
			return err
		}
		o.files = append([]string{built}, o.files...)
	}
	tools, err := findTools()
	if err != nil {
		return err
	}
	for _, path := range o.files {
		subject, err := openSubject(path, o.addresses)
		if err != nil {
			return err
		}
		costs, err := measure(ctx, tools, subject, o.rounds)
		if err != nil {
			return err
		}
		if err := write(os.Stdout, subject, tools, costs, o.rounds); err != nil {
			return err
		}
	}
	return nil
}
