package boltprofile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"fulgur/internal/bolt"
	"fulgur/internal/files/answer"
	"fulgur/internal/files/safeopen"
	"fulgur/internal/linux/capability"
	"fulgur/internal/linux/procfs"
	"fulgur/internal/message/plain"
	"fulgur/internal/message/usage"
	"fulgur/internal/process"
	"fulgur/internal/symbols/elffile"
)

// binaries are the files whose profiles are taken: one that was chosen, or all
// that are met. A file is known by its build ID, so that its copies, as
// containers have them, are one; without one, by its place.
type binaries struct {
	collector *bolt.Collector
	// only is the one that was chosen, nil if all are wanted.
	only *bolt.Binary
	// chosen is its file.
	chosen *safeopen.File

	byFile map[*process.File]*bolt.Binary // nil is for those that are not wanted
	byID   map[string]*bolt.Binary
	source map[*bolt.Binary]contents
}

// contents are where a binary can be read.
type contents struct {
	io.ReaderAt
	size int64
}

// choose takes the file at path, or the one program that all of pids run, to be
// the only one.
func (bs *binaries) choose(path string, pids []int) error {
	if path != "" {
		return bs.chooseFile(path, path, safeopen.AsUser)
	}
	for i, pid := range pids {
		exe := procfs.Path(pid, "exe")
		name, err := procfs.Readlink(pid, "exe")
		if err != nil {
			return fmt.Errorf("find the program of process %d: %w", pid, err)
		}
		name = strings.TrimSuffix(name, " (deleted)")
		if i == 0 {
			if err := bs.chooseFile(exe, name, toReadProgram); err != nil {
				return fmt.Errorf("the program of process %d: %w", pid, err)
			}
			continue
		}
		info, err := safeopen.StatTrusted(exe, toReadProgram)
		if err != nil {
			return fmt.Errorf("look at the program of process %d: %w", pid, err)
		}
		if !bs.isChosen(info) {
			return usage.Errorf("process %d runs %s, but process %d runs %s: choose one with --binary, or use --all-binaries",
				pids[0], plain.Terminal(bs.only.Name), pid, plain.Terminal(name))
		}
	}
	return nil
}

// toReadProgram is what it takes to read the program that another user's process runs.
var toReadProgram = capability.SetOf(capability.SysPtrace, capability.DACReadSearch)

// chooseFile takes the file at path, opened with the given capabilities, which goes by
// name.
func (bs *binaries) chooseFile(path, name string, rights capability.Set) error {
	f, err := safeopen.OpenTrusted(path, rights, safeopen.Regular)
	if err != nil {
		return err
	}
	bs.chosen = f
	info, err := f.Stat()
	if err != nil {
		return err
	}
	b, err := bs.describe(contents{f, info.Size()}, name)
	if err != nil {
		return err
	}
	bs.only = b
	bs.collector.Register(b)
	return nil
}

// describe describes the ELF file that c holds.
func (bs *binaries) describe(c contents, name string) (*bolt.Binary, error) {
	e, err := elffile.New(c, c.size, name)
	if err != nil {
		return nil, err
	}
	b, err := bolt.NewBinary(e)
	if err := errors.Join(err, e.Close()); err != nil {
		return nil, err
	}
	if bs.source == nil {
		bs.source = map[*bolt.Binary]contents{}
	}
	bs.source[b] = c
	return b, nil
}

// of returns the binary that a mapped file is, nil if it is not wanted or
// cannot be read. One whose file system has yet to answer is read again.
func (bs *binaries) of(f *process.File) *bolt.Binary {
	b, met := bs.byFile[f]
	if met {
		return b
	}
	b, err := bs.find(f)
	if errors.Is(err, answer.ErrNone) {
		return nil
	}
	if bs.byFile == nil {
		bs.byFile = map[*process.File]*bolt.Binary{}
	}
	bs.byFile[f] = b
	return b
}

// isKnown reports whether [binaries.of] has an answer for f that stays the same.
func (bs *binaries) isKnown(f *process.File) bool {
	_, met := bs.byFile[f]
	return met
}

// find returns the binary that f is, nil if it is not wanted.
func (bs *binaries) find(f *process.File) (*bolt.Binary, error) {
	r, size, err := f.ReaderAt()
	if err != nil {
		return nil, err
	}
	b, err := bs.describe(contents{r, size}, f.Path)
	if err != nil {
		return nil, err // a JIT's file, or a library of another machine
	}
	if bs.only != nil {
		if !bs.isOnly(b, f) {
			delete(bs.source, b)
			return nil, nil
		}
		return bs.only, nil
	}
	if b.BuildID != "" {
		if same := bs.byID[b.BuildID]; same != nil {
			delete(bs.source, b)
			return same, nil
		}
		if bs.byID == nil {
			bs.byID = map[string]*bolt.Binary{}
		}
		bs.byID[b.BuildID] = b
	}
	bs.collector.Register(b)
	return b, nil
}

// isOnly reports whether b, mapped from f, is the binary that was chosen.
func (bs *binaries) isOnly(b *bolt.Binary, f *process.File) bool {
	if bs.only.BuildID != "" || b.BuildID != "" {
		return bs.only.BuildID == b.BuildID
	}
	return f.Is(bs.chosen)
}

// isChosen reports whether info is of the file that was chosen.
func (bs *binaries) isChosen(info os.FileInfo) bool {
	chosen, err := bs.chosen.Stat()
	return err == nil && safeopen.Same(chosen, info)
}

// inPlace reports whether the path of the file that was chosen leads to it: it
// may have been replaced, or be one of a container.
func (bs *binaries) inPlace() bool {
	info, err := safeopen.Stat(bs.only.Name)
	return err == nil && bs.isChosen(info)
}

// path returns one of the file that was chosen, for other programs: its own if
// that leads there.
func (bs *binaries) path() string {
	if bs.inPlace() {
		return bs.only.Name
	}
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), bs.chosen.OS().Fd())
}

// open opens the file of a binary that was described.
func (bs *binaries) open(b *bolt.Binary) (*elffile.File, error) {
	c := bs.source[b]
	return elffile.New(c, c.size, b.Name)
}

func (bs *binaries) close() error {
	if bs.chosen == nil {
		return nil
	}
	return bs.chosen.Close()
}
