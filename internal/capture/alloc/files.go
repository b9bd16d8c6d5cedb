package alloc

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"

	"fulgur/internal/capture/events"
	"fulgur/internal/capture/target"
	"fulgur/internal/files/safeopen"
	"fulgur/internal/message/plain"
	"fulgur/internal/message/usage"
	"fulgur/internal/process"
	"fulgur/internal/symbols/elffile"
)

// files are the files of the target.
type files struct {
	seen     map[process.FileKey]bool
	attached []string // names of files with an allocator
	late     []string // names of files that were attached while counting
	refused  []string // why others are not measured
}

// FollowsFiles returns true.
func (*Source) FollowsFiles() bool { return true }

// Follow attaches to the allocators in files, unless it did before.
func (s *Source) Follow(mapped []*process.File) error {
	if s.files.seen == nil {
		s.files.seen = map[process.FileKey]bool{}
	}
	for _, f := range mapped {
		if s.files.seen[f.Key] {
			continue
		}
		s.files.seen[f.Key] = true
		found, err := s.allocatorIn(f)
		if len(found) == 0 && err == nil {
			continue
		}
		if err == nil {
			err = s.attachTo(f, found)
		}
		switch {
		case errors.As(err, new(*unreadable)):
			slog.Debug("no look for an allocator", "path", f.Path, "error", err)
			continue
		case errors.Is(err, errGoLive) && s.target.Scope == target.Processes && !s.counting:
			return usage.Errorf("%s is a Go program: %v", f.Path, err)
		case errors.Is(err, fs.ErrPermission):
			return err
		case err != nil:
			s.files.refused = append(s.files.refused, fmt.Sprintf("allocations by %s are not measured: %s", f.Path, plain.Error(err)))
			continue
		}
		s.files.attached = append(s.files.attached, filepath.Base(f.Path))
		if s.counting {
			s.files.late = append(s.files.late, filepath.Base(f.Path))
		}
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

// allocatorIn returns the functions of an allocator in a file, nil if there is none.
func (s *Source) allocatorIn(f *process.File) ([]function, error) {
	r, size, err := f.ReaderAt()
	if err != nil {
		return nil, &unreadable{err}
	}
	file, err := elffile.New(r, size, f.Path)
	if err != nil {
		return nil, &unreadable{err}
	}
	switch file.Machine() {
	case elf.EM_X86_64, elf.EM_AARCH64:
	default:
		return nil, &unreadable{errOtherMachine}
	}
	found, err := find(file)
	if err == nil && s.live && len(found) > 0 && found[0].program == inGo {
		err = errGoLive
	}
	if err == nil && len(found) > 0 {
		err = s.overhead.learn(file, found)
	}
	return found, err
}

// attachTo attaches the programs to functions in a file.
func (s *Source) attachTo(f *process.File, found []function) error {
	o, err := safeopen.Open(f.Root(), f.Path, safeopen.Regular)
	if err != nil {
		return err
	}
	defer o.Close()
	switch {
	case !f.Is(o):
		return process.ErrFileReplaced
	case o.Remote():
		// The kernel reads the instruction, and may wait for it forever.
		return errors.New("the file is on a file system that may not respond (FUSE)")
	}
	point := func(fn function) events.Point {
		return events.Point{Name: fn.name, Address: fn.offset}
	}
	attach := func(kind events.Kind, program program, points []events.Point) error {
		if len(points) == 0 {
			return nil
		}
		return s.Attached[program].AttachTo(&events.Probe{
			Event:  events.Event{Kind: kind, Path: f.Path, Name: points[0].Name},
			Points: points, Files: []*safeopen.File{o},
		}, s.target)
	}
	// First the returns: each entry that is seen needs its return.
	var points []events.Point
	for _, fn := range found {
		if s.needsReturn(fn) {
			points = append(points, point(fn))
		}
	}
	if err := attach(events.Uretprobe, returns, points); err != nil {
		return err
	}
	// Frees first: a block may be freed at once.
	for program := free; ; program-- {
		points = nil
		for _, fn := range found {
			if fn.program == program && (s.live || program != free) {
				points = append(points, point(fn))
			}
		}
		if err := attach(events.Uprobe, program, points); err != nil || program == 0 {
			return err
		}
	}
}
