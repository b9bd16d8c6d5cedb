package branches

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"fulgur/internal/bolt"
	"fulgur/internal/files/ctxfile"
	"fulgur/internal/message/plain"
	"fulgur/internal/profile/decode"
	"fulgur/internal/profile/output"
)

// MergeOptions describe a merge of profiles.
type MergeOptions struct {
	// Inputs are pre-aggregated profiles for BOLT; "-" means standard input.
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

// Merge writes the sum of profiles. Its memory does not depend on their size. The exit code is 0, or 1
// with an error. If ctx ends early, Merge writes nothing.
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
	if err := checkKinds(inputs); err != nil {
		return err
	}
	out, err := output.Create(ctx, o.Output, o.Stdout)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Abort()) }()
	err = output.Until(ctx, out, func(w io.Writer) error {
		return bolt.Merge(w, inputs, bolt.MergeOptions{Force: o.Force})
	})
	if err != nil {
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

// headSize is the size of the beginning of a profile that shows its kind, in bytes. The
// name of a function in its first line may be long.
const headSize = 64 << 10

// mergers are the programs that merge profiles of other kinds.
var mergers = map[string]string{
	decode.LLVMSamples: "llvm-profdata merge --sample, or profile_merger of AutoFDO",
	decode.LLVMCounts:  "llvm-profdata merge",
	decode.GCCProfile:  "profile_merger of AutoFDO, or gcov-tool merge",
	decode.Fdata:       "merge-fdata of BOLT",
}

// checkKinds refuses profiles of other kinds than BOLT's pre-aggregated ones. The inputs can still be
// read from the start.
func checkKinds(inputs []bolt.Input) error {
	for i := range inputs {
		head, err := peek(&inputs[i])
		if err != nil {
			return fmt.Errorf("%s: %w", inputs[i].Name, err)
		}
		if err := OtherKind(inputs[i].Name, head); err != nil {
			return err
		}
	}
	return nil
}

// OtherKind returns an error with the program that merges a profile for a compiler or for BOLT, which
// begins with head; nil for other profiles.
func OtherKind(name string, head []byte) error {
	kind := decode.Kind(head)
	if merger := mergers[kind]; merger != "" {
		return fmt.Errorf("%s is %s: merge such profiles with %s", name, kind, merger)
	}
	return nil
}

// peek returns the beginning of a profile.
func peek(in *bolt.Input) ([]byte, error) {
	seeker, seeks := in.R.(io.Seeker)
	start := int64(0)
	if seeks {
		var err error
		start, err = seeker.Seek(0, io.SeekCurrent)
		seeks = err == nil
	}
	head := make([]byte, headSize)
	n, err := io.ReadFull(in.R, head)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	head = head[:n]
	if seeks && err == nil {
		_, err = seeker.Seek(start, io.SeekStart)
	} else {
		in.R = io.MultiReader(bytes.NewReader(head), in.R)
	}
	return head, err
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
