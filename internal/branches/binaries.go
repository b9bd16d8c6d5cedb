package branches

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"fulgur/internal/bolt"
	"fulgur/internal/files/safeopen"
	"fulgur/internal/linux/capability"
	"fulgur/internal/linux/procfs"
	"fulgur/internal/message/plain"
	"fulgur/internal/message/usage"
	"fulgur/internal/process"
	"fulgur/internal/symbols/elffile"
)

// binaries are the files to profile: one chosen file, or all mapped files. A file is
// identified by its build ID, so copies in containers count as one; without a build
// ID, by its device and inode.
type binaries struct {
	collector *bolt.Collector
	// only is the chosen binary, nil if all are wanted.
	only *bolt.Binary
	// chosen is the file of only.
	chosen *safeopen.File

	byFile map[*process.File]*bolt.Binary // nil for unwanted files
	byID   map[string]*bolt.Binary
	source map[*bolt.Binary]contents

	// kernel is the layout of all samples if only is the running kernel, empty otherwise.
	kernel bolt.Layout
}

// contents is a way to read a binary.
type contents struct {
	io.ReaderAt
	size int64
}

// chooseFor chooses the one file that o selects.
func (bs *binaries) chooseFor(ctx context.Context, o *Options) error {
	if o.Kernel {
		return bs.chooseKernel(ctx, o)
	}
	return bs.choose(o.Binary, o.Target.PIDs)
}

// choose chooses the file at path, or the one program that all of pids run.
func (bs *binaries) choose(path string, pids []int) error {
	if path != "" {
		return bs.chooseFile(path, path, safeopen.AsUser)
	}
	for i, pid := range pids {
		exe := procfs.Program(pid)
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
			return fmt.Errorf("examine the program of process %d: %w", pid, err)
		}
		if !bs.isChosen(info) {
			return usage.Errorf("process %d runs %s, but process %d runs %s: choose one with %s, or use %s",
				pids[0], plain.Terminal(bs.only.Name), pid, plain.Terminal(name), usage.Binary, usage.AllBinaries)
		}
	}
	return nil
}

// toReadProgram are the capabilities for reading the program of another user's
// process.
var toReadProgram = capability.SetOf(capability.SysPtrace, capability.DACReadSearch)

// chooseFile chooses the file at path, opened with the given capabilities. name is
// its name in outputs.
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

// describe describes the ELF file in c.
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

// of returns the binary of a mapped file, nil if it is unwanted or unreadable. If
// its file system has not responded yet, of reads it again the next time.
func (bs *binaries) of(f *process.File) *bolt.Binary {
	b, met := bs.byFile[f]
	if met {
		return b
	}
	b, err := bs.find(f)
	if errors.Is(err, safeopen.ErrNoAnswer) {
		return nil
	}
	if bs.byFile == nil {
		bs.byFile = map[*process.File]*bolt.Binary{}
	}
	bs.byFile[f] = b
	return b
}

// isKnown reports whether the result of [binaries.of] for f is final.
func (bs *binaries) isKnown(f *process.File) bool {
	_, met := bs.byFile[f]
	return met
}

// find returns the binary of f, nil if it is unwanted.
func (bs *binaries) find(f *process.File) (*bolt.Binary, error) {
	r, size, err := f.ReaderAt()
	if err != nil {
		return nil, err
	}
	b, err := bs.describe(contents{r, size}, f.Path)
	if err != nil {
		return nil, err // a JIT's file, or a library for another architecture
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

// isOnly reports whether b, mapped from f, is the chosen binary.
func (bs *binaries) isOnly(b *bolt.Binary, f *process.File) bool {
	if bs.only.BuildID != "" || b.BuildID != "" {
		return bs.only.BuildID == b.BuildID
	}
	return f.Is(bs.chosen)
}

// isChosen reports whether info describes the chosen file.
func (bs *binaries) isChosen(info os.FileInfo) bool {
	chosen, err := bs.chosen.Stat()
	return err == nil && safeopen.Same(chosen, info)
}

// inPlace reports whether the chosen file's path leads to it. The file may have been
// replaced, or be in a container.
func (bs *binaries) inPlace() bool {
	info, err := safeopen.Stat(bs.only.Name)
	return err == nil && bs.isChosen(info)
}

// path returns a path of the chosen file for other programs: its own path if that
// leads to it.
func (bs *binaries) path() string {
	if bs.inPlace() {
		return bs.only.Name
	}
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), bs.chosen.OS().Fd())
}

// open opens the file of a described binary.
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
