package alloc

import (
	"cmp"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"

	"fulgur/internal/capture/events"
	"fulgur/internal/capture/target"
	"fulgur/internal/files/safeopen"
	"fulgur/internal/message/plain"
	"fulgur/internal/message/usage"
	"fulgur/internal/process"
	"fulgur/internal/symbols/debugfile"
	"fulgur/internal/symbols/elffile"
	"fulgur/internal/symbols/rseq"
)

// files are the files of the target.
type files struct {
	seen     map[process.FileKey]*allocator
	attached []string // names of files with an allocator
	late     []string // names of files that were attached while counting
	refused  []string // why others are not measured
	unread   []string // why others may have an allocator, or not
}

// check returns an error if allocators were found in the processes that a target names, and none of
// them can be measured.
func (f *files) check(t target.Target) error {
	if t.Scope != target.Processes || len(f.attached) > 0 || len(f.refused) == 0 {
		return nil
	}
	return fmt.Errorf("nothing can be measured: %s", strings.Join(f.refused, "; "))
}

// allocator has the places in a file that are measured.
type allocator struct {
	functions []function
	probes    *probes // instead of functions
	err       error   // why it cannot be measured
	done      bool    // attached, or reported
}

// Follow implements [source.FileFollower]. It attaches to the allocators in the files that a process maps, unless it did before. If
// one of the files has probes, Follow attaches to probes alone.
func (s *Source) Follow(mapped []*process.File) error {
	if s.files.seen == nil {
		s.files.seen = map[process.FileKey]*allocator{}
	}
	reports := false
	for _, f := range mapped {
		a := s.files.seen[f.Key]
		if a == nil {
			a = s.allocatorIn(f)
			s.files.seen[f.Key] = a
		}
		if a.probes != nil && !a.done {
			if err := s.attachToProbes(f, a); err != nil {
				return err
			}
		}
		reports = reports || a.probes != nil
	}
	for _, f := range mapped {
		a := s.files.seen[f.Key]
		if a.done || reports {
			continue
		}
		a.done = true
		if err := s.attachToFunctions(f, a); err != nil {
			return err
		}
	}
	return nil
}

// attachToProbes attaches to the probes of a file. If they cannot be used, the file has functions
// alone.
func (s *Source) attachToProbes(f *process.File, a *allocator) error {
	err := a.err
	if err == nil {
		err = s.attachIn(f, a)
	}
	switch {
	case errors.Is(err, fs.ErrPermission):
		return err
	case err != nil:
		s.refuseProbes(f, err)
		file, err := openFile(f)
		*a = allocator{err: err}
		if err == nil {
			a.functions, a.err = s.functionsIn(f, file)
		}
		return nil
	}
	a.done = true
	s.probed.names = append(s.probed.names, filepath.Base(f.Path))
	s.noteAttached(f)
	return nil
}

// refuseProbes notes why the probes of a file are not used.
func (s *Source) refuseProbes(f *process.File, err error) {
	s.files.refused = append(s.files.refused, fmt.Sprintf("%s: its own samples are not used: %s", f.Path, plain.Error(err)))
}

// noteAttached notes that a file is measured.
func (s *Source) noteAttached(f *process.File) {
	name := filepath.Base(f.Path)
	s.files.attached = append(s.files.attached, name)
	if s.counting {
		s.files.late = append(s.files.late, name)
	}
}

// attachToFunctions attaches to the functions of a file's allocator. It notes the errors that
// concern the file alone.
func (s *Source) attachToFunctions(f *process.File, a *allocator) error {
	err := a.err
	if err == nil && len(a.functions) == 0 {
		return nil
	}
	if err == nil {
		err = s.attachIn(f, a)
	}
	switch {
	case errors.As(err, new(*unreadable)):
		slog.Debug("not searched for an allocator", "path", f.Path, "error", err)
		if !errors.Is(err, errOtherMachine) {
			s.files.unread = append(s.files.unread, filepath.Base(f.Path))
		}
	case errors.Is(err, errGoLive) && s.target.Scope == target.Processes && !s.counting:
		return usage.Errorf("%s is a Go program: %v", f.Path, err)
	case errors.Is(err, fs.ErrPermission):
		return err
	case err != nil:
		s.files.refused = append(s.files.refused, fmt.Sprintf("allocations by %s are not measured: %s", f.Path, plain.Error(err)))
	default:
		s.noteAttached(f)
	}
	return nil
}

// errGoLive is the error for following allocations of Go.
var errGoLive = errors.New("live memory cannot be measured, because uprobes do not see garbage collection; use Go's own heap profile (runtime/pprof, net/http/pprof)")

// unreadable is the error for files that are not known to have an allocator.
type unreadable struct{ error }

// Unwrap returns the cause.
func (u *unreadable) Unwrap() error { return u.error }

// errOtherMachine is the error for files that the processor runs in another mode.
var errOtherMachine = errors.New("it is not a 64-bit program")

// allocatorIn finds the probes in a file, or else the functions of its allocator.
func (s *Source) allocatorIn(f *process.File) *allocator {
	file, err := openFile(f)
	if err != nil {
		return &allocator{err: err}
	}
	a := &allocator{}
	if a.probes, err = s.probesIn(file, f.Path); err != nil {
		s.refuseProbes(f, err)
	}
	if a.probes != nil {
		a.err = s.overhead.learn(file, a.probes.functions())
	} else {
		a.functions, a.err = s.functionsIn(f, file)
	}
	return a
}

// openFile opens a file that a process maps.
func openFile(f *process.File) (*elffile.File, error) {
	file, err := f.ELF()
	if err != nil {
		return nil, &unreadable{err}
	}
	switch file.Machine() {
	case elf.EM_X86_64, elf.EM_AARCH64:
		return file, nil
	}
	return nil, &unreadable{errOtherMachine}
}

// functionsIn finds the functions of a file's allocator, none if it has no allocator.
func (s *Source) functionsIn(f *process.File, file *elffile.File) ([]function, error) {
	tables := s.finder.Tables(context.Background(), &debugfile.File{File: file, Root: f.Root(), Path: f.Path})
	defer func() { _ = tables.Close() }() // nothing was written
	found, err := find(file, tables)
	switch {
	case err != nil || len(found) == 0:
		return nil, err
	case s.live && found[0].program == inGo:
		return nil, errGoLive
	}
	sequences, err := rseq.Read(file)
	if err != nil {
		return nil, err
	}
	measured := found[:0]
	for _, fn := range found {
		err := cmp.Or(sequences.CheckOffset(fn.offset), events.CheckNOP(file, fn.offset))
		if address, ok := file.Address(fn.offset); ok && err == nil && len(tables) > 1 {
			err = events.CheckStart(file, address)
		}
		if err == nil && s.needsReturn(fn) && !fn.isKnown {
			err = fn.findReturns(file, tables)
		}
		if err != nil {
			s.files.refused = append(s.files.refused, fmt.Sprintf("allocations by %s in %s are not measured: %s", plain.Terminal(fn.name), file.Name(), plain.Error(err)))
			continue
		}
		measured = append(measured, fn)
	}
	return measured, s.overhead.learn(file, measured)
}

// attachIn attaches the programs to the probes or the functions in a file.
func (s *Source) attachIn(f *process.File, a *allocator) error {
	o, err := f.Hold()
	if err != nil {
		return err
	}
	defer o.Close()
	if a.probes != nil {
		return s.attachProbes(a.probes, o)
	}
	return s.attachFunctions(a.functions, f.Path, o)
}

// attachFunctions attaches the programs to functions in an open file.
func (s *Source) attachFunctions(found []function, path string, o *safeopen.File) error {
	point := func(fn function) events.Point {
		return events.Point{Name: fn.name, Address: fn.offset}
	}
	attach := func(program program, points []events.Point) error {
		if len(points) == 0 {
			return nil
		}
		return s.Attached[program].AttachTo(&events.Probe{
			Event:  events.Event{Kind: events.Uprobe, Path: path, Name: points[0].Name},
			Points: points, Files: []*safeopen.File{o},
		}, s.target)
	}
	// First the returns: each entry that is seen needs its return.
	var replaced, instructions []events.Point
	for _, fn := range found {
		switch {
		case !s.needsReturn(fn):
		case !fn.isKnown:
			for _, at := range fn.returns {
				instructions = append(instructions, events.Point{Name: fn.name, Address: at})
			}
		default:
			replaced = append(replaced, events.Point{Name: fn.name, Address: fn.offset, Replaced: true})
		}
	}
	slices.SortFunc(instructions, func(a, b events.Point) int { return cmp.Compare(a.Address, b.Address) })
	instructions = slices.CompactFunc(instructions, func(a, b events.Point) bool { return a.Address == b.Address })
	if err := attach(ended, append(replaced, instructions...)); err != nil {
		return err
	}
	// Frees first: a block may be freed at once.
	for program := free; ; program-- {
		var points []events.Point
		for _, fn := range found {
			if fn.program == program && (s.live || program != free) {
				points = append(points, point(fn))
			}
		}
		if err := attach(program, points); err != nil || program == 0 {
			return err
		}
	}
}
