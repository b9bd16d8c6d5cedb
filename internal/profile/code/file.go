// Package code opens the binaries of a profile to show the code that ran: functions,
// source lines and instructions at addresses.
//
// Profiles are untrusted. So a binary is used only if its build ID proves that it is the
// profiled one, and a source file is read only if the debug information of that binary
// mentions it at the given address.
package code

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"fulgur/internal/files/safeopen"
	"fulgur/internal/symbols/debugfile"
	"fulgur/internal/symbols/disasm"
	"fulgur/internal/symbols/elffile"
	"fulgur/internal/symbols/symbolize"
)

// ErrNoFunction is wrapped by errors for addresses without a known function.
var ErrNoFunction = errors.New("no function is known there")

// File is a binary, or only its debug file. Its methods are safe for concurrent use.
type File struct {
	binary *safeopen.File  // nil for the vDSO, and if only the debug file is available
	debug  *debugfile.File // nil if the binary is available
	names  *symbolize.ELF  // function names only
	all    *symbolize.ELF  // with lines and inlined functions
}

// VDSO is the name of the vDSO in profiles.
const VDSO = "[vdso]"

// Open opens the file at path, as seen by the profiled process, if it has the given build
// ID. The build ID may be unknown, but not of [VDSO], which is this machine's. If the file is not available, Open looks for its debug
// file by build ID. It may download that until ctx is done.
func Open(ctx context.Context, finder *debugfile.Finder, name, buildID string, o symbolize.Options) (*File, error) {
	f := &File{}
	if name == VDSO {
		if err := f.openVDSO(buildID, o); err != nil {
			return nil, err
		}
		return f, nil
	}
	place, err := f.findBinary(finder, name, buildID, o)
	if err == nil {
		f.all.Search(ctx, finder, place.Root, place.Path)
		f.names.Search(ctx, finder, place.Root, place.Path)
		return f, nil
	}
	if buildID == "" || finder == nil {
		return nil, err
	}
	debug, debugErr := finder.ByBuildID(ctx, buildID)
	if debugErr != nil {
		if problems := debugfile.Problems(debugErr); len(problems) > 0 {
			return nil, errors.Join(append([]error{err}, problems...)...)
		}
		return nil, err
	}
	f.debug = debug
	f.all = symbolize.NewELF(debug.File, o)
	o.NoInlines = true
	f.names = symbolize.NewELF(debug.File, o)
	f.all.Search(ctx, finder, debug.Root, debug.Path)
	f.names.Search(ctx, finder, debug.Root, debug.Path)
	return f, nil
}

// findBinary opens the file itself, where finder knows it.
func (f *File) findBinary(finder *debugfile.Finder, name, buildID string, o symbolize.Options) (at debugfile.Place, err error) {
	name, deleted := strings.CutSuffix(name, " (deleted)")
	if !path.IsAbs(name) {
		return at, fmt.Errorf("%s is not a file", name)
	}
	var problems []error
	for _, place := range finder.Binaries(name, buildID) {
		err := f.openBinary(place, name, buildID, deleted, o)
		if err == nil {
			return place, nil
		}
		problems = append(problems, err)
	}
	// A file that is another build says more than one that is not there.
	for _, err := range problems {
		if !errors.Is(err, fs.ErrNotExist) {
			return at, err
		}
	}
	return at, problems[0]
}

// openBinary opens the file at a place.
func (f *File) openBinary(at debugfile.Place, name, buildID string, deleted bool, o symbolize.Options) (err error) {
	if f.binary, err = safeopen.Open(at.Root, at.Path, safeopen.Regular); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.binary.Close())
			f.binary = nil
		}
	}()
	info, err := f.binary.Stat()
	if err != nil {
		return err
	}
	if f.all, err = symbolize.OpenELF(f.binary, info.Size(), path.Join(at.Root, at.Path), o); err != nil {
		return err
	}
	o.NoInlines = true
	f.names = symbolize.NewELF(f.all.File(), o)
	if deleted && buildID == "" {
		return fmt.Errorf("%s was deleted, and without a build ID the file that now has its name may be another one", name)
	}
	return f.check(path.Join(at.Root, at.Path), buildID)
}

// openVDSO opens the vDSO of this process.
func (f *File) openVDSO(buildID string, o symbolize.Options) (err error) {
	if buildID == "" {
		return fmt.Errorf("%s: no build ID was recorded", VDSO)
	}
	if f.all, err = symbolize.OpenVDSO(o); err != nil {
		return err
	}
	o.NoInlines = true
	f.names = symbolize.NewELF(f.all.File(), o)
	return f.check(VDSO, buildID)
}

// check returns an error if the file has another build ID than the profiled one.
func (f *File) check(name, buildID string) error {
	if got := f.all.BuildID(); buildID != "" && got != "" && !elffile.SameBuildID(buildID, got) {
		return fmt.Errorf("%s is another build: build ID %s was recorded, the file has %s", name, buildID, got)
	}
	return nil
}

// Close closes the file and its debug files.
func (f *File) Close() error {
	err := errors.Join(f.all.Close(), f.names.Close())
	if f.binary != nil {
		err = errors.Join(err, f.binary.Close())
	}
	if f.debug != nil {
		err = errors.Join(err, f.debug.Close())
	}
	return err
}

// ELF returns the binary. ok is false if only the debug file is available.
func (f *File) ELF() (binary *debugfile.File, ok bool) {
	switch {
	case f.debug != nil:
		return nil, false
	case f.binary == nil:
		return &debugfile.File{File: f.all.File()}, true
	}
	return &debugfile.File{File: f.all.File(), Root: "/", Path: f.binary.Name()}, true
}

// BuildID returns the file's GNU build ID in lowercase hex, or "".
func (f *File) BuildID() string { return f.all.BuildID() }

// Modified returns the time of the file's last change, which is no earlier than its
// build, or zero if unknown.
func (f *File) Modified() time.Time {
	if f.binary == nil {
		return time.Time{}
	}
	info, err := f.binary.Stat()
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

// Base returns the link-time virtual address of the file's lowest loaded
// segment.
func (f *File) Base() uint64 { return f.all.File().Base() }

// Address returns the link-time virtual address of the code at a file offset. ok is false
// if there is no code, and always if only the debug file is available, because its
// offsets differ.
func (f *File) Address(fileOffset uint64) (address uint64, ok bool) {
	if f.debug != nil {
		return 0, false
	}
	return f.all.Address(fileOffset)
}

// LookupBatch implements [symbolize.Table] on link-time virtual addresses.
func (f *File) LookupBatch(addrs []uint64) ([][]symbolize.Frame, error) {
	return f.all.LookupBatch(addrs)
}

// Function is a function's location in a file, ignoring inlined functions.
type Function struct {
	Name string
	// Start is its link-time virtual address, and Size its size in bytes.
	Start, Size uint64
}

// maxFunction bounds the size of a function, in bytes.
const maxFunction = 1 << 20

// Function returns the function at a link-time virtual address. The error wraps
// [ErrNoFunction] if there is none.
func (f *File) Function(address uint64) (Function, error) {
	at, err := f.Functions([]uint64{address})
	if at[0] == nil {
		return Function{}, errors.Join(fmt.Errorf("%s, address %#x: %w", f.all.File().Name(), address, ErrNoFunction), err)
	}
	fn := *at[0]
	end, err := f.end(fn, address)
	fn.Size = end - fn.Start
	return fn, err
}

// Functions returns the functions at link-time virtual addresses in ascending order,
// without their sizes. Entries without a known function are nil.
func (f *File) Functions(addresses []uint64) ([]*Function, error) {
	list := make([]*Function, len(addresses))
	found, err := f.names.LookupBatch(addresses)
	for i, frames := range found {
		if len(frames) > 0 {
			outer := frames[len(frames)-1]
			list[i] = &Function{Name: outer.Name, Start: addresses[i] - outer.Offset}
		}
	}
	return list, err
}

// end returns the end of the function that has code at inside. Tables specify it
// differently for different kinds of symbols, so it is found by lookups that approach it
// from both sides.
func (f *File) end(fn Function, inside uint64) (uint64, error) {
	const asked = 64
	outside := f.codeEnd(inside)
	for outside-inside > 1 {
		step := max((outside-inside)/asked, 1)
		var points []uint64
		for at := inside + step; at < outside; at += step {
			points = append(points, at)
		}
		found, err := f.Functions(points)
		if err != nil {
			return inside + 1, err
		}
		first := slices.IndexFunc(found, func(at *Function) bool { return at == nil || at.Start != fn.Start })
		if first < 0 {
			inside = points[len(points)-1]
			continue
		}
		outside = points[first]
		if first > 0 {
			inside = points[first-1]
		}
	}
	return outside, nil
}

// codeEnd returns the end of the segment that contains an address, or the maximum extent
// of a function.
func (f *File) codeEnd(address uint64) uint64 {
	end := address + 1
	for _, s := range f.all.File().Segments() {
		if s.Type == elf.PT_LOAD && address >= s.Addr && address-s.Addr < s.MemSize {
			end = s.Addr + s.MemSize
		}
	}
	return min(end, address+maxFunction)
}

// Executable returns the part of the addresses from start up to end that is code, in the
// first code segment that has any of them. It is empty if there is none.
func (f *File) Executable(start, end uint64) (from, to uint64) {
	for _, s := range f.all.File().Segments() {
		if s.Type != elf.PT_LOAD || s.Flags&elf.PF_X == 0 {
			continue
		}
		if from, to = max(start, s.Addr), min(end, s.Addr+s.FileSize); from < to {
			return from, to
		}
	}
	return 0, 0
}

// Arch returns the architecture of the code as named by the Firefox Profiler: "x86_64",
// "arm64".
func (f *File) Arch() string { return arch(f.all.File().Machine()) }

func arch(m elf.Machine) string {
	switch m {
	case elf.EM_X86_64:
		return "x86_64"
	case elf.EM_AARCH64:
		return "arm64"
	default:
		return m.String()
	}
}

// Disassemble returns the instructions in size bytes at a link-time virtual address. It
// fails if only the debug file is available, which has no code.
func (f *File) Disassemble(ctx context.Context, start, size uint64) ([]disasm.Instruction, error) {
	name := f.all.File().Name()
	if f.debug != nil {
		return nil, fmt.Errorf("%s is a debug file: the program is not here", name)
	}
	size = min(size, f.codeEnd(start)-start)
	offset, ok := f.all.File().Offset(start)
	if !ok {
		return nil, fmt.Errorf("%s has no code at %#x", name, start)
	}
	bytes, err := f.all.File().Bytes(int64(offset), size, "code")
	if err != nil {
		return nil, err
	}
	machine := f.all.File().Machine()
	decoded, err := disasm.Decode(machine, bytes, start)
	if f.binary == nil && err != nil {
		return nil, err
	}
	if f.binary != nil && (err != nil || decoded.Unknown() > 0) {
		list, objdumpErr := disasm.Objdump(ctx, f.binary.OS(), machine, start, start+size)
		if objdumpErr == nil && len(list) > 0 {
			return list, nil
		}
		if err != nil {
			return nil, errors.Join(err, objdumpErr)
		}
	}
	names, err := f.targets(decoded)
	return decoded.Instructions(names), err
}

// targets returns the names of branch targets.
func (f *File) targets(c *disasm.Code) (map[uint64]disasm.Symbol, error) {
	targets := c.Targets()
	slices.Sort(targets)
	targets = slices.Compact(targets)
	found, err := f.Functions(targets)
	names := map[uint64]disasm.Symbol{}
	for i, fn := range found {
		if fn != nil {
			names[targets[i]] = disasm.Symbol{Name: fn.Name, Offset: targets[i] - fn.Start}
		}
	}
	return names, err
}
