package branches

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path"
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

// profileWriter writes the profiles of a collector.
type profileWriter struct {
	llvm    llvm
	options *ProfileOptions
	// dir, if not empty, receives a file for each binary.
	dir string
	// Otherwise path is the path of the only profile, and out its output.
	path string
	out  output.Output
	// waits ends waits for the readers of outputs.
	waits context.Context
	// open opens the file of a binary, which the caller closes. nil means by
	// name.
	open func(*bolt.Binary) (*elffile.File, error)
	// refused holds why binaries got no profile, if there are several.
	refused map[*bolt.Binary]error
	// samples describes the sample profiles that were written.
	samples map[*bolt.Binary]sampleStats
}

// openWriter opens the outputs. Once ctx is done, they no longer wait for readers.
func openWriter(ctx context.Context, l llvm, o *ProfileOptions, path string, stdout io.Writer) (*profileWriter, error) {
	w := &profileWriter{llvm: l, options: o, waits: ctx}
	if o.AllBinaries {
		w.dir = path
		return w, os.MkdirAll(path, 0o755)
	}
	w.path = path
	var err error
	w.out, err = output.Create(ctx, path, stdout)
	return w, err
}

// abort removes uncommitted outputs.
func (w *profileWriter) abort() error {
	if w.out == nil {
		return nil
	}
	return w.out.Abort()
}

// write writes the profiles and returns their paths by binary. If there are several
// binaries, those without branches or samples get no profile.
func (w *profileWriter) write(ctx context.Context, c *bolt.Collector) (map[*bolt.Binary]string, error) {
	if err := w.verify(ctx, c); err != nil {
		return nil, err
	}
	paths := map[*bolt.Binary]string{}
	taken := map[string]bool{}
	err := c.Each(func(b *bolt.Binary, traces iter.Seq2[bolt.Trace, error]) error {
		traces = until(ctx, traces)
		if w.dir == "" {
			paths[b] = w.path
			return w.encode(ctx, w.out, b, traces)
		}
		_, refused := w.refused[b]
		if s := b.Stats(); refused || s.Branches+s.Samples == 0 {
			return nil
		}
		paths[b] = filepath.Join(w.dir, unusedName(w.options.profileName(b), taken))
		out, err := atomicfile.Create(w.waits, paths[b])
		if err != nil {
			return err
		}
		encoded := errors.Join(w.encode(ctx, out, b, traces), out.Abort())
		if !errors.Is(encoded, errNoDebug) {
			return encoded
		}
		delete(paths, b)
		w.refuse(b, encoded)
		return nil
	})
	return paths, err
}

// verify checks that the recorded branches are in the binaries' code. If there are several
// binaries, a binary of other code gets no profile.
func (w *profileWriter) verify(ctx context.Context, c *bolt.Collector) error {
	if w.options.Basic {
		return nil
	}
	return c.Each(func(b *bolt.Binary, traces iter.Seq2[bolt.Trace, error]) error {
		if b.Stats().Branches == 0 {
			return nil
		}
		err := w.verifyBinary(ctx, b, traces)
		if w.dir != "" && ctx.Err() == nil && err != nil {
			w.refuse(b, err)
			return nil
		}
		return err
	})
}

func (w *profileWriter) verifyBinary(ctx context.Context, b *bolt.Binary, traces iter.Seq2[bolt.Trace, error]) error {
	f, err := w.openFile(b)
	if err != nil {
		return err
	}
	return errors.Join(bolt.NewCode(f).Verify(b, until(ctx, traces)), f.Close())
}

// refuse notes why b gets no profile.
func (w *profileWriter) refuse(b *bolt.Binary, why error) {
	if w.refused == nil {
		w.refused = map[*bolt.Binary]error{}
	}
	w.refused[b] = why
}

// unusedName returns name, or name with a number if it is already taken by another
// file without a build ID.
func unusedName(name string, taken map[string]bool) string {
	unused := name
	for n := 2; taken[unused]; n++ {
		ending := path.Ext(name)
		unused = strings.TrimSuffix(name, ending) + "-" + strconv.Itoa(n) + ending
	}
	taken[unused] = true
	return unused
}

// encode writes the profile of b to out and commits it.
func (w *profileWriter) encode(ctx context.Context, out output.Output, b *bolt.Binary, traces iter.Seq2[bolt.Trace, error]) error {
	var err error
	switch {
	case w.options.Samples != "":
		err = w.writeSamples(ctx, out, b, traces)
	case w.options.Basic:
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

// openFile opens the file of b.
func (w *profileWriter) openFile(b *bolt.Binary) (*elffile.File, error) {
	if w.open == nil {
		return elffile.Open(b.Name)
	}
	return w.open(b)
}

func (w *profileWriter) writeBranches(out io.Writer, b *bolt.Binary, traces iter.Seq2[bolt.Trace, error]) error {
	f, err := w.openFile(b)
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
