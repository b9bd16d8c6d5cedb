package boltprofile

import (
	"context"

	"fulgur/internal/message/usage"
)

// ProfileOptions select the files to profile and the form of their profiles.
type ProfileOptions struct {
	// Binary is the path of the ELF file to profile; when measuring, empty means
	// the program of the target's processes. AllBinaries profiles all mapped files
	// that exist on this machine; the output is then a directory, created if
	// needed, for files named by binary and build ID.
	Binary      string
	AllBinaries bool
	// LLVM is the version that reads the profile: "16", "22", or "auto" or empty
	// for the version of the llvm-bolt in PATH.
	LLVM string
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
	case o.AllBinaries && (output == "" || output == "-"):
		return usage.Errorf("%s needs a directory for the profiles: %s DIR", usage.AllBinaries, usage.Output)
	}
	return nil
}

// chooseLLVM chooses the version of LLVM, with choose.
func (o *ProfileOptions) chooseLLVM(ctx context.Context, choose func(context.Context, string) (llvm, error)) (llvm, error) {
	l, err := choose(ctx, o.LLVM)
	if err == nil && o.Basic && l.version < tracesLLVM {
		return llvm{}, errBasicLLVM()
	}
	return l, err
}
