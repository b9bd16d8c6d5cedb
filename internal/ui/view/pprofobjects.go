package view

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"sync"

	"github.com/google/pprof/driver"
	"github.com/google/pprof/profile"

	"fulgur/internal/profile/code"
	"fulgur/internal/symbols/disasm"
	"fulgur/internal/symbols/symbolize"
)

// pprofObjects gives pprof access to the code files of the library, where it would
// otherwise run objdump, nm and addr2line.
type pprofObjects struct {
	library *code.Library
	// profile is the shown profile. Symbols are looked up at its addresses.
	profile *profile.Profile

	mu sync.Mutex
	// found caches, by file, the frames at each instruction of a disassembled
	// range. pprof asks for one at a time, but a look-up of the whole range
	// costs the same.
	found map[*code.File]map[uint64][]symbolize.Frame
}

// Open implements [driver.ObjTool] for the files of the profile only: pprof also
// searches places of its own.
func (o *pprofObjects) Open(file string, start, limit, offset uint64, _ string) (driver.ObjFile, error) {
	found, err := o.file(file)
	if err != nil {
		return nil, err
	}
	return &pprofObject{objects: o, name: file, file: found, start: start, limit: limit, offset: offset}, nil
}

// file returns the file of a mapping in the profile.
func (o *pprofObjects) file(name string) (*code.File, error) {
	for _, m := range o.profile.Mapping {
		if m.File == name {
			return o.library.File(m.File, m.BuildID)
		}
	}
	return nil, fmt.Errorf("%s is not in the profile", name)
}

// Disasm implements [driver.ObjTool] for link-time virtual addresses.
func (o *pprofObjects) Disasm(name string, start, end uint64, _ bool) ([]driver.Inst, error) {
	file, err := o.file(name)
	if err != nil {
		return nil, err
	}
	// The range may begin and end anywhere, even inside an instruction or
	// outside of all code.
	start, end = file.Executable(start, min(end, start+code.MaxCode))
	if start == end {
		return nil, fmt.Errorf("%s: no code there", name)
	}
	from, to := start, end
	if fn, err := file.Function(start); err == nil {
		from = fn.Start
	}
	if fn, err := file.Function(end - 1); err == nil {
		to = fn.Start + fn.Size
	}
	decoded, err := file.Disassemble(context.Background(), from, to-from)
	if err != nil {
		return nil, err
	}
	decoded = slices.DeleteFunc(decoded, func(i disasm.Instruction) bool { return i.Address < start || i.Address >= end })
	addresses := make([]uint64, len(decoded))
	for i, in := range decoded {
		addresses[i] = in.Address
	}
	found, err := file.LookupBatch(addresses)
	if err != nil {
		return nil, err
	}
	o.remember(file, addresses, found)
	list := make([]driver.Inst, len(decoded))
	for i, in := range decoded {
		list[i] = driver.Inst{Addr: in.Address, Text: in.Text}
		if len(found[i]) > 0 {
			list[i].Function, list[i].File, list[i].Line = found[i][0].Name, found[i][0].File, found[i][0].Line
		}
	}
	return list, nil
}

func (o *pprofObjects) remember(file *code.File, addresses []uint64, found [][]symbolize.Frame) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.found[file] == nil {
		o.found[file] = map[uint64][]symbolize.Frame{}
	}
	for i, address := range addresses {
		o.found[file][address] = found[i]
	}
}

// recall returns the cached frames at an address.
func (o *pprofObjects) recall(file *code.File, address uint64) ([]symbolize.Frame, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	frames, ok := o.found[file][address]
	return frames, ok
}

// pprofObject is a mapped file.
type pprofObject struct {
	objects              *pprofObjects
	name                 string
	file                 *code.File
	start, limit, offset uint64
}

// Name implements [driver.ObjFile].
func (o *pprofObject) Name() string { return o.name }

// Close implements [driver.ObjFile]. The library closes files.
func (*pprofObject) Close() error { return nil }

// BuildID implements [driver.ObjFile].
func (o *pprofObject) BuildID() string { return o.file.BuildID() }

// ObjAddr implements [driver.ObjFile]: it converts an address in the profile to a
// link-time virtual address. fulgur writes such addresses into profiles, with
// mappings that begin at 0.
func (o *pprofObject) ObjAddr(address uint64) (uint64, error) {
	if o.start == 0 {
		return address, nil
	}
	if address < o.start || address >= o.limit {
		return 0, fmt.Errorf("%s: address %#x is outside the mapping", o.name, address)
	}
	linked, ok := o.file.Address(address - o.start + o.offset)
	if !ok {
		return 0, fmt.Errorf("%s: no code is mapped at %#x", o.name, address)
	}
	return linked, nil
}

// SourceLine implements [driver.ObjFile].
func (o *pprofObject) SourceLine(address uint64) ([]driver.Frame, error) {
	linked, err := o.ObjAddr(address)
	if err != nil {
		return nil, err
	}
	found, ok := o.objects.recall(o.file, linked)
	if !ok {
		batch, err := o.file.LookupBatch([]uint64{linked})
		if err != nil {
			return nil, err
		}
		found = batch[0]
	}
	frames := make([]driver.Frame, len(found))
	for i, f := range found {
		frames[i] = driver.Frame{Func: f.Name, File: f.File, Line: f.Line, StartLine: f.StartLine}
	}
	return frames, nil
}

// Symbols implements [driver.ObjFile]. It returns only functions with samples in the
// profile, because no others are shown.
func (o *pprofObject) Symbols(matching *regexp.Regexp, at uint64) ([]*driver.Sym, error) {
	var addresses []uint64
	for _, l := range o.objects.profile.Location {
		if l.Mapping == nil || l.Mapping.File != o.name {
			continue
		}
		if linked, err := o.ObjAddr(l.Address); err == nil {
			addresses = append(addresses, linked)
		}
	}
	slices.Sort(addresses)
	functions, err := o.file.Functions(slices.Compact(addresses))
	if err != nil {
		return nil, err
	}
	var list []*driver.Sym
	seen := map[uint64]bool{}
	for _, fn := range functions {
		if fn == nil || seen[fn.Start] {
			continue
		}
		seen[fn.Start] = true
		if matching != nil && !matching.MatchString(fn.Name) && at < fn.Start {
			continue
		}
		whole, err := o.file.Function(fn.Start)
		if err != nil {
			return nil, err
		}
		end := whole.Start + whole.Size
		if matching == nil || matching.MatchString(fn.Name) || at >= whole.Start && at < end {
			list = append(list, &driver.Sym{Name: []string{fn.Name}, File: o.name, Start: whole.Start, End: end})
		}
	}
	slices.SortFunc(list, func(a, b *driver.Sym) int { return cmp.Compare(a.Start, b.Start) })
	return list, nil
}
