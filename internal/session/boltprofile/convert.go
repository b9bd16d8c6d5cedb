package boltprofile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"fulgur/internal/bolt"
	"fulgur/internal/message/plain"
	"fulgur/internal/message/usage"
	"fulgur/internal/profile/output"
	"fulgur/internal/profile/perfdata"
)

// ConvertOptions describe a conversion of recorded branches to profiles for
// llvm-bolt.
type ConvertOptions struct {
	// Input is the file to read, perf.data or the output of perf script; "-"
	// means standard input.
	Input string
	// Output is the file to write, or a directory; "-" or empty means Stdout.
	Output string
	ProfileOptions

	// Stdout receives data, Stderr everything else.
	Stdout, Stderr io.Writer
	// Quiet suppresses the summary.
	Quiet bool
}

// Convert writes profiles of recorded branches. The exit code is 0, 2 for a usage
// error, or 1 for another error. If ctx ends early, Convert writes nothing.
func Convert(ctx context.Context, o ConvertOptions) (exitCode int, err error) {
	l, err := o.complete(ctx)
	if errors.Is(err, usage.Err) {
		return 2, err
	}
	if err == nil {
		err = o.convert(ctx, l)
	}
	if err != nil {
		return 1, output.OrInterrupted(ctx, err)
	}
	return 0, nil
}

// NamesProfile reports whether an output is a profile for BOLT, given its format or,
// if that is empty, its path: by the path's ending, or because it is a directory.
func NamesProfile(path, format string) bool {
	if format != "" {
		return format == Format
	}
	return strings.HasSuffix(path, "."+Format) || isDirectory(path)
}

// isDirectory reports whether path is that of a directory.
func isDirectory(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// complete checks o and chooses the version of LLVM.
func (o *ConvertOptions) complete(ctx context.Context) (llvm, error) {
	if err := o.check(o.Output); err != nil {
		return llvm{}, err
	}
	if !o.AllBinaries && o.Binary == "" {
		return llvm{}, usage.Errorf("no binary given: use %s FILE, or %s", usage.Binary, usage.AllBinaries)
	}
	return o.chooseLLVM(ctx, chooseLLVM)
}

// convert reads the input, writes the profiles and prints the summary.
func (o *ConvertOptions) convert(ctx context.Context, l llvm) (err error) {
	collector := bolt.NewCollector(bolt.Options{Strict: o.Strict})
	defer collector.Close()
	cv := &conversion{options: o, collector: collector}
	if err := cv.choose(); err != nil {
		return err
	}
	in, err := perfdata.Open(ctx, o.Input)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	w, err := openPreagg(l, o.Basic, o.AllBinaries, o.Output, o.Stdout)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.abort()) }()

	if err := cv.collect(ctx, in); err != nil {
		return err
	}
	paths, err := w.write(ctx, collector)
	if err != nil || o.Quiet {
		return err
	}
	return cv.report(w, paths).write(o.Stderr, o.StatsJSON)
}

// conversion is a conversion in progress.
type conversion struct {
	options   *ConvertOptions
	collector *bolt.Collector

	binary  *bolt.Binary // the chosen binary, nil for all
	byName  bool         // binary was identified by name only
	other   string       // build ID of another file with the same name
	mapped  int          // number of different mapped files
	library library      // all binaries

	stats perfdata.Stats
}

// choose opens the chosen binary. If the output is a directory, it also chooses the
// profile's name.
func (cv *conversion) choose() error {
	if cv.options.AllBinaries {
		return nil
	}
	var err error
	if cv.binary, err = openBinary(cv.options.Binary); err != nil {
		return err
	}
	cv.collector.Register(cv.binary)
	if isDirectory(cv.options.Output) {
		cv.options.Output = filepath.Join(cv.options.Output, bolt.ProfileName(cv.binary))
	}
	return nil
}

// collect counts the input's samples. It fails if no profile can be made.
func (cv *conversion) collect(ctx context.Context, in *perfdata.Input) error {
	opts := perfdata.Options{Find: cv.findAny, Addresses: cv.options.Basic}
	if cv.binary != nil {
		opts.Find, opts.Default = cv.findOne(), cv.binary.FixedLayout()
	}
	var err error
	if cv.stats, err = in.Collect(ctx, cv.collector, opts); err != nil {
		return err
	}
	if cv.collector.Stats().Inside == 0 {
		return fmt.Errorf("%s: %s", in.Name(), cv.whyNothing(in))
	}
	return nil
}

// findOne returns a function that recognizes the chosen binary among mapped files.
func (cv *conversion) findOne() func(perfdata.Mapped) *bolt.Binary {
	match := perfdata.Match(cv.binary)
	return func(m perfdata.Mapped) *bolt.Binary {
		cv.mapped++
		known := m.BuildID != "" && cv.binary.BuildID != ""
		found := match(m)
		switch {
		case found != nil && !known:
			cv.byName = true
		case found == nil && known && path.Base(m.Path) == path.Base(cv.binary.Name):
			cv.other = m.BuildID
		}
		return found
	}
}

// findAny finds a mapped file on this machine.
func (cv *conversion) findAny(m perfdata.Mapped) *bolt.Binary {
	cv.mapped++
	b := cv.library.find(m)
	if b != nil {
		cv.collector.Register(b)
	}
	return b
}

// whyNothing returns the cause of an empty profile and what to do about it.
func (cv *conversion) whyNothing(in *perfdata.Input) string {
	const record = "record with perf record -b (or -j any,u), where the CPU can"
	what := "any file that exists here"
	if cv.binary != nil {
		what = describeBinary(cv.binary)
	}
	switch {
	case cv.stats.Samples == 0 && in.Text():
		return "no samples: text input must come from perf script -F pid,ip,brstack --show-mmap-events"
	case cv.stats.Samples == 0:
		return "no samples"
	case cv.other != "" && cv.stats.Mappings == 0:
		return fmt.Sprintf("wrong binary: %s was recorded with build ID %s, but %s is another build; give the build that ran", path.Base(cv.binary.Name), cv.other, what)
	case cv.mapped == 0 && in.Text() && cv.stats.Ignored == cv.stats.Samples:
		return "has no mappings: add --show-mmap-events to the options of perf script"
	case cv.stats.Mappings == 0 && cv.stats.Ignored == cv.stats.Samples:
		return fmt.Sprintf("no process mapped %s%s", what, cv.library.leftOut())
	case cv.collector.Stats().Samples == 0 && cv.stats.NoStack > 0:
		return "no branch stacks in the file: " + record + ", or use only the samples with " + usage.Basic.String()
	case cv.stats.Ignored == cv.stats.Samples:
		return fmt.Sprintf("no sample is from a process that mapped %s%s", what, cv.library.leftOut())
	case cv.options.Basic:
		return "no samples in " + what
	}
	return "no branches in " + what
}

// report returns the summary.
func (cv *conversion) report(w *preaggWriter, paths map[*bolt.Binary]string) *report {
	r := newReport(cv.collector, w, paths, 0)
	r.lost("records that the kernel could not deliver", cv.stats.Lost)
	r.leftOut("samples of other processes", cv.stats.Ignored)
	r.leftOut("samples without branch records", cv.stats.NoStack)
	if cv.byName {
		r.warn("%s was identified by name only, since the input has no build ID for it: make sure that it is the build that ran", plain.Terminal(cv.binary.Name))
	}
	if cv.binary != nil && cv.stats.Mappings == 0 {
		r.warn("the input does not say which processes ran %s: all samples were counted for it", plain.Terminal(cv.binary.Name))
	}
	if left := cv.library.leftOut(); left != "" {
		r.warn("some files have no profile%s", left)
	}
	return r
}
