// Boltcost measures the cost of branch profiles: CPU time, memory and size of the output
// of fulgur bolt, perf record -b and the design of ebpf-bolt (peer/). The PMU of the
// rig's machines gives each tool the same branches. Boltcost also measures perf2bolt's
// time for a perf.data file and for the profile that fulgur convert makes of it.
//
// The machines are emulated, and each instruction takes 1 ns of their time. So times do
// not depend on other load of this machine, and are only comparable with each other. For
// perf record, the measured time excludes the kernel's work in the interrupt of each
// sample; for the others, it includes the BPF programs.
//
// It needs the packages that test/install-deps.sh installs for it. Usage, at the root of
// the repository:
//
//	go run ./bench/boltcost [-kernels 6.12]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"fulgur/bench/program"
)

func main() {
	program.Main("bench/boltcost", run)
}

func run(ctx context.Context, args []string) error {
	f := flag.NewFlagSet(filepath.Base(os.Args[0]), flag.ContinueOnError)
	kernels := f.String("kernels", "6.1,6.12", "kernel `series`, separated by commas")
	dir := f.String("dir", filepath.Join("build", "boltcost"), "`folder` for what is built")
	if err := f.Parse(args); err != nil {
		return err
	}
	return errors.Join(measureTools(ctx, *dir, *kernels), measurePerf2bolt(ctx, *dir))
}

// measureTools builds the peer and runs this folder's test in the rig.
func measureTools(ctx context.Context, dir, kernels string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	const source = "bench/boltcost/peer/"
	rig, peer, object := filepath.Join(dir, "rig"), filepath.Join(dir, "peer"), filepath.Join(dir, "peer.bpf.o")
	for _, argv := range [][]string{
		{"clang-19", "-O2", "-g", "-target", "bpf", "-I/usr/include/x86_64-linux-gnu", "-c", source + "peer.bpf.c", "-o", object},
		{"g++", "-O2", "-std=c++17", "-o", peer, source + "peer.cpp", "-lbpf"},
		{"go", "build", "-o", rig, "./test/rig"},
		{rig, "-kernels", kernels, "-icount", "-timeout", "40m", "-run", "^TestCost$", "-env", "FULGUR_BENCH=1",
			"-program", "./cmd/fulgur", "-tool", "perf", "-tool", "./" + peer, "-file", object + "=bin/peer.bpf.o", "./bench/boltcost"},
	} {
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		// The rig then stops its machine.
		cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("%s: %w", strings.Join(argv, " "), err)
		}
	}
	return nil
}
