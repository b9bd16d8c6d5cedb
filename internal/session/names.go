package session

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"fulgur/internal/ksym"
	"fulgur/internal/process"
	"fulgur/internal/profile"
	"fulgur/internal/stacks"
	"fulgur/internal/symbolize"
)

// names are the functions of a store's frames.
type names struct {
	store *stacks.Store
	// found has for each frame of the store its functions, innermost first;
	// none if it could not be resolved.
	found [][]symbolize.Frame
	// addresses are the frames' addresses as outputs show them: link-time
	// addresses for files.
	addresses []uint64
	buildIDs  []string // for each code of the store
	// problems are errors by code, nil where all went well.
	problems   []error
	unresolved uint64
}

// symbolizeAll names every frame of the store, file by file and files in
// parallel.
func symbolizeAll(store *stacks.Store, o symbolize.Options) *names {
	n := &names{
		store:     store,
		found:     make([][]symbolize.Frame, len(store.Frames)),
		addresses: make([]uint64, len(store.Frames)),
		buildIDs:  make([]string, len(store.Codes)),
		problems:  make([]error, len(store.Codes)),
	}
	byCode := make([][]stacks.FrameID, len(store.Codes))
	for i, f := range store.Frames {
		byCode[f.Code] = append(byCode[f.Code], stacks.FrameID(i))
		n.addresses[i] = f.Address
	}
	work := make(chan stacks.CodeID)
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for code := range work {
				n.problems[code] = n.resolve(code, byCode[code], o)
			}
		})
	}
	for code := range store.Codes {
		if len(byCode[code]) > 0 {
			work <- stacks.CodeID(code)
		}
	}
	close(work)
	workers.Wait()
	for _, found := range n.found {
		if len(found) == 0 {
			n.unresolved++
		}
	}
	return n
}

// resolve names the frames of one code.
func (n *names) resolve(id stacks.CodeID, frames []stacks.FrameID, o symbolize.Options) error {
	code := n.store.Codes[id]
	switch code.Kind {
	case stacks.CodeKernel:
		return n.resolveKernel(frames, o)
	case stacks.CodeVDSO:
		vdso, err := symbolize.OpenVDSO(o)
		if err != nil {
			return err
		}
		return n.lookUp(vdso, frames, vdso.Address)
	case stacks.CodeFile:
		r, size, err := code.File.ReaderAt()
		if err != nil {
			return err
		}
		elf, err := symbolize.OpenELF(r, size, code.File.Path, o)
		if err != nil {
			return err
		}
		n.buildIDs[id] = elf.BuildID()
		return n.lookUp(elf, frames, elf.Address)
	case stacks.CodeJIT:
		return n.lookUpJIT(code.PerfMap, frames)
	}
	return fmt.Errorf("no executable mapping of process %d was known at these addresses", code.PID)
}

// resolveKernel names frames of the kernel: by asking it for these alone, or
// else by reading all of its symbols.
func (n *names) resolveKernel(frames []stacks.FrameID, o symbolize.Options) error {
	if asking, err := ksym.Open(o); err == nil {
		err := n.lookUp(asking, frames, nil)
		return errors.Join(err, asking.Close())
	}
	kernel, err := symbolize.OpenKernel("/proc/kallsyms", o)
	if err != nil {
		return err
	}
	return n.lookUp(kernel, frames, nil)
}

// lookUpJIT asks a JIT's perf map, and for frames that it does not know, the
// one that was written after it.
func (n *names) lookUpJIT(m *process.PerfMap, frames []stacks.FrameID) error {
	var errs []error
	for ; m != nil && len(frames) > 0; m = m.Next() {
		r, size, err := m.ReaderAt()
		if err == nil {
			err = n.lookUp(symbolize.OpenPerfMap(r, size), frames, nil)
		}
		errs = append(errs, err)
		frames = slices.DeleteFunc(frames, func(id stacks.FrameID) bool { return len(n.found[id]) > 0 })
	}
	return errors.Join(errs...)
}

// lookUp asks t for all frames at once. address, if not nil, turns the
// frames' addresses into those that t knows.
func (n *names) lookUp(t symbolize.Table, frames []stacks.FrameID, address func(uint64) (uint64, bool)) error {
	type asked struct {
		frame stacks.FrameID
		call  uint64
	}
	batch := make([]asked, 0, len(frames))
	for _, id := range frames {
		f := n.store.Frames[id]
		call := f.Call()
		if address != nil {
			vaddr, ok := address(call)
			if !ok {
				continue
			}
			n.addresses[id] = vaddr + (f.Address - call)
			call = vaddr
		}
		batch = append(batch, asked{id, call})
	}
	slices.SortFunc(batch, func(a, b asked) int { return cmp.Compare(a.call, b.call) })
	addrs := make([]uint64, len(batch))
	for i, a := range batch {
		addrs[i] = a.call
	}
	found, err := t.LookupBatch(addrs)
	for i, a := range batch {
		if i < len(found) {
			n.found[a.frame] = found[i]
		}
	}
	return err
}

// place adds a frame to the profile and returns what it became, outermost
// function first.
func (n *names) place(b *profile.Builder, id stacks.FrameID) []profile.FrameID {
	f := n.store.Frames[id]
	code, found := n.store.Codes[f.Code], n.found[id]
	frame := profile.Frame{
		Address: n.addresses[id],
		Kind:    frameKind(code.Kind),
		Mapping: b.Mapping(n.mapping(f.Code, found)),
	}
	if len(found) == 0 {
		return []profile.FrameID{b.Frame(frame)}
	}
	placed := make([]profile.FrameID, 0, len(found))
	for i, fn := range slices.Backward(found) {
		frame.Function = b.Function(profile.Function{
			Name: fn.Name, SystemName: fn.SystemName, File: fn.File, StartLine: fn.StartLine,
		})
		frame.Offset, frame.Line, frame.Inlined = fn.Offset, fn.Line, i < len(found)-1
		placed = append(placed, b.Frame(frame))
	}
	return placed
}

func frameKind(k stacks.CodeKind) profile.Kind {
	switch k {
	case stacks.CodeKernel:
		return profile.KindKernel
	case stacks.CodeJIT:
		return profile.KindJIT
	}
	return profile.KindUser
}

// mapping describes the code that holds a frame.
func (n *names) mapping(id stacks.CodeID, found []symbolize.Frame) profile.Mapping {
	code, at := n.store.Codes[id], n.store.Ranges[id]
	m := profile.Mapping{BuildID: n.buildIDs[id], Start: at.Start, Limit: at.Limit, Offset: at.Offset}
	switch code.Kind {
	case stacks.CodeKernel:
		m.Path = "[kernel.kallsyms]"
		if len(found) > 0 && found[0].Module != "" {
			m.Path = "[" + found[0].Module + "]"
		}
	case stacks.CodeVDSO:
		m.Path = "[vdso]"
	case stacks.CodeFile:
		m.Path = code.File.Path
	case stacks.CodeJIT:
		m = profile.Mapping{Path: "[jit]"}
	default:
		m = profile.Mapping{Path: "[unknown]"}
	}
	return m
}

// warnings are the problems worth a line each: not those of code that has no
// file to complain about.
func (n *names) warnings() []error {
	var all []error
	for id, err := range n.problems {
		kind := n.store.Codes[id].Kind
		if err != nil && kind != stacks.CodeUnknown && kind != stacks.CodeJIT {
			all = append(all, err)
		}
	}
	return all
}
