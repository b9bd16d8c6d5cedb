// Command rig runs test binaries under kernels other than this machine's:
// Debian's stock cloud kernels for amd64 or arm64, booted by QEMU without KVM, from
// an initramfs that holds the tests, busybox and, on amd64, a kernel module, which
// is a PMU for those tests that load it (test/rig/pmu).
//
//	go run ./test/rig [flags] PACKAGE...
//
// Each package's tests are built statically and run, with their testdata, as
// root under every kernel of -kernels. The rig fails when a test fails, when
// the kernel warns, and when a machine does not reach its end. Full logs stay
// in the folder given by -dir.
//
// A kernel that apt does not know is skipped, or, with FULGUR_TEST_REQUIRE=1,
// an error.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"fulgur/internal/testenv"
)

// options is what the command line says.
type options struct {
	arch     arch          // of the machines
	kernels  []string      // series, as in 6.1
	dir      string        // downloads, built binaries, logs
	packages []string      // packages whose tests run
	programs []string      // main packages, built into /bin
	tools    []string      // programs of this machine, for /bin
	debs     []string      // Debian packages, unpacked in the machine
	files    []string      // host path=path in the machine
	env      []string      // NAME=VALUE, of the tests
	run      string        // -test.run of the tests
	timeout  time.Duration // of one machine
	icount   bool          // time is the number of instructions
	verbose  bool          // show all that go test -v prints
}

func main() {
	opt := parse(os.Args[1:])
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, opt)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "rig:", err)
		os.Exit(1)
	}
}

// parse reads the command line and exits with a usage message if it is wrong.
func parse(args []string) options {
	var opt options
	fs := flag.NewFlagSet("rig", flag.ExitOnError)
	fs.Usage = func() {
		fmt.Fprintln(fs.Output(), "usage: rig [flags] PACKAGE...")
		fs.PrintDefaults()
	}
	list := func(dst *[]string, name, usage string) {
		fs.Func(name, usage, func(s string) error {
			*dst = append(*dst, s)
			return nil
		})
	}
	archName := fs.String("arch", "amd64", "`architecture` of the machines, amd64 or arm64")
	kernels := fs.String("kernels", "6.1,6.12", "kernel `series`, separated by commas")
	fs.StringVar(&opt.dir, "dir", filepath.Join("build", "rig"), "`folder` for kernels, binaries and logs")
	fs.StringVar(&opt.run, "run", "", "run only the tests that match `regexp`")
	fs.DurationVar(&opt.timeout, "timeout", 5*time.Minute, "time that one machine may take")
	fs.BoolVar(&opt.icount, "icount", false, "let each instruction take 1 ns of the machine's time, whatever it takes to emulate")
	fs.BoolVar(&opt.verbose, "v", false, "show also when a test starts, and subtests that pass")
	list(&opt.programs, "program", "build main `package` into the machine's /bin (repeatable)")
	list(&opt.tools, "tool", "copy a `program` of this machine, and what it loads, into the machine (repeatable)")
	list(&opt.debs, "package", "unpack a Debian `package` of its architecture in the machine (repeatable)")
	list(&opt.files, "file", "copy a file, as `host=guest` paths, into the machine (repeatable)")
	list(&opt.env, "env", "set a variable, as `NAME=VALUE` without blanks, in the machine (repeatable)")
	_ = fs.Parse(args) // exits on an error
	var err error
	if opt.arch, err = archOf(*archName); err != nil {
		fmt.Fprintln(fs.Output(), err)
		os.Exit(2)
	}
	opt.kernels, opt.packages = strings.Split(*kernels, ","), fs.Args()
	if len(opt.packages) == 0 {
		fs.Usage()
		os.Exit(2)
	}
	return opt
}

// run tests under every kernel and returns an error that names those that
// failed.
func run(ctx context.Context, opt options) error {
	if err := os.MkdirAll(opt.dir, 0o755); err != nil {
		return err
	}
	apt, err := newAPT(opt.dir, opt.arch.name)
	if err != nil {
		return err
	}
	kernels, err := fetchKernels(ctx, apt, opt)
	if err != nil {
		return err
	}
	initramfs, err := buildInitramfs(ctx, apt, kernels, opt)
	if err != nil {
		return fmt.Errorf("make the initramfs: %w", err)
	}
	var failed []string
	for _, k := range kernels {
		fmt.Printf("\n== kernel %s\n", k.release)
		report, err := boot(ctx, k, initramfs, opt)
		if err != nil {
			return fmt.Errorf("boot kernel %s: %w", k.release, err)
		}
		report.print(os.Stdout)
		if !report.ok() {
			failed = append(failed, k.release)
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("failed under %s; logs are in %s", strings.Join(failed, ", "), opt.dir)
	}
	return nil
}

// fetchKernels returns the kernels to run tests under, each with its modules.
func fetchKernels(ctx context.Context, a *apt, opt options) ([]kernel, error) {
	var kernels []kernel
	for _, series := range opt.kernels {
		k, err := fetchKernel(ctx, a, series, opt.arch.name)
		if errors.Is(err, errNoKernel) && os.Getenv(testenv.RequireVar) != "1" {
			fmt.Printf("\n== SKIP kernel %s: %v\n", series, err)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("get a kernel %s: %w", series, err)
		}
		if opt.arch.pmu {
			if k.module, err = buildModule(ctx, a, k, opt.dir); err != nil {
				return nil, fmt.Errorf("build the PMU for kernel %s: %w", k.release, err)
			}
		}
		kernels = append(kernels, k)
	}
	return kernels, nil
}
