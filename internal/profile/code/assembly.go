package code

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"fulgur/internal/profile"
	"fulgur/internal/profile/annotate"
	"fulgur/internal/symbols/disasm"
	"fulgur/internal/symbols/elffile"
	"fulgur/internal/symbols/symbolize"
)

// MaxCode limits the instructions of a function, in bytes.
const MaxCode = 128 << 10

// maxHosts limits the functions into which one function is inlined.
const maxHosts = 8

// Assembly is the machine code of a function of the symbol table, with the samples at each instruction.
type Assembly struct {
	Mapping profile.MappingID
	// Function and Arch are empty if the code was not found.
	Function, Arch string
	// Instructions are in the order of addresses, and Places are the addresses with samples.
	Instructions []Instruction
	Places       map[uint64]annotate.Weight
	// Problem says why instructions or their lines are missing.
	Problem error
}

// Instruction is an instruction with its samples and its source location.
type Instruction struct {
	disasm.Instruction
	annotate.Weight
	// File and Line are its source line, "" and 0 if unknown.
	File string
	Line int
	// Inlined is the innermost inlined function, "" if there is none.
	Inlined string
}

// binary is code with the names of its functions: a [File] or the [Kernel].
type binary interface {
	symbolize.Table
	Arch() string
	Function(address uint64) (Function, error)
	Functions(addresses []uint64) ([]*Function, error)
	Disassemble(ctx context.Context, start, size uint64) ([]disasm.Instruction, error)
}

// host is a function of the symbol table with places.
type host struct {
	mapping profile.MappingID
	file    binary // nil if unreadable; problem says why
	problem error
	start   uint64
	places  map[uint64]annotate.Weight // by address
	total   int64
}

// Disassemble returns the functions that contain places of p, heaviest first, at most 8.
func (l *Library) Disassemble(ctx context.Context, p *profile.Profile, places map[annotate.Place]annotate.Weight) (list []Assembly) {
	for _, h := range l.hosts(p, places) {
		a := Assembly{Mapping: h.mapping, Places: h.places}
		a.Problem = a.disassemble(ctx, h)
		list = append(list, a)
	}
	return list
}

// hosts returns the functions that contain places, heaviest first.
func (l *Library) hosts(p *profile.Profile, places map[annotate.Place]annotate.Weight) []host {
	byMapping := map[profile.MappingID]map[uint64]annotate.Weight{}
	inMapping := map[profile.MappingID][]annotate.Place{}
	for at, weight := range places {
		inMapping[at.Mapping] = append(inMapping[at.Mapping], at)
		if byMapping[at.Mapping] == nil {
			byMapping[at.Mapping] = map[uint64]annotate.Weight{}
		}
		sum := byMapping[at.Mapping][at.Address]
		sum.Self += weight.Self
		sum.Total += weight.Total
		byMapping[at.Mapping][at.Address] = sum
	}
	var list []host
	for mapping, weights := range byMapping {
		addresses := slices.Sorted(maps.Keys(weights))
		file, err := l.binary(p, mapping, inMapping[mapping])
		functions := make([]*Function, len(addresses))
		if err == nil {
			functions, err = file.Functions(addresses)
		}
		byStart := map[uint64]*host{}
		for i, address := range addresses {
			start := uint64(0)
			if functions[i] != nil {
				start = functions[i].Start
			}
			h := byStart[start]
			if h == nil {
				h = &host{mapping: mapping, file: file, problem: err, start: start, places: map[uint64]annotate.Weight{}}
				byStart[start] = h
			}
			h.places[address] = weights[address]
			h.total += weights[address].Total
		}
		for _, h := range byStart {
			list = append(list, *h)
		}
	}
	slices.SortFunc(list, func(a, b host) int {
		return cmp.Or(cmp.Compare(b.total, a.total), cmp.Compare(a.mapping, b.mapping), cmp.Compare(a.start, b.start))
	})
	return list[:min(len(list), maxHosts)]
}

// Mapped returns the file of a mapping, like [Library.File].
func (l *Library) Mapped(m profile.Mapping) (*File, error) {
	if m.Path != "" && !profile.IsFile(m.Path) {
		return nil, fmt.Errorf("cannot read code of %s", m.Path)
	}
	if l.proven && m.BuildID == "" {
		return nil, fmt.Errorf("%s: no build ID was recorded, so the file that is here may be another build", m.Path)
	}
	f, err := l.File(m.Path, m.BuildID)
	if err == nil && l.proven && !elffile.SameBuildID(f.BuildID(), m.BuildID) {
		return nil, fmt.Errorf("%s: the file has no build ID, so it may be another build than the recorded one", m.Path)
	}
	return f, err
}

// binary returns the code of a mapping of p, which contains places.
func (l *Library) binary(p *profile.Profile, id profile.MappingID, places []annotate.Place) (binary, error) {
	m := p.Mappings[id]
	isModule := m.BuildID != "" && m.Path != VDSO && !profile.IsFile(m.Path)
	if m.Path != profile.KernelPath && !isModule {
		file, err := l.Mapped(m)
		if err != nil {
			return nil, err
		}
		return file, nil
	}
	kernel, err := l.Kernel(m)
	if err != nil {
		return nil, err
	}
	for _, at := range places {
		if !kernel.Has(at.Address, p.Functions[at.Function].SystemName) {
			return nil, fmt.Errorf("the running kernel is not the recorded one: it has no %s at %#x; it was started again, or the profile is from another machine",
				p.Functions[at.Function].SystemName, at.Address)
		}
	}
	return kernel, nil
}

// disassemble adds the instructions of a function. The error says what is missing.
func (a *Assembly) disassemble(ctx context.Context, h host) error {
	file, hit := h.file, slices.Sorted(maps.Keys(h.places))
	if file == nil {
		return h.problem
	}
	fn, err := file.Function(hit[0])
	if errors.Is(err, ErrNoFunction) {
		return err
	}
	a.Function, a.Arch = fn.Name, file.Arch()
	problems := []error{h.problem, err}
	if fn.Size > MaxCode {
		problems = append(problems, fmt.Errorf("showing only the first %d of %d bytes", MaxCode, fn.Size))
	}
	list, err := file.Disassemble(ctx, fn.Start, min(fn.Size, MaxCode))
	problems = append(problems, err)
	addresses := make([]uint64, len(list))
	for i, in := range list {
		addresses[i] = in.Address
	}
	lines, err := file.LookupBatch(addresses)
	problems = append(problems, err)
	for i, in := range list {
		made := Instruction{Instruction: in}
		made.describe(lines[i])
		first, _ := slices.BinarySearch(hit, in.Address)
		for _, at := range hit[first:] {
			if at-in.Address >= uint64(in.Size) {
				break
			}
			made.Self += h.places[at].Self
			made.Total += h.places[at].Total
		}
		a.Instructions = append(a.Instructions, made)
	}
	return errors.Join(problems...)
}

// describe adds the source location of the innermost function.
func (in *Instruction) describe(found []symbolize.Frame) {
	if len(found) == 0 {
		return
	}
	inner := found[0]
	in.File, in.Line = inner.File, inner.Line
	if inner.Inlined {
		in.Inlined = inner.Name
	}
}
