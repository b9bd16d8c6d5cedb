package naming

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"

	"fulgur/internal/profile"
	"fulgur/internal/profile/code"
	"fulgur/internal/symbols/debugfile"
	"fulgur/internal/symbols/symbolize"
)

// Resolver names the frames of a profile that was taken without names, using the
// files of this machine.
type Resolver struct {
	// Profile is the profile to symbolize. Finder finds debug files.
	Profile *profile.Profile
	Finder  *debugfile.Finder
	options symbolize.Options
	// Offsets means that addresses in files are file offsets.
	Offsets bool
	// Kallsyms is the path of the symbols of the profile's kernel, or "". [symbolize.Kallsyms] means that
	// it is the running one.
	Kallsyms string
	// Proven says to use only files that have the build ID of the profile.
	Proven bool

	out      *profile.Collector
	frames   [][]profile.FrameID // by frame of Profile: the new frames, outermost first
	stacks   []profile.StackID   // by stack of Profile: the new stack
	problems []error
}

// Resolve returns p with names.
func (r *Resolver) Resolve(ctx context.Context) (*profile.Profile, error) {
	p := r.Profile
	r.out = profile.NewCollector(p.ValueTypes...)
	r.frames = make([][]profile.FrameID, len(p.Frames))
	byMapping := make([][]profile.FrameID, len(p.Mappings))
	for id, f := range p.Frames {
		if r.wants(profile.FrameID(id)) {
			byMapping[f.Mapping] = append(byMapping[f.Mapping], profile.FrameID(id))
		}
	}
	for m, frames := range byMapping {
		if len(frames) == 0 {
			continue
		}
		if err := r.look(ctx, profile.MappingID(m), frames); err != nil {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			r.problems = append(r.problems, err)
		}
	}
	for id, f := range p.Frames {
		if id > 0 && r.frames[id] == nil {
			r.frames[id] = []profile.FrameID{r.copy(f)}
		}
	}
	r.stacks = make([]profile.StackID, len(p.Stacks))
	for id := 1; id < len(p.Stacks); id++ { // a stack's parent has a lower identifier
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		at := r.stacks[p.Stacks[id].Parent]
		for _, f := range r.frames[p.Stacks[id].Frame] {
			at = r.out.Push(at, f)
		}
		r.stacks[id] = at
	}
	tasks := make([]profile.TaskID, len(p.Tasks))
	for id, task := range p.Tasks {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		task.Owner = r.out.Owner(p.Owner(profile.TaskID(id)))
		task.Labels = r.out.Labels(p.LabelsOf(profile.TaskID(id)))
		tasks[id] = r.out.Task(task)
	}
	for _, s := range p.Samples {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		at := s
		at.Stack, at.Task = r.stacks[s.Stack], tasks[s.Task]
		for v, n := range s.Values {
			r.out.Count(at, v, n)
		}
	}
	return recounted(r.out.Profile(p.Meta, p.Losses)), nil
}

// recounted corrects the losses of p about missing names, since some may have been found.
func recounted(p *profile.Profile) *profile.Profile {
	if p.Losses[profile.LossUnresolved]+p.Losses[profile.LossUnresolvedGenerated]+p.Losses[profile.LossUnresolvedCallers] > 0 {
		p.CountUnnamed(false)
	}
	p.Meta.Stripped.Files = slices.DeleteFunc(slices.Clone(p.Meta.Stripped.Files), func(s profile.Stripped) bool {
		for id, f := range p.Frames {
			m := p.Mappings[f.Mapping]
			if f.Mapping != 0 && m.Path == s.Path && m.BuildID == s.BuildID && !p.Named(profile.FrameID(id)) {
				return false
			}
		}
		return true
	})
	return p
}

// wants reports whether to look up a frame of Profile.
func (r *Resolver) wants(id profile.FrameID) bool {
	m := r.Profile.Frames[id].Mapping
	return m != 0 && !r.Profile.Named(id) && (!r.Proven || r.Profile.Mappings[m].BuildID != "")
}

// Stack returns the new stack for stack s of Profile.
func (r *Resolver) Stack(s profile.StackID) profile.StackID { return r.stacks[s] }

// Warn calls warn for each file that could not be read.
func (r *Resolver) Warn(warn func(error)) {
	for _, problem := range r.problems {
		warn(problem)
	}
}

// copy returns a frame unchanged.
func (r *Resolver) copy(f profile.Frame) profile.FrameID {
	if f.Mapping != 0 {
		f.Mapping = r.out.Mapping(r.Profile.Mappings[f.Mapping])
	}
	if f.Function != 0 {
		f.Function = r.out.Function(r.Profile.Functions[f.Function])
	}
	return r.out.Frame(f)
}

// look names the frames of a mapping.
func (r *Resolver) look(ctx context.Context, id profile.MappingID, frames []profile.FrameID) error {
	m := r.Profile.Mappings[id]
	switch {
	case m.Path == profile.KernelPath && r.Kallsyms != "":
		kernel, err := symbolize.OpenKernel(r.Kallsyms, r.options)
		if err != nil {
			return err
		}
		table := symbolize.Table(kernel)
		if r.Kallsyms == symbolize.Kallsyms {
			table = symbolize.NewDebugKernel(ctx, kernel, r.Finder, symbolize.Kallsyms, r.options)
		}
		return r.name(table, m, frames, func(address uint64) (uint64, bool) { return address, true })
	case !path.IsAbs(m.Path) && m.Path != code.VDSO:
		return nil
	}
	return r.lookInFile(ctx, m, frames)
}

// lookInFile names the frames of a file, if it is the same build.
func (r *Resolver) lookInFile(ctx context.Context, m profile.Mapping, frames []profile.FrameID) (err error) {
	file, err := code.Open(ctx, r.Finder, m.Path, m.BuildID, r.options)
	if err != nil {
		return fmt.Errorf("no names: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	m.BuildID, m.Base = file.BuildID(), file.Base()
	return r.name(file, m, frames, func(address uint64) (uint64, bool) {
		if r.Offsets {
			return file.Address(address)
		}
		return address, true
	})
}

// name looks up frames of m in t. vaddr converts an address to t's.
func (r *Resolver) name(t symbolize.Table, m profile.Mapping, frames []profile.FrameID, vaddr func(uint64) (uint64, bool)) error {
	var queries []query[profile.FrameID]
	for _, id := range frames {
		if call, ok := vaddr(r.Profile.Frames[id].Call()); ok {
			queries = append(queries, query[profile.FrameID]{id, call})
		}
	}
	return lookUp(t, queries, func(q query[profile.FrameID], functions []symbolize.Frame) {
		f, m := r.Profile.Frames[q.frame], m
		if len(functions) == 0 && f.Function != 0 {
			return // a debug file does not have the bounds of a function without a symbol
		}
		f.Address = q.call + (f.Address - f.Call())
		m.Looked = 0 // it was looked up here
		if len(functions) > 0 && functions[0].Module != "" {
			m.Path, m.BuildID = "["+functions[0].Module+"]", ""
		}
		f.Mapping = r.out.Mapping(m)
		r.frames[q.frame] = addFrames(r.out.Builder, f, functions)
	})
}

// Unnamed reports whether p was taken without names: it has code of files, but none
// of it has a name.
func Unnamed(p *profile.Profile) bool {
	code := false
	for id, f := range p.Frames {
		if f.Kind != profile.KindUser || !path.IsAbs(p.Mappings[f.Mapping].Path) {
			continue // code without a file, such as the vdso, may have names
		}
		if p.Named(profile.FrameID(id)) {
			return false
		}
		code = true
	}
	return code
}

// HasUnnamed reports whether p has code without a name in a file with a build ID, which
// identifies the file that may have the name.
func HasUnnamed(p *profile.Profile) bool {
	r := Resolver{Profile: p, Proven: true}
	for id, f := range p.Frames {
		if f.Kind == profile.KindUser && r.wants(profile.FrameID(id)) {
			return true
		}
	}
	return false
}
