package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"

	"fulgur/internal/code"
	"fulgur/internal/debugfile"
	"fulgur/internal/profile"
	"fulgur/internal/symbolize"
)

// resolver gives names to the frames of a profile that was taken without, with
// the files of this machine.
type resolver struct {
	p       *profile.Profile
	finder  *debugfile.Finder
	options symbolize.Options
	// offsets says that addresses in files are offsets there.
	offsets bool
	// kernel says that the kernel which runs is the one that ran.
	kernel bool

	out *profile.Collector
	// exact and callers hold what each stack became, where it was interrupted
	// and where it called; -1 is nothing yet.
	exact, callers []int64
	found          map[place][]profile.FrameID
	problems       []error
}

// place is a frame that calls or was interrupted, which decides on where its
// instruction is.
type place struct {
	frame  profile.FrameID
	caller bool
}

// resolve returns p with names.
func (r *resolver) resolve(ctx context.Context) (*profile.Profile, error) {
	r.found = map[place][]profile.FrameID{}
	r.out = profile.NewCollector(r.p.ValueTypes...)
	byMapping := make([][]place, len(r.p.Mappings))
	for _, at := range r.places() {
		m := r.p.Frames[at.frame].Mapping
		byMapping[m] = append(byMapping[m], at)
	}
	for m, places := range byMapping {
		if m == 0 || len(places) == 0 {
			continue
		}
		if err := r.look(ctx, profile.MappingID(m), places); err != nil {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			r.problems = append(r.problems, err)
		}
	}
	r.exact, r.callers = r.unknownRows(), r.unknownRows()
	for _, s := range r.p.Samples {
		at := s
		at.Stack = r.stack(s.Stack, false)
		at.Task = r.out.Task(r.p.Tasks[s.Task])
		for v, n := range s.Values {
			r.out.Count(at, v, n)
		}
	}
	return r.out.Profile(r.p.Meta, r.p.Losses), nil
}

// warn tells of what could not be read.
func (r *resolver) warn(warn func(error)) {
	for _, problem := range r.problems {
		warn(problem)
	}
}

func (r *resolver) unknownRows() []int64 { return slices.Repeat([]int64{-1}, len(r.p.Stacks)) }

// places returns the frames of all samples, each once.
func (r *resolver) places() []place {
	seen := [2][]bool{make([]bool, len(r.p.Stacks)), make([]bool, len(r.p.Stacks))}
	known := map[place]bool{}
	var list []place
	for _, s := range r.p.Samples {
		caller := false
		for at := s.Stack; at != 0; {
			which := 0
			if caller {
				which = 1
			}
			if seen[which][at] {
				break
			}
			seen[which][at] = true
			where := place{r.p.Stacks[at].Frame, caller}
			if f := r.p.Frames[where.frame]; !known[where] && f.Function == 0 && f.Mapping != 0 {
				known[where] = true
				list = append(list, where)
			}
			caller = r.callerCalls(at)
			at = r.p.Stacks[at].Parent
		}
	}
	return list
}

// callerCalls reports whether the frame below stack s stands at a call: not
// where the kernel was entered. Frames without names are none that are inlined.
func (r *resolver) callerCalls(s profile.StackID) bool {
	f := r.p.Frames[r.p.Stacks[s].Frame]
	parent := r.p.Frames[r.p.Stacks[r.p.Stacks[s].Parent].Frame]
	return f.Kind != profile.KindKernel || parent.Kind == profile.KindKernel
}

// stack returns what stack s became, which calls or was interrupted.
func (r *resolver) stack(s profile.StackID, caller bool) profile.StackID {
	if s == 0 {
		return 0
	}
	rows := r.exact
	if caller {
		rows = r.callers
	}
	if rows[s] >= 0 {
		return profile.StackID(rows[s])
	}
	made := r.stack(r.p.Stacks[s].Parent, r.callerCalls(s))
	at := place{r.p.Stacks[s].Frame, caller}
	frames, ok := r.found[at]
	if !ok {
		frames = []profile.FrameID{r.copy(at.frame)}
		r.found[at] = frames
	}
	for _, f := range frames {
		made = r.out.Push(made, f)
	}
	rows[s] = int64(made)
	return made
}

// copy returns a frame as it is.
func (r *resolver) copy(id profile.FrameID) profile.FrameID {
	f := r.p.Frames[id]
	if f.Mapping != 0 {
		f.Mapping = r.out.Mapping(r.p.Mappings[f.Mapping])
	}
	if f.Function != 0 {
		f.Function = r.out.Function(r.p.Functions[f.Function])
	}
	return r.out.Frame(f)
}

// look names the frames of a mapping.
func (r *resolver) look(ctx context.Context, id profile.MappingID, places []place) error {
	m := r.p.Mappings[id]
	switch {
	case m.Path == kernelMapping && r.kernel:
		kernel, err := symbolize.OpenKernel(kallsyms, r.options)
		if err != nil {
			return err
		}
		return r.name(symbolize.NewDebugKernel(ctx, kernel, r.finder, kallsyms, r.options), m, places, func(address uint64) (uint64, bool) { return address, true })
	case !path.IsAbs(m.Path):
		return nil
	}
	return r.lookInFile(ctx, m, places)
}

// kernelMapping is the mapping of the kernel's own code.
const kernelMapping = "[kernel.kallsyms]"

// lookInFile names the frames of a file, if it is the one that ran.
func (r *resolver) lookInFile(ctx context.Context, m profile.Mapping, places []place) (err error) {
	file, err := code.Open(ctx, r.finder, m.Path, m.BuildID, r.options)
	if err != nil {
		return fmt.Errorf("no names: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	m.BuildID, m.Base = file.BuildID(), file.Base()
	return r.name(file, m, places, func(address uint64) (uint64, bool) {
		if r.offsets {
			return file.Address(address)
		}
		return address, true
	})
}

// name asks t for the functions of frames in m. vaddr tells the address by which
// t knows an instruction.
func (r *resolver) name(t symbolize.Table, m profile.Mapping, places []place, vaddr func(uint64) (uint64, bool)) error {
	type asked struct {
		place
		call, address uint64 // within the instruction, and to be shown
	}
	var batch []asked
	for _, at := range places {
		address := r.p.Frames[at.frame].Address
		call := address
		if at.caller && call > 0 {
			call--
		}
		if found, ok := vaddr(call); ok {
			batch = append(batch, asked{at, found, found + (address - call)})
		}
	}
	slices.SortFunc(batch, func(a, b asked) int { return cmp.Compare(a.call, b.call) })
	addresses := make([]uint64, len(batch))
	for i, a := range batch {
		addresses[i] = a.call
	}
	found, err := t.LookupBatch(addresses)
	for i, a := range batch {
		f := r.p.Frames[a.frame]
		f.Address = a.address
		if i < len(found) && len(found[i]) > 0 {
			r.found[a.place] = r.frames(f, m, found[i])
			continue
		}
		f.Mapping = r.out.Mapping(m)
		r.found[a.place] = []profile.FrameID{r.out.Frame(f)}
	}
	return err
}

// frames returns frame f as the functions that were found for it, the outermost
// first.
func (r *resolver) frames(f profile.Frame, m profile.Mapping, found []symbolize.Frame) []profile.FrameID {
	if module := found[0].Module; module != "" {
		m.Path, m.BuildID = "["+module+"]", ""
	}
	f.Mapping = r.out.Mapping(m)
	frames := make([]profile.FrameID, 0, len(found))
	for i, fn := range slices.Backward(found) {
		f.Function = 0
		if fn.Name != "" {
			f.Function = r.out.Function(profile.Function{Name: fn.Name, SystemName: fn.SystemName, File: fn.File, StartLine: fn.StartLine})
		}
		f.Offset, f.Line, f.Inlined = fn.Offset, fn.Line, i < len(found)-1
		frames = append(frames, r.out.Frame(f))
	}
	return frames
}

// unnamed reports whether p was taken without names: it has code of files, and
// no name of any.
func unnamed(p *profile.Profile) bool {
	code := false
	for _, f := range p.Frames {
		if f.Kind != profile.KindUser || !path.IsAbs(p.Mappings[f.Mapping].Path) {
			continue // the vdso, for one, has names
		}
		if f.Function != 0 {
			return false
		}
		code = true
	}
	return code
}
