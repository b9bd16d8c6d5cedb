// Command rig runs test binaries under other kernels than this machine's: Debian's
// stock cloud kernels for amd64 or arm64, booted by QEMU without KVM. Their
// initramfs contains the tests, busybox and, on amd64, a kernel module that provides
// a PMU for tests that request it (test/rig/pmu).
//
//	go run ./test/rig [flags] PACKAGE...
//
// Each package's tests are built statically and run as root, with their testdata,
// under every kernel of -kernels. Up to -machines machines run at a time: first one for
// each kernel, then more of the kernels that have the most packages left. Machines of one
// kernel share its packages. The rig fails if a test fails, if the kernel warns, or if a
// machine does not reach its end. Full logs are in the directory given by -dir.
//
// Kernels come from several of Debian's suites (kernels.txt), through package lists
// of the rig's own. Kernels that are unavailable there, and failures under a release
// newer than those seen green, do not fail the rig: lines that begin with NOT RUN or
// BROKEN, at the end of the output, report them.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"fulgur/internal/testenv"
	"fulgur/test/rig/pmu"
)

// options are the command line's options.
type options struct {
	arch     arch          // of the machines
	kernels  []string      // series, as in 6.1
	dir      string        // built binaries, logs
	cache    string        // downloads
	packages []string      // packages whose tests run
	programs []string      // main packages, built into /bin
	tools    []string      // programs of this machine, for /bin
	debs     []string      // Debian packages, unpacked in the machine
	files    []string      // host path=path in the machine
	env      []string      // NAME=VALUE, of the tests
	run      string        // -test.run of the tests
	args     []string      // more arguments of the tests
	one      string        // series that runs tests marked for one kernel; if empty, each runs all tests
	get      []string      // globs of files to copy out of the machine
	cover    bool          // measure test coverage
	machines int           // number that run side by side
	cpus     int           // of each machine
	memory   int           // of each machine, in MiB
	timeout  time.Duration // of one machine
	icount   bool          // time is the number of instructions
	verbose  bool          // show all output of go test -v
}

// cacheVar names the environment variable with the default of -cache.
const cacheVar = "FULGUR_RIG_CACHE"

func main() {
	opt := parse(os.Args[1:])
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	go testenv.AfterGo(stop)
	err := run(ctx, opt)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "rig:", err)
		os.Exit(1)
	}
}

// parse parses the command line. It exits with a usage message on an error.
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
	kernels := fs.String("kernels", "", "kernel `series`, separated by commas (default all of kernels.txt)")
	fs.StringVar(&opt.dir, "dir", filepath.Join("build", "rig"), "`folder` for binaries and logs")
	fs.StringVar(&opt.cache, "cache", os.Getenv(cacheVar), "`folder` for downloads, which several rigs may share (default $"+cacheVar+", or downloads in -dir)")
	fs.StringVar(&opt.run, "run", "", "run only the tests that match `regexp`")
	fs.StringVar(&opt.one, "one", "", "run only marked tests: those that call testenv.EveryKernel under each kernel, and under the kernel `series` also those that call testenv.OneKernel, VM, Breakpoints or pmu.Load")
	list(&opt.args, "arg", "an `argument` for every test binary (repeatable)")
	list(&opt.get, "get", "copy files that match a `glob` from the machine to -dir/RELEASE, or from a kernel's second machine to -dir/RELEASE-2, when the tests are over (repeatable)")
	fs.BoolVar(&opt.cover, "cover", false, "write which statements of the module the tests of each package cover to /out/PACKAGE.cover, and copy that file as -get does")
	fs.IntVar(&opt.machines, "machines", runtime.NumCPU(), "`number` of machines that run side by side, each of which keeps one CPU busy: first one for each kernel, then more that share its packages")
	fs.IntVar(&opt.cpus, "cpus", 2, "`number` of CPUs of each machine; all of them together get the time of one of this machine's")
	fs.IntVar(&opt.memory, "memory", 2048, "memory of each machine in `MiB`")
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
	opt.kernels = commas(*kernels)
	if opt.cover {
		opt.get = append(opt.get, coverFiles)
	}
	opt.cache, opt.packages = cmp.Or(opt.cache, filepath.Join(opt.dir, "downloads")), fs.Args()
	if len(opt.packages) == 0 || opt.cpus < 1 || opt.memory < 1 {
		fs.Usage()
		os.Exit(2)
	}
	return opt
}

// commas returns the parts of a list, none if it is empty.
func commas(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' })
}

// run tests under every kernel. The returned error names the kernels that failed.
func run(ctx context.Context, opt options) error {
	if err := os.MkdirAll(opt.dir, 0o755); err != nil {
		return err
	}
	var notes notes
	defer notes.print(os.Stdout)
	jobs, initramfs, err := prepare(ctx, opt, &notes)
	if err != nil {
		return err
	}
	out := &output{several: len(jobs) > 1}
	runJobs(jobs, max(opt.machines, 1), func(m machine) (*report, error) {
		out.line(m, "kernel "+m.release)
		r, err := boot(ctx, m, initramfs, opt, out)
		if err != nil {
			err = fmt.Errorf("boot kernel %s: %w", m.release, err)
		}
		return r, err
	})
	var failed []string
	for _, j := range jobs {
		err = errors.Join(err, j.err)
		if j.report.machines == 0 {
			continue
		}
		fmt.Printf("\n== kernel %s\n", j.release)
		j.report.print(os.Stdout)
		switch green := j.seenGreen(j.release); {
		case j.report.ok() && !green:
			fmt.Printf("%s is newer than the last green release in kernels.txt\n", j.release)
		case j.report.ok():
		case green:
			failed = append(failed, j.release)
		default:
			notes.add("BROKEN kernel %s: %s, and it is newer than the last green release (%s)",
				j.release, j.report.failures(), cmp.Or(j.green, "no release of this series"))
		}
	}
	if len(failed) > 0 {
		err = errors.Join(err, fmt.Errorf("failed under %s; logs are in %s", strings.Join(failed, ", "), opt.dir))
	}
	return err
}

// output writes the lines of machines that run in parallel.
type output struct {
	several bool // kernels
	mu      sync.Mutex
}

func (o *output) line(m machine, text string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.several || m.number > 1 {
		fmt.Printf("%-6s| %s\n", m.name+m.suffix(), text)
	} else {
		fmt.Println(text)
	}
}

// notes are printed at the end of the output: tests that did not run, and failures
// that do not count.
type notes []string

func (n *notes) add(format string, args ...any) { *n = append(*n, fmt.Sprintf(format, args...)) }

func (n *notes) print(w io.Writer) {
	for _, note := range *n {
		fmt.Fprintln(w, note)
	}
}

// prepare returns the tests under each kernel that can be booted, and the archive with
// the tests.
func prepare(ctx context.Context, opt options, notes *notes) ([]*job, string, error) {
	list, err := readSeries(kernelsFile)
	if err != nil {
		return nil, "", err
	}
	if list, err = chooseSeries(list, opt.arch.name, opt.kernels); err != nil {
		return nil, "", err
	}
	apts, err := newAPTs(ctx, opt.cache, opt.arch.name)
	if ctx.Err() != nil {
		return nil, "", ctx.Err()
	}
	if err != nil {
		for _, s := range list {
			notes.add("NOT RUN kernel %s: %v", s.name, err)
		}
		return nil, "", nil
	}
	kernels, err := fetchKernels(ctx, apts, list, opt, notes)
	if err != nil || len(kernels) == 0 {
		return nil, "", err
	}
	packages, err := listPackages(ctx, opt.arch.name, opt.packages)
	if err != nil {
		return nil, "", err
	}
	if opt.run == "" && opt.one != "" {
		packages = slices.DeleteFunc(packages, func(p testPackage) bool { return p.marks.pattern(true) == "" })
	}
	var jobs []*job
	for _, k := range kernels {
		q, err := newQueue(packages, k, opt)
		if err := errors.Join(err, removeOld(opt.dir, k)); err != nil {
			return nil, "", err
		}
		jobs = append(jobs, newJob(k, q))
	}
	initramfs, err := buildInitramfs(ctx, apts, kernels, packages, opt)
	if err != nil {
		return nil, "", fmt.Errorf("make the initramfs: %w", err)
	}
	return jobs, initramfs, nil
}

// fetchKernels returns the kernels to run tests under, with their modules. It notes
// the ones that are unavailable.
func fetchKernels(ctx context.Context, apts *apts, list []series, opt options, notes *notes) ([]kernel, error) {
	var kernels []kernel
	for _, s := range list {
		a, err := apts.of(ctx, s.suites)
		var k kernel
		if err == nil {
			k, err = fetchKernel(ctx, a, s)
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			notes.add("NOT RUN kernel %s: %v", s.name, err)
			continue
		}
		if !strings.HasPrefix(k.release, s.name+".") {
			notes.add("NOT RUN kernel %s: %s has moved on, and %s ran in its place", s.name, strings.Join(s.suites, ", "), k.release)
		}
		if opt.arch.pmu {
			if err := addPMU(ctx, a, k, opt.dir, notes); err != nil {
				return nil, err
			}
		}
		kernels = append(kernels, k)
	}
	return kernels, nil
}

// addPMU builds the PMU's module for kernel k. It notes missing packages, and
// failures under a release that was not seen green.
func addPMU(ctx context.Context, a *apt, k kernel, dir string, notes *notes) error {
	h, err := fetchHeaders(ctx, a, k)
	if err != nil {
		notes.add("NOT RUN tests with a PMU under kernel %s: get its headers: %v", k.release, err)
		return ctx.Err()
	}
	module, err := buildModule(ctx, k, h, dir)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err == nil:
		k.modules[pmu.Module] = module
	case k.seenGreen(k.release):
		return fmt.Errorf("build the PMU for kernel %s: %w", k.release, err)
	default:
		notes.add("BROKEN tests with a PMU under kernel %s: build the module: %v", k.release, err)
	}
	return nil
}
