package unwindmap

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"time"

	"fulgur/internal/linux/procfs"
	"fulgur/internal/process"
	"fulgur/internal/symbols/debugfile"
	"fulgur/internal/symbols/elffile"
	"fulgur/internal/unwind"
)

// Machine is the machine of this process, and so of the kernel's walker.
var Machine = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[runtime.GOARCH]

// input is what a table is made of.
type input struct {
	r    io.ReaderAt
	size int64
	name string
	// root is the directory in which name is resolved, or empty if unknown.
	root string
	// finder finds the separate debug file; nil means none.
	finder *debugfile.Finder
}

// openFile opens a mapped file.
func openFile(f *process.File, finder *debugfile.Finder) (input, error) {
	r, size, err := f.ReaderAt()
	return input{r: r, size: size, name: f.Path, root: f.Root(), finder: finder}, err
}

// compile makes the table of a file. What it returns with an error is what is known of the code without the
// table.
func compile(ctx context.Context, s input, opt unwind.Options) (c unwind.Code, err error) {
	began := time.Now()
	defer func() {
		slog.Debug("unwind table", "file", s.name, "code", !opt.Deferred, "took", time.Since(began), "error", err)
	}()
	f, err := elffile.New(interruptible{ctx, s.r}, s.size, s.name)
	if err != nil {
		return unwind.Generated(), err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	f.SetContext(ctx)
	if f.Machine() != Machine { // such as code of 32-bit programs
		return c, fmt.Errorf("%s: %w for machine %v", s.name, unwind.ErrNoTable, f.Machine())
	}
	t, err := Compile(ctx, &debugfile.File{File: f, Root: s.root, Path: s.name}, s.finder, opt)
	return unwind.CodeOf(f, t), err
}

// Compile is [unwind.Compile] for an open file. It waits while another large file is compiled.
// finder finds the separate debug file; nil means to use none.
func Compile(ctx context.Context, f *debugfile.File, finder *debugfile.Finder, opt unwind.Options) (t *unwind.Table, err error) {
	in := inputs{ctx: ctx, binary: f, finder: finder}
	defer func() { err = errors.Join(err, in.close()) }()
	if err := in.admit(f.File); err != nil {
		return nil, err
	}
	opt.Debug = in.openDebug
	return unwind.Compile(f.File, opt)
}

// interruptible is a reader that fails once ctx is done. Compiling a crafted file may
// take long.
type interruptible struct {
	ctx context.Context
	r   io.ReaderAt
}

// ReadAt implements io.ReaderAt.
func (i interruptible) ReadAt(b []byte, off int64) (int, error) {
	if err := context.Cause(i.ctx); err != nil {
		return 0, err
	}
	return i.r.ReadAt(b, off)
}

// vsyscallTable describes the page of legacy system calls: three functions without
// frames.
func vsyscallTable() *unwind.Table {
	return &unwind.Table{
		Segments: []unwind.Segment{{Size: 4096}},
		Blocks:   []uint32{0, 1, 1, 1, 1},
		Rows:     []unwind.Row{unwind.Row(0).WithRule(1)},
		Rules:    []unwind.Rule{{}, {Kind: unwind.KindSP, CFA: 8, RASlot: unwind.SlotCFA, RA: -8}},
	}
}

// readVDSO returns the vDSO, which is the same in every 64-bit process.
func readVDSO() (input, error) {
	image, err := procfs.VDSO()
	if err != nil {
		return input{}, err
	}
	return input{r: bytes.NewReader(image), size: int64(len(image)), name: "[vdso]"}, nil
}
