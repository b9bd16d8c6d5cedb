package branches

import (
	"context"
	"strings"

	"fulgur/internal/bolt"
	"fulgur/internal/branches/autofdo/sampleprof"
	"fulgur/internal/message/usage"
)

// SampleFormat is a format of sample profiles for clang: "text" or "extbinary".
type SampleFormat = sampleprof.Format

// ProfileOptions select the files to profile and the form of their profiles.
type ProfileOptions struct {
	// Binary is the path of the ELF file to profile; when measuring, empty means
	// the program of the target's processes. AllBinaries profiles all mapped files
	// that exist on this machine; the output is then a directory, created if
	// needed, for files named by binary and build ID.
	Binary      string
	AllBinaries bool
	// Kernel profiles the kernel: Binary is its vmlinux or, if empty, that is found by
	// build ID.
	Kernel bool
	// LLVM is the version that reads the profile: "16", "22", or "auto" or empty
	// for the version of the llvm-bolt in PATH.
	LLVM string
	// Samples, if not empty, makes sample profiles for clang (AutoFDO) in this format
	// instead of profiles for llvm-bolt. LLVM, Strict and Basic have no effect then.
	Samples SampleFormat
	// Strict leaves out fall-throughs across kernel entries, which perf2bolt
	// infers. Basic counts the addresses of samples instead of branches.
	Strict, Basic bool
	// StatsJSON writes the summary as JSON.
	StatsJSON bool
}

// check rejects options that contradict each other or the output.
func (o *ProfileOptions) check(output string) error {
	switch {
	case o.AllBinaries && o.Binary != "":
		return usage.Errorf("one binary and all binaries cannot be combined")
	case o.Kernel && o.AllBinaries:
		return usage.Errorf("%s and %s cannot be combined: make a profile of the kernel alone", usage.Kernel, usage.AllBinaries)
	case o.Kernel && o.Samples == "":
		return usage.Errorf("%s is only for AutoFDO: choose a format with %s", usage.Kernel, usage.Format)
	case o.Samples != "" && o.Basic:
		return usage.Errorf("%s is only for BOLT: a sample profile for clang needs branches", usage.Basic)
	case o.AllBinaries && (output == "" || output == "-"):
		return usage.Errorf("%s needs a directory for the profiles: %s DIR", usage.AllBinaries, usage.Output)
	}
	return nil
}

// newCollector returns a collector of the branches that the profiles need.
func (o *ProfileOptions) newCollector() *bolt.Collector {
	return bolt.NewCollector(bolt.Options{Strict: o.Strict, ForeignKernel: o.Samples != ""})
}

// profileName returns the name of b's profile in a directory.
func (o *ProfileOptions) profileName(b *bolt.Binary) string {
	if o.Samples != "" {
		return strings.TrimSuffix(bolt.ProfileName(b), "."+Format) + "." + samplesEnding
	}
	return bolt.ProfileName(b)
}

// chooseLLVM chooses the version of LLVM, with choose.
func (o *ProfileOptions) chooseLLVM(ctx context.Context, choose func(context.Context, string) (llvm, error)) (llvm, error) {
	if o.Samples != "" {
		return llvm{version: tracesLLVM}, nil
	}
	l, err := choose(ctx, o.LLVM)
	if err == nil && o.Basic && l.version < tracesLLVM {
		return llvm{}, errBasicLLVM()
	}
	return l, err
}
