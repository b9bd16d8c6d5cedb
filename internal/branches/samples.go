package branches

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"path/filepath"

	"fulgur/internal/bolt"
	"fulgur/internal/branches/autofdo"
	"fulgur/internal/message/plain"
	"fulgur/internal/symbols/debugfile"
	"fulgur/internal/symbols/dwarf"
	"fulgur/internal/symbols/elffile"
	"fulgur/internal/symbols/symbolize"
)

// samplesEnding is the ending of sample profiles that fulgur names.
const samplesEnding = "afdo"

// flowSymbol is the name of a variable that clang defines in programs with flow-sensitive
// discriminators.
const flowSymbol = "__llvm_fs_discriminator__"

// errNoDebug is wrapped by errors for files without debug information.
var errNoDebug = errors.New("no debug information")

// program is a file with its debug information.
type program struct {
	file  *symbolize.ELF
	debug *dwarf.Data
	// problem is an error from opening the debug information, which is still usable.
	problem error
}

// openProgram finds the debug information of f, and closes f on error.
func openProgram(ctx context.Context, f *elffile.File) (program, error) {
	finder, err := debugfile.New(debugfile.Config{})
	if err != nil {
		return program{}, errors.Join(err, f.Close())
	}
	path, err := filepath.Abs(f.Name()) // debug links are relative to it
	if err != nil {
		return program{}, errors.Join(err, f.Close())
	}
	e := symbolize.NewELF(f, symbolize.Options{})
	e.Search(ctx, finder, "", path)
	data, err := e.Debug()
	if data == nil {
		why := errors.Join(append(e.SearchProblems(), err)...)
		return program{}, errors.Join(noDebug(f.Name(), why), e.Close())
	}
	return program{e, data, err}, nil
}

// noDebug returns the error for a file without debug information.
func noDebug(name string, why error) error {
	err := fmt.Errorf("%s: %w: build it with clang -g -fdebug-info-for-profiling, or install its debug file", plain.Terminal(name), errNoDebug)
	if why != nil {
		err = fmt.Errorf("%w (%w)", err, why)
	}
	return err
}

// checkDebug fails if the chosen binary has no debug information.
func checkDebug(ctx context.Context, bs *binaries) error {
	f, err := bs.open(bs.only)
	if err != nil {
		return err
	}
	p, err := openProgram(ctx, f)
	if err != nil {
		return err
	}
	return p.file.Close()
}

// writeSamples writes the sample profile of b.
func (w *profileWriter) writeSamples(ctx context.Context, out io.Writer, b *bolt.Binary, traces iter.Seq2[bolt.Trace, error]) (err error) {
	f, err := w.openFile(b)
	if err != nil {
		return err
	}
	p, err := openProgram(ctx, f)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.file.Close()) }()
	flow, err := p.file.HasSymbol(flowSymbol)
	if err != nil {
		return err
	}
	from := autofdo.Program{Code: bolt.NewCode(f), Debug: p.debug, SymbolsAt: p.file.SymbolsAt, Flow: flow}
	profile, stats, err := from.Profile(ctx, traces)
	var damaged *autofdo.DebugError
	if err != nil && !errors.As(err, &damaged) {
		return err
	}
	missing := errors.Join(p.problem, p.file.SplitProblems())
	if damaged != nil {
		missing = errors.Join(damaged, missing)
	}
	if len(profile.Functions) == 0 {
		if missing == nil {
			missing = errors.New("no function that ran has any")
		}
		return noDebug(b.Name, missing)
	}
	if w.samples == nil {
		w.samples = map[*bolt.Binary]sampleStats{}
	}
	w.samples[b] = sampleStats{stats, missing, f.Section(".pseudo_probe") != nil, len(profile.Functions), b.Kernel()}
	return profile.Write(out, w.options.Samples)
}

// impossible returns the number of fall-throughs that the code rules out.
func (w *profileWriter) impossible() (n uint64) {
	for _, s := range w.samples {
		n += s.Impossible
	}
	return n
}

// describe adds the properties of a sample profile to its report.
func (s sampleStats) describe(r *binaryReport) {
	r.Functions = s.functions
	r.Next = [][]string{{"make", "LLVM=1", "CLANG_AUTOFDO_PROFILE=" + profileArgument(r.Profile, samplesEnding)}}
	if !s.kernel {
		r.Next = [][]string{{"clang", "-O2", "-g", "-fdebug-info-for-profiling", "-fprofile-sample-use=" + profileArgument(r.Profile, samplesEnding), "..."}}
	}
	if s.missing != nil {
		r.Warnings = append(r.Warnings, fmt.Sprintf("functions are missing: %s", plain.Error(s.missing)))
	}
	if s.probes {
		r.Warnings = append(r.Warnings, "built with -fpseudo-probe-for-profiling: this profile is by source lines, so leave out that option when you use it")
	}
}

// sampleStats describes a sample profile.
type sampleStats struct {
	autofdo.Stats
	missing   error // debug information that was not read, or nil
	probes    bool  // clang was called with -fpseudo-probe-for-profiling
	functions int
	kernel    bool
}
