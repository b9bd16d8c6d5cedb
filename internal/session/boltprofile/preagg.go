package boltprofile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"fulgur/internal/bolt"
	"fulgur/internal/files/atomicfile"
	"fulgur/internal/message/plain"
	"fulgur/internal/profile/output"
	"fulgur/internal/symbols/elffile"
)

// Format is the name of the pre-aggregated format, and the ending of its files.
const Format = "preagg"

// basicEvent is the event name of samples without branches. BOLT only repeats it.
const basicEvent = "samples"

// preaggWriter writes the profiles of a collector.
type preaggWriter struct {
	llvm  llvm
	basic bool
	// dir, if not empty, receives a file for each binary.
	dir string
	// Otherwise path is the path of the only profile, and out its output.
	path string
	out  output.Output
	// open opens the file of a binary, which the caller closes. nil means by
	// name.
	open func(*bolt.Binary) (*elffile.File, error)
}

// openPreagg opens the outputs.
func openPreagg(l llvm, basic, all bool, path string, stdout io.Writer) (*preaggWriter, error) {
	w := &preaggWriter{llvm: l, basic: basic}
	if all {
		w.dir = path
		return w, os.MkdirAll(path, 0o755)
	}
	w.path = path
	var err error
	w.out, err = output.Create(path, stdout)
	return w, err
}

// abort removes uncommitted outputs.
func (w *preaggWriter) abort() error {
	if w.out == nil {
		return nil
	}
	return w.out.Abort()
}

// write writes the profiles and returns their paths by binary. If there are several
// binaries, those without branches or samples get no profile.
func (w *preaggWriter) write(ctx context.Context, c *bolt.Collector) (map[*bolt.Binary]string, error) {
	paths := map[*bolt.Binary]string{}
	taken := map[string]bool{}
	err := c.Each(func(b *bolt.Binary, traces iter.Seq2[bolt.Trace, error]) error {
		traces = until(ctx, traces)
		if w.dir == "" {
			paths[b] = w.path
			return w.encode(w.out, b, traces)
		}
		if s := b.Stats(); s.Branches+s.Samples == 0 {
			return nil
		}
		paths[b] = filepath.Join(w.dir, unusedName(bolt.ProfileName(b), taken))
		out, err := atomicfile.Create(paths[b])
		if err != nil {
			return err
		}
		return errors.Join(w.encode(out, b, traces), out.Abort())
	})
	return paths, err
}

// unusedName returns name, or name with a number if it is already taken by another
// file without a build ID.
func unusedName(name string, taken map[string]bool) string {
	unused := name
	for n := 2; taken[unused]; n++ {
		unused = strings.TrimSuffix(name, "."+Format) + "-" + strconv.Itoa(n) + "." + Format
	}
	taken[unused] = true
	return unused
}

// encode writes the profile of b to out and commits it.
func (w *preaggWriter) encode(out output.Output, b *bolt.Binary, traces iter.Seq2[bolt.Trace, error]) error {
	var err error
	switch {
	case w.basic:
		err = bolt.WriteBasic(out, basicEvent, traces)
	case w.llvm.version >= tracesLLVM:
		err = bolt.WriteTraces(out, traces)
	default:
		err = w.writeBranches(out, b, traces)
	}
	if err != nil {
		return err
	}
	return out.Commit()
}

func (w *preaggWriter) writeBranches(out io.Writer, b *bolt.Binary, traces iter.Seq2[bolt.Trace, error]) error {
	open := w.open
	if open == nil {
		open = func(b *bolt.Binary) (*elffile.File, error) { return elffile.Open(b.Name) }
	}
	f, err := open(b)
	if err != nil {
		return err
	}
	functions, err := bolt.NewFunctions(f)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return bolt.WriteBranches(out, b, functions, traces, 0)
}

// until yields traces until ctx ends, then its error.
func until(ctx context.Context, traces iter.Seq2[bolt.Trace, error]) iter.Seq2[bolt.Trace, error] {
	return func(yield func(bolt.Trace, error) bool) {
		for t, err := range traces {
			if ctx.Err() != nil {
				yield(bolt.Trace{}, ctx.Err())
				return
			}
			if !yield(t, err) {
				return
			}
		}
	}
}

// openBinary describes the ELF file at path.
func openBinary(path string) (*bolt.Binary, error) {
	f, err := elffile.Open(path)
	if err != nil {
		return nil, err
	}
	b, err := bolt.NewBinary(f)
	return b, errors.Join(err, f.Close())
}

// describeBinary names a binary for the user.
func describeBinary(b *bolt.Binary) string {
	if b.BuildID == "" {
		return plain.Terminal(b.Name) + ", which has no build ID"
	}
	return fmt.Sprintf("%s (build ID %s)", plain.Terminal(b.Name), b.BuildID)
}
