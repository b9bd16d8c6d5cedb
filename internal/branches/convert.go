package branches

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
	"fulgur/internal/branches/autofdo/sampleprof"
	"fulgur/internal/message/plain"
	"fulgur/internal/message/usage"
	"fulgur/internal/perfdata"
	"fulgur/internal/profile/output"
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

// Names of the formats of sample profiles, besides [Format].
const (
	samplesFormat = "autofdo"
	samplesText   = "autofdo-text"
)

// FormatNames are the names of the formats of profiles of branches.
var FormatNames = []string{Format, samplesFormat, samplesText}

// Endings lists the endings of the names of profiles of branches, for users.
var Endings = []string{"." + Format + " (BOLT)", "." + samplesEnding + " (AutoFDO)", otherEnding + " (AutoFDO)"}

// otherEnding is clang's ending of sample profiles.
const otherEnding = ".prof"

// ChooseFormat reports whether an output is a profile of branches, given its format or, if
// that is empty, its path: by the path's ending, or because it is a directory. It sets
// o.Samples if it is a sample profile.
func (o *ProfileOptions) ChooseFormat(path, format string) bool {
	switch {
	case format == samplesFormat,
		format == "" && (strings.HasSuffix(path, "."+samplesEnding) || strings.HasSuffix(path, otherEnding)):
		o.Samples = sampleprof.Binary
	case format == samplesText:
		o.Samples = sampleprof.Text
	case format != "":
		return format == Format
	default:
		return strings.HasSuffix(path, "."+Format) || isDirectory(path)
	}
	return true
}

// isDirectory reports whether path names a directory.
func isDirectory(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// complete checks o and chooses the version of LLVM.
func (o *ConvertOptions) complete(ctx context.Context) (llvm, error) {
	if err := o.check(o.Output); err != nil {
		return llvm{}, err
	}
	if !o.AllBinaries && o.Binary == "" && !o.Kernel {
		return llvm{}, usage.Errorf("no binary given: use %s FILE, or %s", usage.Binary, usage.AllBinaries)
	}
	return o.chooseLLVM(ctx, chooseLLVM)
}

// convert reads the input, writes the profiles and prints the summary.
func (o *ConvertOptions) convert(ctx context.Context, l llvm) (err error) {
	if o.Samples != "" && strings.HasSuffix(o.Input, "."+Format) {
		return o.convertPreagg(ctx)
	}
	collector := o.newCollector()
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
	named := o.Kernel && o.Binary == "" // the input names the binary
	if named {
		if err := cv.collectKernel(ctx, in); err != nil {
			return err
		}
	}
	w, err := openWriter(ctx, l, &o.ProfileOptions, o.Output, o.Stdout)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.abort()) }()

	if !named {
		if err := cv.collect(ctx, in); err != nil {
			return err
		}
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
	if cv.options.Binary == "" {
		return nil
	}
	b, err := openBinary(cv.options.Binary)
	if err == nil {
		err = cv.options.checkBinary(b)
	}
	if err == nil {
		cv.chose(b)
	}
	return err
}

// chose notes the chosen binary.
func (cv *conversion) chose(b *bolt.Binary) {
	cv.binary = b
	cv.collector.Register(b)
	if isDirectory(cv.options.Output) {
		cv.options.Output = filepath.Join(cv.options.Output, cv.options.profileName(b))
	}
}

// collectKernel counts the input's samples of the kernel that it was recorded on.
func (cv *conversion) collectKernel(ctx context.Context, in *perfdata.Input) error {
	k := kernelFinder{ctx: ctx}
	err := cv.collectFrom(ctx, in, perfdata.Options{Find: func(m perfdata.Mapped) *bolt.Binary {
		b := k.find(m)
		if b != nil {
			cv.chose(b)
		}
		return b
	}})
	if k.err != nil {
		return fmt.Errorf("%s: %w", in.Name(), k.err)
	}
	return err
}

// collect counts the input's samples. It fails if no profile can be made.
func (cv *conversion) collect(ctx context.Context, in *perfdata.Input) error {
	opts := perfdata.Options{Find: cv.findAny, Addresses: cv.options.Basic}
	if cv.binary != nil {
		opts.Find, opts.Default = cv.findOne(), cv.binary.FixedLayout()
	}
	return cv.collectFrom(ctx, in, opts)
}

func (cv *conversion) collectFrom(ctx context.Context, in *perfdata.Input, opts perfdata.Options) error {
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
		if m.IsKernel() != cv.binary.Kernel() {
			return nil
		}
		cv.mapped++
		known := m.BuildID != "" && cv.binary.BuildID != ""
		found := match(m)
		switch {
		case found != nil && !known:
			cv.byName = true
		case found == nil && known && (m.IsKernel() || path.Base(m.Path) == path.Base(cv.binary.Name)):
			cv.other = m.BuildID
		}
		return found
	}
}

// findAny finds a mapped file on this machine.
func (cv *conversion) findAny(m perfdata.Mapped) *bolt.Binary {
	if m.IsKernel() {
		return nil // its profile is made alone
	}
	cv.mapped++
	b := cv.library.find(m)
	if b != nil {
		cv.collector.Register(b)
	}
	return b
}

// whyNothing returns the cause of an empty profile, with a remedy.
func (cv *conversion) whyNothing(in *perfdata.Input) string {
	record := "record with perf record -b (or -j any,u), where the CPU can"
	what := "any file that exists here"
	if cv.binary != nil {
		what = describeBinary(cv.binary)
	}
	kernel := cv.options.Kernel || cv.binary != nil && cv.binary.Kernel()
	if kernel {
		record = recordKernel + ", where the CPU can"
	}
	switch {
	case cv.stats.Samples == 0 && in.Text():
		return "no samples: text input must come from perf script -F pid,ip,brstack --show-mmap-events"
	case cv.stats.Samples == 0:
		return "no samples"
	case cv.other != "" && cv.stats.Mappings == 0:
		return fmt.Sprintf("wrong binary: %s was recorded with build ID %s, but %s is another build; give the build that ran", path.Base(cv.binary.Name), cv.other, what)
	case kernel && cv.stats.Mappings == 0 && in.Text():
		return "does not say where the kernel is: record as root, and add --show-mmap-events to the options of perf script"
	case kernel && cv.stats.Mappings == 0:
		return "does not say where the kernel is: record as root"
	case cv.mapped == 0 && in.Text() && cv.stats.Ignored == cv.stats.Samples:
		return "has no mappings: add --show-mmap-events to the options of perf script"
	case cv.stats.Mappings == 0 && cv.stats.Ignored == cv.stats.Samples:
		return fmt.Sprintf("no process mapped %s%s", what, cv.library.leftOut())
	case cv.collector.Stats().Samples == 0 && cv.stats.NoStack > 0:
		if cv.options.Samples != "" {
			return "no branch stacks in the file: " + record
		}
		return "no branch stacks in the file: " + record + ", or use only the samples with " + usage.Basic.String()
	case cv.stats.Ignored == cv.stats.Samples:
		return fmt.Sprintf("no sample is from a process that mapped %s%s", what, cv.library.leftOut())
	case cv.options.Basic:
		return "no samples in " + what
	}
	if kernel {
		return "no branches in " + what + ": " + recordKernel
	}
	return "no branches in " + what
}

// recordKernel is the advice for recording branches in the kernel.
const recordKernel = "record with perf record -a -b -e cycles:k"

// report returns the summary.
func (cv *conversion) report(w *profileWriter, paths map[*bolt.Binary]string) *report {
	r := newReport(cv.collector, w, paths, 0)
	r.lost("records lost: the kernel could not deliver them", cv.stats.Lost)
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
