package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"fulgur/internal/ctxfile"
	"fulgur/internal/debugfile"
	"fulgur/internal/decode"
	"fulgur/internal/encode/plain"
	"fulgur/internal/perfdata"
	"fulgur/internal/profile"
)

// readProfile reads the profile at path, "-" being standard input, in any format
// that is known. One that was taken without names gets them from the files of
// this machine; warn is told what could not be read.
func readProfile(ctx context.Context, path string, warn func(error)) (p *profile.Profile, err error) {
	opened, err := ctxfile.Open(ctx, path)
	if err != nil {
		return nil, err
	}
	f, err := ctxfile.Regular(ctx, opened, "fulgur-convert-*")
	if err != nil {
		return nil, errors.Join(err, opened.Close())
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	finder, err := debugfile.New(debugfile.Config{})
	if err != nil {
		return nil, err
	}
	r := resolver{finder: finder}
	var head [8]byte
	if n, _ := f.ReadAt(head[:], 0); perfdata.IsPerfData(head[:n]) { // the other formats' readers tell of errors
		chains, err := readCallChains(f)
		if err != nil {
			return nil, err
		}
		r.p, r.offsets, r.kernel = chains.Profile, true, sameKernel(chains, finder)
	} else if r.p, _, err = decode.Read(f, f.Name()); err != nil || !unnamed(r.p) {
		return r.p, err
	}
	p, err = r.resolve(ctx)
	for _, problem := range r.problems {
		warn(problem)
	}
	return p, err
}

// readCallChains reads perf.data.
func readCallChains(f *ctxfile.File) (*perfdata.CallChains, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return perfdata.ReadCallChains(f, info.Size(), f.Name())
}

// warnOn returns what tells of problems on w, unless quiet.
func warnOn(w io.Writer, quiet bool) func(error) {
	return func(err error) {
		if !quiet {
			fmt.Fprintln(w, "fulgur:", plain.Error(err))
		}
	}
}

// chooseValue returns the index of the value of p whose type is name, which is
// the first if that is empty.
func chooseValue(p *profile.Profile, name string) (int, error) {
	if name == "" {
		return 0, nil
	}
	known := make([]string, len(p.ValueTypes))
	for i, v := range p.ValueTypes {
		if v.Type == name {
			return i, nil
		}
		known[i] = plain.Terminal(v.Type)
	}
	return 0, usagef("there is no value %q; the profile has %s", name, strings.Join(known, ", "))
}

// convertProfile writes a profile in another format.
func (o *ConvertOptions) convertProfile(ctx context.Context) (exitCode int, err error) {
	format, err := o.profileFormat()
	if err != nil {
		return 2, err
	}
	p, err := readProfile(ctx, o.Input, warnOn(o.Stderr, o.Quiet))
	if err != nil {
		return 1, orInterrupted(ctx, err)
	}
	v, err := chooseValue(p, o.Value)
	if err != nil {
		return 2, err
	}
	if o.Value != "" || !format.allValues() {
		p = p.Only(v)
	}
	out, err := createOutput(o.Output, o.Stdout)
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, out.Abort()) }()
	if err := format.write(untilWriter{ctx, out}, p, &Options{Annotate: o.Annotate}); err != nil {
		return 1, orInterrupted(ctx, err)
	}
	return 0, out.Commit()
}

// profileFormat checks o and returns the format to write.
func (o *ConvertOptions) profileFormat() (format, error) {
	switch {
	case o.Binary != "" || o.Basic || o.Strict:
		return format{}, usagef("the output is no profile for BOLT: let its name end in .%s, or add --format %s", preagg, preagg)
	case o.Format == "" && (o.Output == "" || o.Output == "-"):
		return format{}, usagef("which format to write? -o FILE, whose ending names it, or --format: %s or %s", FormatNames(), preagg)
	}
	return chooseFormat(&Options{Output: o.Output, Format: o.Format})
}
