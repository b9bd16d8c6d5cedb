package boltprofile

import (
	"context"
	"errors"
	"fmt"
	"io"

	"fulgur/internal/bolt"
	"fulgur/internal/files/ctxfile"
	"fulgur/internal/message/plain"
	"fulgur/internal/profile/output"
)

// MergeOptions describe a merge of profiles.
type MergeOptions struct {
	// Inputs are pre-aggregated profiles; "-" means standard input.
	Inputs []string
	// Output is the file to write; "-" or empty means Stdout.
	Output string
	// Force merges profiles whose names contain different build IDs.
	Force bool

	// Stdout receives data, Stderr everything else.
	Stdout, Stderr io.Writer
	// Quiet suppresses warnings.
	Quiet bool
}

// Merge writes the sum of profiles. Its memory does not depend on their size. The
// exit code is 0, or 1 with an error. If ctx ends early, Merge writes nothing.
func Merge(ctx context.Context, o MergeOptions) (exitCode int, err error) {
	if err := o.merge(ctx); err != nil {
		return 1, output.OrInterrupted(ctx, err)
	}
	return 0, nil
}

func (o *MergeOptions) merge(ctx context.Context) (err error) {
	inputs, closeInputs, err := openProfiles(ctx, o.Inputs)
	defer closeInputs()
	if err != nil {
		return err
	}
	out, err := output.Create(o.Output, o.Stdout)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Abort()) }()
	if err := bolt.Merge(output.Until(ctx, out), inputs, bolt.MergeOptions{Force: o.Force}); err != nil {
		return err
	}
	if err := out.Commit(); err != nil {
		return err
	}
	o.warn(inputs)
	return nil
}

// openProfiles opens profiles to merge. The caller must call closeAll even after an
// error.
func openProfiles(ctx context.Context, paths []string) (inputs []bolt.Input, closeAll func(), err error) {
	var files []*ctxfile.File
	closeAll = func() {
		for _, f := range files {
			_ = f.Close() // read-only
		}
	}
	for _, path := range paths {
		f, err := ctxfile.Open(ctx, path)
		if err != nil {
			return nil, closeAll, err
		}
		files = append(files, f)
		inputs = append(inputs, bolt.Input{Name: f.Name(), BuildID: bolt.ProfileBuildID(path), R: f})
	}
	return inputs, closeAll, nil
}

// warn prints that build IDs could not be compared.
func (o *MergeOptions) warn(inputs []bolt.Input) {
	unknown := uint64(0)
	for _, in := range inputs {
		if in.BuildID == "" {
			unknown++
		}
	}
	if unknown > 0 && len(inputs) > 1 && !o.Force && !o.Quiet {
		fmt.Fprintf(o.Stderr, "fulgur: %s of %d without a build ID in the name (NAME.BUILDID.%s): cannot check whether they are of the same binary\n",
			plain.Count(unknown, "profile"), len(inputs), Format)
	}
}
