package main

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// perf2bolt is LLVM's program. By the name of Debian's link in PATH, it behaves as
// llvm-bolt.
const perf2bolt = "/usr/lib/llvm-22/bin/perf2bolt"

// measurePerf2bolt prints perf2bolt's time for a perf.data file of a real machine, and
// for the same branches in our format.
func measurePerf2bolt(ctx context.Context, dir string) error {
	const runs = 5
	in := func(name string) string { return filepath.Join(dir, name) }
	binary, data := in("sample.bin"), in("sample.perfdata")
	const source = "internal/perfdata/testdata/propeller_sample_1."
	err := errors.Join(
		os.MkdirAll(dir, 0o755),
		unzip(source+"bin.gz", binary),
		unzip(source+"perfdata1.gz", data))
	if err != nil {
		return err
	}
	fulgur := in("fulgur")
	if err := execute(ctx, "go", "build", "-o", fulgur, "fulgur/cmd/fulgur"); err != nil {
		return err
	}
	steps := []struct {
		name string
		argv []string
		took []time.Duration
	}{
		{name: "perf2bolt of perf.data", argv: []string{perf2bolt, binary, "-p", data, "-o", in("data.fdata"), "--ignore-build-id"}},
		{name: "fulgur convert of perf.data", argv: []string{fulgur, "convert", "-q", "--llvm", "22", "--binary", binary, "-o", in("sample.preagg"), data}},
		{name: "perf2bolt of what that made", argv: []string{perf2bolt, binary, "--pa", "-p", in("sample.preagg"), "-o", in("preagg.fdata")}},
	}
	for range runs {
		for i := range steps {
			start := time.Now()
			if err := execute(ctx, steps[i].argv...); err != nil {
				return err
			}
			steps[i].took = append(steps[i].took, time.Since(start))
		}
	}
	fmt.Printf("\n| %s, on this machine | input KB | s, median of %d |\n|---|---:|---:|\n", filepath.Base(source)+"perfdata1", runs)
	for i, input := range []string{data, data, in("sample.preagg")} {
		info, err := os.Stat(input)
		if err != nil {
			return err
		}
		slices.Sort(steps[i].took)
		fmt.Printf("| %s | %.1f | %.2f |\n", steps[i].name, float64(info.Size())/1024, steps[i].took[runs/2].Seconds())
	}
	return nil
}

// execute runs a program to its end.
func execute(ctx context.Context, argv ...string) error {
	if out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(argv, " "), err, out)
	}
	return nil
}

// unzip decompresses the file src to dst.
func unzip(src, dst string) (err error) {
	f, err := os.Open(src)
	if err != nil {
		return err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return err
	}
	out, err := os.OpenFile(dst, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	_, err = io.Copy(out, z)
	return err
}
