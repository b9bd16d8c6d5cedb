package naming

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"fulgur/internal/profile"
	"fulgur/internal/profile/code"
	"fulgur/internal/symbols/debugfile"
	"fulgur/internal/symbols/symbolize"
)

// Resolver gives names to the frames of a profile that was taken without, with
// the files of this machine.
type Resolver struct {
	// Profile is the one without names, and Finder finds debug files.
	Profile *profile.Profile
	Finder  *debugfile.Finder
	options symbolize.Options
	// Offsets says that addresses in files are offsets there.
	Offsets bool
	// Kernel says that the kernel which runs is the one that ran.
	Kernel bool

	out *profile.Collector
	// exact and callers hold what each stack became, where it was interrupted
	// and where it called; -1 is nothing yet.
	exact, callers []int64
	found          map[place][]profile.FrameID
	problems       []error
	path           []step
}

// step is a stack that calls or was interrupted.
type step struct {
	stack  profile.StackID
	caller bool
}

// place is a frame that calls or was interrupted, which decides on where its
// instruction is.
type place struct {
	frame  profile.FrameID
	caller bool
}

// Resolve returns p with names.
func (r *Resolver) Resolve(ctx context.Context) (*profile.Profile, error) {
	r.found = map[place][]profile.FrameID{}
	r.out = profile.NewCollector(r.Profile.ValueTypes...)
	byMapping := make([][]place, len(r.Profile.Mappings))
	for _, at := range r.places() {
		m := r.Profile.Frames[at.frame].Mapping
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
	for _, s := range r.Profile.Samples {
		at := s
		at.Stack = r.Stack(s.Stack, false)
		at.Task = r.out.Task(r.Profile.Tasks[s.Task])
		for v, n := range s.Values {
			r.out.Count(at, v, n)
		}
	}
	return r.out.Profile(r.Profile.Meta, r.Profile.Losses), nil
}

// Warn tells of what could not be read.
func (r *Resolver) Warn(warn func(error)) {
	for _, problem := range r.problems {
		warn(problem)
	}
}

func (r *Resolver) unknownRows() []int64 { return slices.Repeat([]int64{-1}, len(r.Profile.Stacks)) }

// places returns the frames of all samples, each once.
func (r *Resolver) places() []place {
	seen := [2][]bool{make([]bool, len(r.Profile.Stacks)), make([]bool, len(r.Profile.Stacks))}
	known := map[place]bool{}
	var list []place
	for _, s := range r.Profile.Samples {
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
			where := place{r.Profile.Stacks[at].Frame, caller}
			if f := r.Profile.Frames[where.frame]; !known[where] && f.Function == 0 && f.Mapping != 0 {
				known[where] = true
				list = append(list, where)
			}
			caller = r.callerCalls(at)
			at = r.Profile.Stacks[at].Parent
		}
	}
	return list
}

// callerCalls reports whether the frame below stack s stands at a call: not
// where the kernel was entered. Frames without names are none that are inlined.
func (r *Resolver) callerCalls(s profile.StackID) bool {
	f := r.Profile.Frames[r.Profile.Stacks[s].Frame]
	parent := r.Profile.Frames[r.Profile.Stacks[r.Profile.Stacks[s].Parent].Frame]
	return f.Kind != profile.KindKernel || parent.Kind == profile.KindKernel
}

// Stack returns what stack s became, which calls or was interrupted.
func (r *Resolver) Stack(s profile.StackID, caller bool) profile.StackID {
	r.path = r.path[:0]
	made := profile.StackID(0)
	for s != 0 {
		if known := r.rows(caller)[s]; known >= 0 {
			made = profile.StackID(known)
			break
		}
		r.path = append(r.path, step{s, caller})
		caller = r.callerCalls(s)
		s = r.Profile.Stacks[s].Parent
	}
	for _, at := range slices.Backward(r.path) {
		for _, f := range r.frameOf(place{r.Profile.Stacks[at.stack].Frame, at.caller}) {
			made = r.out.Push(made, f)
		}
		r.rows(at.caller)[at.stack] = int64(made)
	}
	return made
}

// rows returns what is known of stacks that call, or that were interrupted.
func (r *Resolver) rows(caller bool) []int64 {
	if caller {
		return r.callers
	}
	return r.exact
}

// frameOf returns the frames that a frame became, the outermost first.
func (r *Resolver) frameOf(at place) []profile.FrameID {
	frames, ok := r.found[at]
	if !ok {
		frames = []profile.FrameID{r.copy(at.frame)}
		r.found[at] = frames
	}
	return frames
}

// copy returns a frame as it is.
func (r *Resolver) copy(id profile.FrameID) profile.FrameID {
	f := r.Profile.Frames[id]
	if f.Mapping != 0 {
		f.Mapping = r.out.Mapping(r.Profile.Mappings[f.Mapping])
	}
	if f.Function != 0 {
		f.Function = r.out.Function(r.Profile.Functions[f.Function])
	}
	return r.out.Frame(f)
}

// look names the frames of a mapping.
func (r *Resolver) look(ctx context.Context, id profile.MappingID, places []place) error {
	m := r.Profile.Mappings[id]
	switch {
	case m.Path == kernelMapping && r.Kernel:
		kernel, err := symbolize.OpenKernel(kallsyms, r.options)
		if err != nil {
			return err
		}
		return r.name(symbolize.NewDebugKernel(ctx, kernel, r.Finder, kallsyms, r.options), m, places, func(address uint64) (uint64, bool) { return address, true })
	case !path.IsAbs(m.Path):
		return nil
	}
	return r.lookInFile(ctx, m, places)
}

// kernelMapping is the mapping of the kernel's own code.
const kernelMapping = "[kernel.kallsyms]"

// lookInFile names the frames of a file, if it is the one that ran.
func (r *Resolver) lookInFile(ctx context.Context, m profile.Mapping, places []place) (err error) {
	file, err := code.Open(ctx, r.Finder, m.Path, m.BuildID, r.options)
	if err != nil {
		return fmt.Errorf("no names: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	m.BuildID, m.Base = file.BuildID(), file.Base()
	return r.name(file, m, places, func(address uint64) (uint64, bool) {
		if r.Offsets {
			return file.Address(address)
		}
		return address, true
	})
}

// name asks t for the functions of frames in m. vaddr tells the address by which
// t knows an instruction.
func (r *Resolver) name(t symbolize.Table, m profile.Mapping, places []place, vaddr func(uint64) (uint64, bool)) error {
	type asked struct {
		place
		call, address uint64 // within the instruction, and to be shown
	}
	var batch []asked
	for _, at := range places {
		address := r.Profile.Frames[at.frame].Address
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
		f := r.Profile.Frames[a.frame]
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
func (r *Resolver) frames(f profile.Frame, m profile.Mapping, found []symbolize.Frame) []profile.FrameID {
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

// Unnamed reports whether p was taken without names: it has code of files, and
// no name of any.
func Unnamed(p *profile.Profile) bool {
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

// KernelText returns the address of the running kernel's first byte.
func KernelText() (uint64, error) {
	f, err := os.Open(kallsyms)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) == 3 && fields[2] == "_text" {
			return strconv.ParseUint(fields[0], 16, 64)
		}
	}
	return 0, fmt.Errorf("%s: no _text", kallsyms)
}
