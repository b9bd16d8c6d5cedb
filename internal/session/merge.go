package session

import (
	"context"
	"errors"
	"fmt"
	"io"

	"fulgur/internal/bolt"
	"fulgur/internal/ctxfile"
)

// MergeOptions describe how profiles become one.
type MergeOptions struct {
	// Inputs are pre-aggregated profiles, "-" standard input.
	Inputs []string
	// Output is the file to write, "-" or empty for Stdout.
	Output string
	// Force merges profiles whose names tell of different build IDs.
	Force bool

	// Stdout receives data, Stderr everything else.
	Stdout, Stderr io.Writer
	// Quiet leaves out warnings.
	Quiet bool
}

// Merge writes the sum of profiles, in memory that does not depend on their
// size. The exit code is 0, or 1 with an error. When ctx ends before it is
// done, nothing is written.
func Merge(ctx context.Context, o MergeOptions) (exitCode int, err error) {
	if err := o.merge(ctx); err != nil {
		return 1, orInterrupted(ctx, err)
	}
	return 0, nil
}

func (o *MergeOptions) merge(ctx context.Context) (err error) {
	var (
		inputs  []bolt.Input
		unknown uint64
	)
	for _, path := range o.Inputs {
		f, err := ctxfile.Open(ctx, path)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }() // was only read
		in := bolt.Input{Name: f.Name(), BuildID: bolt.ProfileBuildID(path), R: f}
		if in.BuildID == "" {
			unknown++
		}
		inputs = append(inputs, in)
	}
	out, err := createOutput(o.Output, o.Stdout)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Abort()) }()
	if err := bolt.Merge(out, inputs, bolt.MergeOptions{Force: o.Force}); err != nil {
		return err
	}
	if err := out.Commit(); err != nil {
		return err
	}
	if unknown > 0 && len(inputs) > 1 && !o.Force && !o.Quiet {
		fmt.Fprintf(o.Stderr, "fulgur: %s of %d without a build ID in the name (NAME.BUILDID.%s): whether they are of the same binary was not checked\n",
			count(unknown, "profile"), len(inputs), preagg)
	}
	return nil
}
