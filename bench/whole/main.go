// Whole measures the share of user stacks that lead to the outermost function, in programs of many languages and
// compilers. Each program runs under fulgur, which says why a stack ends, and is stopped at random moments for gdb
// and eu-stack. A debugger's stack counts as whole if its outermost frame is where a program or a thread begins.
//
// Several -fulgur compare versions. Programs that are not installed are listed. It needs root.
// Usage, at the root of the repository:
//
//	go run ./bench/whole [-fulgur PATH]... [-seconds 3] [-stops 10] [NAME...]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"fulgur/bench/program"
)

// options holds the flags.
type options struct {
	versions       []string
	seconds, stops int
	names          []string
}

func main() { program.Main("bench/whole", run) }

func run(ctx context.Context, args []string) (err error) {
	var o options
	f := flag.NewFlagSet(filepath.Base(os.Args[0]), flag.ContinueOnError)
	f.Func("fulgur", "path of a fulgur; built from the tree if there is none", func(path string) error {
		o.versions = append(o.versions, path)
		return nil
	})
	f.IntVar(&o.seconds, "seconds", 3, "how long fulgur samples a program, at most")
	f.IntVar(&o.stops, "stops", 10, "how often each debugger stops a program")
	if err := f.Parse(args); err != nil {
		return err
	}
	if o.seconds < 1 || o.stops < 1 {
		return errors.New("-seconds and -stops must be at least 1")
	}
	if os.Geteuid() != 0 {
		return errors.New("profiling needs root")
	}
	o.names = f.Args()
	dir, err := os.MkdirTemp("", "fulgur-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if len(o.versions) == 0 {
		built, err := program.Build(ctx, dir)
		if err != nil {
			return err
		}
		o.versions = []string{built}
	}
	for i, path := range o.versions {
		if o.versions[i], err = filepath.Abs(path); err != nil {
			return err
		}
	}
	missing, err := prepare(ctx, dir)
	if err != nil {
		return err
	}
	return o.measure(ctx, dir, missing)
}

// measure prints a row for each program, except the missing ones.
func (o *options) measure(ctx context.Context, dir string, missing []string) error {
	fmt.Print("| program |")
	for i := range o.versions {
		fmt.Printf(" whole %d | why not |", i+1)
	}
	fmt.Printf(" gdb | eu-stack |\n|---|%s---|---|\n", strings.Repeat("---|---|", len(o.versions)))
	for _, s := range subjects {
		if _, err := exec.LookPath(s.needs); err != nil {
			missing = append(missing, s.name)
		}
		if len(o.names) > 0 && !slices.Contains(o.names, s.name) || slices.Contains(missing, s.name) {
			continue
		}
		row := "| " + s.name + " |"
		for _, path := range o.versions {
			whole, err := o.sample(ctx, path, dir, s)
			if err != nil {
				return err
			}
			row += whole.String() + " | " + whole.reasons() + " |"
		}
		for _, stacks := range []debugger{gdb, euStack} {
			whole, err := o.stop(ctx, dir, s, stacks)
			if err != nil {
				return err
			}
			row += whole.String() + " |"
		}
		fmt.Println(row)
	}
	if len(missing) > 0 {
		fmt.Println("\nmissing:", strings.Join(missing, ", "))
	}
	return ctx.Err()
}
