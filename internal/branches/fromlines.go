package branches

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"fulgur/internal/bolt"
	"fulgur/internal/files/ctxfile"
	"fulgur/internal/message/plain"
	"fulgur/internal/message/usage"
)

// convertPreagg makes a sample profile of a profile for BOLT.
func (o *ConvertOptions) convertPreagg(ctx context.Context) (err error) {
	if o.Kernel {
		return usage.Errorf("%s needs perf.data or the output of perf script, and %s is a profile for BOLT", usage.Kernel, o.Input)
	}
	if o.AllBinaries || o.Binary == "" {
		return usage.Errorf("%s is a profile of one binary: choose it with %s", o.Input, usage.Binary)
	}
	b, err := openBinary(o.Binary)
	if err != nil {
		return err
	}
	if id := bolt.ProfileBuildID(o.Input); id != "" && b.BuildID != "" && id != b.BuildID {
		return fmt.Errorf("%s is of another build than %s", o.Input, describeBinary(b))
	}
	if isDirectory(o.Output) {
		o.Output = filepath.Join(o.Output, o.profileName(b))
	}
	w, err := openWriter(ctx, llvm{}, &o.ProfileOptions, o.Output, o.Stdout)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.abort()) }()
	if err := w.writeLines(ctx, b, o.Input); err != nil {
		return err
	}
	if !o.Quiet {
		r := binaryReport{Profile: w.path}
		w.samples[b].describe(&r)
		_, err = fmt.Fprintf(o.Stderr, "%s: %s\n", plain.Terminal(b.Name), plain.Count(uint64(r.Functions), "function"))
		for _, warning := range r.Warnings {
			_, printErr := fmt.Fprintf(o.Stderr, "fulgur: warning: %s\n", warning)
			err = errors.Join(err, printErr)
		}
	}
	return err
}

// writeLines writes the profile of b from the profile for BOLT at path, which is read
// twice.
func (w *profileWriter) writeLines(ctx context.Context, b *bolt.Binary, path string) (err error) {
	in, err := ctxfile.Open(ctx, path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	if in, err = ctxfile.Regular(ctx, in); err != nil {
		return err
	}
	if err := w.verifyBinary(ctx, b, bolt.NewReader(in, path).Traces()); err != nil {
		return err
	}
	if _, err := in.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return w.encode(ctx, w.out, b, until(ctx, bolt.NewReader(in, path).Traces()))
}
