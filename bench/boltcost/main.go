// Boltcost measures what branch profiles cost: fulgur bolt, perf record -b, and
// the design of ebpf-bolt (peer/), each given the same branches by the PMU of
// the rig's machines. CPU time, memory and size of the output; then perf2bolt's
// time on a perf.data file and on what fulgur convert makes of it.
//
// The machines are emulated, and their time is the number of instructions, 1 ns
// for each: so it does not depend on what else this machine does, and is worth
// something only beside each other. The kernel's own work for perf record,
// which copies each sample in its interrupt, is not measured; that of BPF
// programs is.
//
// It needs what test/install-deps.sh installs for it. Usage, at the root of the
// repository:
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
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

func main() {
	kernels := flag.String("kernels", "6.1,6.12", "kernel `series`, separated by commas")
	dir := flag.String("dir", filepath.Join("build", "boltcost"), "`folder` for what is built")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := errors.Join(measureTools(ctx, *dir, *kernels), measurePerf2bolt(ctx, *dir))
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench/boltcost:", err)
		os.Exit(1)
	}
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
		// The rig ends its machine then.
		cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("%s: %w", strings.Join(argv, " "), err)
		}
	}
	return nil
}
