package offline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"fulgur/internal/bolt"
	"fulgur/internal/branches"
	"fulgur/internal/export/otlpclient"
	"fulgur/internal/files/ctxfile"
	"fulgur/internal/message/usage"
	"fulgur/internal/perfdata"
	"fulgur/internal/profile"
	"fulgur/internal/profile/decode"
	"fulgur/internal/profile/encode/describe"
	"fulgur/internal/profile/output"
)

// MergeOptions describe a sum of profiles.
type MergeOptions struct {
	// Inputs are the files to read: profiles in any format that [Convert] reads, or all of them
	// pre-aggregated profiles for BOLT. One may be "-", standard input.
	Inputs []string
	// Output is the file to write, or the URL to send to; "-" or empty means Stdout. Format is its format;
	// empty derives it from Output's ending. Profiles for BOLT have theirs.
	Output, Format string
	// Symfs is a directory with a copy of the measured system's files, or "".
	Symfs string
	// WithoutIDs leaves out IDs of processes, threads and CPUs, see [profile.Merger].
	WithoutIDs bool
	// Force adds up profiles for BOLT whose names contain different build IDs, too.
	Force bool
	// Resource has attributes of this machine for OTLP.
	Resource map[string]string
	// Stdout receives data, Stderr everything else.
	Stdout, Stderr io.Writer
	// Quiet suppresses warnings.
	Quiet bool
}

// Merge writes the sum of profiles. It reads one after the other and keeps only their sum. The exit code
// is 0, 2 with a usage error, or 1 with another one. If ctx ends early, nothing is written.
func Merge(ctx context.Context, o MergeOptions) (exitCode int, err error) {
	if n := count(o.Inputs, "-"); n > 1 {
		return 2, usage.Errorf("only one of the profiles can be standard input")
	}
	forBOLT, err := o.forBOLT(ctx)
	if err != nil {
		return 1, output.OrInterrupted(ctx, err)
	}
	if forBOLT {
		if o.Format != "" && o.Format != branches.Format {
			return 2, usage.Errorf("the sum of profiles for BOLT has their format, %s", branches.Format)
		}
		return branches.Merge(ctx, branches.MergeOptions{
			Inputs: o.Inputs, Output: o.Output, Force: o.Force, Stdout: o.Stdout, Stderr: o.Stderr, Quiet: o.Quiet,
		})
	}
	if o.Format == "" && output.IsStdout(o.Output) {
		return 2, usage.Errorf("no output format: name a file with a known ending, or choose a format with %s", usage.Format)
	}
	format, err := output.Choose(o.Output, o.Format)
	if err == nil {
		err = checkSymfs(o.Symfs)
	}
	if err != nil {
		return 2, err
	}
	warn := warnOn(o.Stderr, o.Quiet)
	p, err := o.sum(ctx, warn)
	if err != nil {
		return 1, output.OrInterrupted(ctx, err)
	}
	return o.write(ctx, p, format, warn)
}

// count returns how often a path occurs.
func count(paths []string, path string) (n int) {
	for _, p := range paths {
		if p == path {
			n++
		}
	}
	return n
}

// forBOLT reports whether the inputs are profiles for BOLT. The kinds of pipes are unknown until they are
// read: they have that of the files or, without any, the kind that the output needs.
func (o *MergeOptions) forBOLT(ctx context.Context) (bool, error) {
	var stacks, other string // a file of each kind
	for _, path := range o.Inputs {
		info, err := os.Stat(path)
		if path == "-" || err == nil && !info.Mode().IsRegular() && !info.IsDir() {
			continue
		}
		is, err := hasStacks(ctx, path)
		if err != nil {
			return false, err
		}
		if is {
			stacks = path
		} else {
			other = path
		}
	}
	switch {
	case stacks != "" && other != "":
		return false, o.notStacks(ctx, other)
	case stacks == "" && other == "":
		_, unknown := output.Choose(o.Output, o.Format)
		return unknown != nil || o.Format == "" && output.IsStdout(o.Output), nil //nolint:nilerr // an unknown format is one of BOLT's
	}
	return stacks == "", nil
}

// notStacks returns the error of a file among profiles that has no stacks.
func (o *MergeOptions) notStacks(ctx context.Context, path string) error {
	f, err := ctxfile.Open(ctx, path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // read-only
	head := make([]byte, headSize)
	n, _ := io.ReadFull(f, head) // a shorter file is a profile, too
	if err := branches.OtherKind(path, head[:n]); err != nil {
		return err
	}
	if _, err := readProfile(ctx, path, o.Symfs, func(error) {}); err != nil {
		return err
	}
	return fmt.Errorf("%s is a profile for llvm-bolt, unlike the others", path)
}

// hasStacks reports whether a file is a profile that [Convert] reads.
func hasStacks(ctx context.Context, path string) (is bool, err error) {
	f, err := ctxfile.Open(ctx, perfdata.FileIn(path))
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	var head [8]byte
	if n, _ := f.ReadAt(head[:], 0); perfdata.IsPerfData(head[:n]) {
		return true, nil
	}
	if _, err := bolt.NewReader(io.NewSectionReader(f, 0, headSize), path).Next(); err == nil {
		return false, nil
	}
	_, err = decode.Detect(ctx, io.NewSectionReader(f, 0, 1<<62))
	return err == nil, ctx.Err()
}

// headSize is the size of the part of a file that shows whether it is a profile for BOLT, in bytes.
const headSize = 64 << 10

// sum adds up the inputs.
func (o *MergeOptions) sum(ctx context.Context, warn func(error)) (*profile.Profile, error) {
	m := profile.Merger{WithoutIDs: o.WithoutIDs}
	for _, path := range o.Inputs {
		p, err := readProfile(ctx, path, o.Symfs, warn)
		if err != nil {
			return nil, err
		}
		if err := m.Add(p, path); errors.As(err, new(*profile.MismatchError)) {
			return nil, err
		} else if err != nil {
			return nil, fmt.Errorf("%s: the sum with the profiles before it: %w", path, err)
		}
	}
	if m.SeveralHosts() {
		warn(errors.New("the profiles are of several hosts: the sum has no IDs of processes and CPUs, and no addresses of the kernel and of generated code"))
	}
	p := m.Profile()
	if n := p.Losses[profile.LossTooMany]; n > 0 {
		warnLosses("the sum", profile.Losses{profile.LossTooMany: n}, describe.NounOfProfile(p), warn)
	}
	return p, nil
}

// write writes the sum.
func (o *MergeOptions) write(ctx context.Context, p *profile.Profile, format output.Format, warn func(error)) (exitCode int, err error) {
	value, err := chooseValue(p, "")
	if err != nil {
		return 2, err
	}
	if !format.AllValues() {
		warnEvents(p, value, warn)
		p, value = p.Only(value), 0
	}
	out, err := otlpclient.Create(ctx, o.Output, o.Stdout, func(text string) { warn(errors.New(text)) })
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, out.Abort()) }()
	err = output.Until(ctx, out, func(w io.Writer) error {
		return format.Write(w, p, nil, output.Options{Resource: o.Resource}, value)
	})
	if err == nil {
		err = out.Commit()
	}
	if err != nil {
		return 1, output.OrInterrupted(ctx, err)
	}
	return 0, nil
}
