package session

import (
	"context"
	"errors"
	"strings"

	"fulgur/internal/ctxfile"
	"fulgur/internal/decode"
	"fulgur/internal/encode/plain"
	"fulgur/internal/profile"
)

// readProfile reads the profile at path, "-" being standard input, in any format
// that is known.
func readProfile(ctx context.Context, path string) (p *profile.Profile, err error) {
	f, err := ctxfile.Open(ctx, path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	p, _, err = decode.Read(f, f.Name())
	return p, err
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
	p, err := readProfile(ctx, o.Input)
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
