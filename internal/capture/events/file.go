package events

import (
	"bytes"
	"cmp"
	"context"
	"debug/buildinfo"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"fulgur/internal/capture/uprobe"
	"fulgur/internal/files/safeopen"
	"fulgur/internal/message/usage"
	"fulgur/internal/process"
	"fulgur/internal/symbols/boundary"
	"fulgur/internal/symbols/callframe"
	"fulgur/internal/symbols/debugfile"
	"fulgur/internal/symbols/elffile"
	"fulgur/internal/symbols/rseq"
)

// inFiles finds functions and USDT probes in a file.
func (r *Resolver) inFiles(p *Probe, q Query) error {
	if err := r.open(p); err != nil {
		return err
	}
	finder, err := DebugFiles()
	if err != nil {
		return usage.Errorf("%s: %v", p.Event, err)
	}
	similar := &nearest{to: p.Event.Name}
	what := "function with a symbol in the file"
	if p.Event.Kind == USDT {
		what = "USDT probe in the file"
		similar.to = p.Event.Group + ":" + p.Event.Name
	}
	for i, f := range p.elfs {
		p.tables = append(p.tables, finder.Tables(context.Background(), &debugfile.File{File: f, Root: p.places[i].root, Path: p.places[i].path}))
		var err error
		if p.Event.Kind == USDT {
			err = p.usdt(f, i, q, similar)
		} else {
			err = p.symbols(f, i, q, similar)
		}
		if err != nil {
			return err
		}
	}
	if p.Event.Kind != USDT && len(p.Points) == 0 {
		what += p.stripped()
	}
	return p.complete(similar, what)
}

// DebugFiles returns a finder of debug files on this machine, which have the symbols of stripped
// files.
func DebugFiles() (*debugfile.Finder, error) {
	finder, err := debugfile.New(debugfile.Config{})
	if err != nil {
		return nil, err
	}
	return finder.Local(), nil
}

// readFile reads what is needed of a file to put probes into it.
func (p *Probe) readFile(file *safeopen.File) (*elffile.File, *rseq.Sequences, error) {
	if err := uprobe.CheckFile(file); err != nil {
		return nil, nil, err
	}
	info, err := file.Stat()
	if err != nil {
		return nil, nil, err
	}
	f, err := elffile.New(file, info.Size(), p.Event.Path)
	if err != nil {
		return nil, nil, err
	}
	switch f.Machine() {
	case elf.EM_X86_64, elf.EM_AARCH64:
	default:
		return nil, nil, fmt.Errorf("programs for %s are not supported", f.Machine())
	}
	sequences, err := rseq.Read(f)
	return f, sequences, err
}

// open opens the event's file in each process. Processes often share it. If they have several, it leaves
// out those that cannot be read, unless none can.
func (r *Resolver) open(p *Probe) error {
	name := p.Event.Path
	if len(r.PIDs) == 0 {
		name, err := filepath.Abs(name)
		if err != nil {
			return err
		}
		f, err := safeopen.Open("/", name, safeopen.Regular)
		if err != nil {
			return usage.Errorf("%s: %v", p.Event, err)
		}
		if resolved, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.OS().Fd())); err == nil {
			name = resolved // debug files are beside the file, not beside a link to it
		}
		if err := p.addFile(f, place{"/", name}); err != nil {
			return usage.Errorf("%s: %v", p.Event, err)
		}
		return nil
	}
	if !filepath.IsAbs(name) {
		return usage.Errorf("%s: the path of a file in another process must begin with /", p.Event)
	}
	var unread error
	for _, pid := range r.PIDs {
		files, unopened, err := process.OpenPath(pid, name)
		if err != nil {
			return usage.Errorf("%s: process %d: %v", p.Event, pid, err)
		}
		for _, u := range unopened {
			p.leaveOutFile(u.Name, u.Err)
		}
		for _, f := range files {
			if err := p.addFile(f, place{process.Root(pid), f.Name()}); err != nil {
				info, _ := f.Stat() // known since it was opened
				p.leaveOutFile(fmt.Sprintf("%s of process %d (%d bytes)", f.Name(), pid, info.Size()), err)
				unread = cmp.Or(unread, err)
			}
		}
	}
	if len(p.Files) == 0 && unread != nil {
		return usage.Errorf("%s: %v", p.Event, unread)
	}
	return nil
}

// place is where a file is: its path below a root directory.
type place struct{ root, path string }

// addFile adds a file, which the probe then closes, unless it has it or cannot read it.
func (p *Probe) addFile(f *safeopen.File, at place) error {
	if slices.ContainsFunc(p.Files, func(other *safeopen.File) bool { return same(f, other) }) {
		return f.Close()
	}
	read, sequences, err := p.readFile(f)
	if err != nil {
		return errors.Join(err, f.Close())
	}
	p.Files, p.places = append(p.Files, f), append(p.places, at)
	p.elfs, p.sequences = append(p.elfs, read), append(p.sequences, sequences)
	return nil
}

// leaveOutFile notes that a file of a process is left out.
func (p *Probe) leaveOutFile(name string, err error) {
	if p.unread == nil {
		p.unread = map[string]bool{}
	}
	reason := err.Error()
	p.unread[reason] = true
	p.LeaveOut(name, reason)
}

func same(f, g *safeopen.File) bool {
	a, errA := f.Stat()
	b, errB := g.Stat()
	return errA == nil && errB == nil && safeopen.Same(a, b)
}

// function is a function in a file.
type function struct {
	name       string
	offset     uint64 // in the file
	addr, size uint64
}

// symbols finds functions by their symbols.
func (p *Probe) symbols(f *elffile.File, file int, q Query, similar *nearest) error {
	e := p.Event
	measuresCalls := q.Calls || e.Kind == Uretprobe
	found, err := p.functions(f, p.tables[file], measuresCalls, similar)
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return nil
	}
	inGo := IsGo(f)
	if measuresCalls && inGo != p.Go && len(p.Points) > 0 {
		return usage.Errorf("%s: the file is a Go program in some processes of the target, and not in others", e)
	}
	if p.Go = measuresCalls && inGo; p.Go {
		return p.goCalls(f, file, found, q)
	}
	if measuresCalls {
		return p.compiledCalls(f, file, found, q)
	}
	for _, fn := range found {
		if e.Offset > 0 {
			if err := checkBoundary(f, p.tables[file], fn, e.Offset); err != nil {
				return usage.Errorf("%s: %v", e, err)
			}
			if !isSteppable(f, fn.offset+e.Offset) {
				return usage.Errorf("%s: the kernel cannot trace the instruction", e)
			}
		}
	}
	if inGo {
		return p.goEntries(f, file, found, q)
	}
	for _, fn := range found {
		point := Point{Name: fn.name, File: file, Address: fn.offset + e.Offset}
		if err := p.add(point, q, call{}, IsGlob(e.Name)); err != nil {
			return err
		}
	}
	return nil
}

// errWithin is the reason why a function of a debug file is left out. The debug file of a container can have
// any symbols, and a breakpoint within an instruction changes what programs do, also others that share the file.
var errWithin = errors.New("its symbol in the debug file is within a function of the file")

// CheckStart returns an error if a file's call frame information says that an address is within a function.
func CheckStart(f *elffile.File, address uint64) error {
	if len(within(f, []uint64{address})) > 0 {
		return errWithin
	}
	return nil
}

// within returns the addresses that are within a function, according to a file's call frame information.
func within(f *elffile.File, addresses []uint64) []uint64 {
	slices.Sort(addresses)
	bounds, _ := callframe.Find(f, addresses) // what was not read contradicts nothing
	var found []uint64
	for i, b := range bounds {
		if b.Start != 0 && b.Start != addresses[i] {
			found = append(found, addresses[i])
		}
	}
	return found
}

// functions returns the functions that match, of which tables has the symbols, one for each address, in order. whole is set if parts of
// functions do not count.
func (p *Probe) functions(f *elffile.File, tables elffile.Tables, whole bool, similar *nearest) ([]function, error) {
	e, isGlob := p.Event, IsGlob(p.Event.Name)
	var found []function
	separate := false // whether the symbols are from another file
	var addresses []uint64
	add := func(sym elffile.Symbol, nameOf func() []byte) bool {
		if sym.Section == elf.SHN_UNDEF || sym.Type != elf.STT_FUNC && sym.Type != elf.STT_GNU_IFUNC {
			return true
		}
		name := string(nameOf())
		if !Match(e.Name, name) {
			similar.add(name)
			return true
		}
		offset, ok := f.Offset(sym.Value)
		if _, executable := f.Address(offset); !ok || !executable {
			return true
		}
		switch {
		case sym.Type == elf.STT_GNU_IFUNC:
			p.LeaveOut(name, "programs choose its implementation when they start: count the functions that implement it")
		case isPart(name) && (isGlob || whole):
			p.LeaveOut(name, "it is a part of a function, which jumps to it: count the uprobe with its full name")
		case e.Offset == 0 && !isSteppable(f, offset):
			p.LeaveOut(name, "the kernel cannot trace the instruction")
		case isGlob && sym.Size == 0:
			p.LeaveOut(name, "its symbol has no size, so it may not be a function")
		default:
			if separate {
				addresses = append(addresses, sym.Value)
			}
			found = append(found, function{name, offset, sym.Value, sym.Size})
		}
		return len(found) < maxFunctions
	}
	for i := range tables {
		separate = i > 0
		if err := tables[i : i+1].Each(add); err != nil {
			return nil, usage.Errorf("%s: %v", e, err)
		}
	}
	if len(addresses) > 0 {
		wrong := within(f, addresses)
		found = slices.DeleteFunc(found, func(fn function) bool {
			_, is := slices.BinarySearch(wrong, fn.addr)
			if is {
				p.LeaveOut(fn.name, errWithin.Error())
			}
			return is
		})
	}
	if len(found) == 0 {
		var err error
		if found, err = p.goFunctions(f, similar); err != nil {
			return nil, err
		}
	}
	// Aliases have the same address.
	slices.SortStableFunc(found, func(a, b function) int { return cmp.Compare(a.offset, b.offset) })
	return slices.CompactFunc(found, func(a, b function) bool { return a.offset == b.offset }), nil
}

// part matches the names that compilers give to the rarely executed part of a function. Since the
// function jumps there, the top of its stack is not a return address.
var part = regexp.MustCompile(`(\.cold(\.\d+)?)+$`)

// isPart reports whether a function's name is of a part of a function.
func isPart(name string) bool { return part.MatchString(name) }

// isSteppable reports whether the kernel supports a uprobe at an instruction of a file. It refuses
// those with a lock prefix or a segment prefix of x86 (see is_prefix_bad of its
// arch/x86/kernel/uprobes.c), and those that are unsteppable. Programs that map the file later would run without the uprobe.
func isSteppable(f *elffile.File, offset uint64) bool {
	const maxPrefixes = 4
	code, err := f.Bytes(int64(offset), maxPrefixes, "instruction")
	if err != nil || f.Machine() != elf.EM_X86_64 {
		return true
	}
	for _, b := range code {
		switch b {
		case 0xf0, 0x26, 0x2e, 0x36, 0x3e: // lock, es, cs, ss, ds
			return false
		case 0x64, 0x65, 0x66, 0x67, 0xf2, 0xf3:
		default:
			return bytes.IndexByte(unsteppable, b) < 0
		}
	}
	return true
}

// unsteppable are the first bytes of instructions that the kernel does not support: see good_insns_64 of its
// arch/x86/kernel/uprobes.c.
var unsteppable = []byte{
	0x06, 0x07, 0x0e, 0x16, 0x17, 0x1e, 0x1f, 0x27, 0x2f, 0x37, 0x3f, 0x60, 0x61, 0x62, 0x82, 0x9a, 0xd4, 0xd5, 0xd6, 0xea, // not in 64-bit code, or EVEX
	0x6c, 0x6d, 0x6e, 0x6f, 0xe4, 0xe5, 0xe6, 0xe7, 0xec, 0xed, 0xee, 0xef, // ins, outs, in, out
	0xcc, 0xcd, 0xce, 0xf1, 0xf4, 0xfa, 0xfb, // int3, int, into, int1, hlt, cli, sti
}

// maxFunctions limits the symbols that match, which a crafted file can have millions of.
const maxFunctions = 1 << 20

// IsGo reports whether a file has Go code. A uretprobe in it could crash the program.
func IsGo(f *elffile.File) bool {
	if sections, err := f.Sections(); err == nil {
		for _, s := range sections {
			if strings.HasSuffix(s.Name, ".gopclntab") || strings.HasPrefix(s.Name, ".note.go.") || s.Name == ".go.buildinfo" {
				return true
			}
		}
	}
	_, err := buildinfo.Read(f.Reader())
	return err == nil
}

// maxFunction bounds the size of a function that is disassembled, in bytes.
const maxFunction = 1 << 20

// maxLabels limits the symbols inside a function.
const maxLabels = 1 << 16

// checkBoundary checks that an instruction begins at an offset in a function.
func checkBoundary(f *elffile.File, tables elffile.Tables, fn function, offset uint64) error {
	switch {
	case fn.size == 0:
		return errors.New("the symbol of the function has no size, so it is unknown where its instructions begin")
	case offset >= fn.size:
		return fmt.Errorf("the function has only %d bytes", fn.size)
	case offset >= maxFunction:
		return fmt.Errorf("fulgur looks for instructions only in the first %d bytes of a function", maxFunction)
	}
	code, err := f.Bytes(int64(fn.offset), min(fn.size, maxFunction), "function")
	if err != nil {
		return err
	}
	in := boundary.Function{Machine: f.Machine(), Code: code, Start: fn.addr}
	err = tables.Each(func(sym elffile.Symbol, _ func() []byte) bool {
		if sym.Section == elf.SHN_UNDEF || sym.Value-fn.addr >= uint64(len(code)) {
			return true
		}
		switch sym.Type {
		case elf.STT_FUNC, elf.STT_GNU_IFUNC:
			in.Entries = append(in.Entries, sym.Value)
		case elf.STT_NOTYPE, elf.STT_OBJECT:
			in.Labels = append(in.Labels, sym.Value)
		}
		return len(in.Entries)+len(in.Labels) < maxLabels
	})
	if err != nil {
		return err
	}
	return in.Check(offset)
}

// checkUSDT returns an error if the place of a USDT probe is known to be inside an instruction, as it can
// be if a program changed the file's code and not its notes.
func checkUSDT(f *elffile.File, address uint64) error {
	if !slices.ContainsFunc(f.Segments(), func(s elffile.Segment) bool { return s.Type == elf.PT_GNU_EH_FRAME }) {
		return nil // a search of all functions for each place takes too long
	}
	found, err := callframe.Find(f, []uint64{address})
	if err != nil {
		return nil //nolint:nilerr // the bounds are unknown
	}
	b := found[0]
	offset, ok := f.Offset(b.Start)
	if b.Start == 0 || b.End <= address || address-b.Start >= maxFunction || !ok {
		return nil
	}
	code, err := f.Bytes(int64(offset), min(b.End-b.Start, maxFunction), "function")
	if err != nil {
		return err
	}
	in := boundary.Function{Machine: f.Machine(), Code: code, Start: b.Start}
	if err := in.Check(address - b.Start); errors.Is(err, boundary.ErrInside) {
		return err
	}
	return nil
}
