package goroutines

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"fulgur/internal/capture/events"
	"fulgur/internal/capture/target"
	"fulgur/internal/files/safeopen"
	"fulgur/internal/message/plain"
	"fulgur/internal/message/usage"
	"fulgur/internal/process"
)

// files are the files of the target.
type files struct {
	seen     map[process.FileKey]*goRuntime // nil if a file has no runtime that is measured
	attached []string                       // names of files with a runtime
	late     []string                       // of these, those that were attached while counting
	refused  []string                       // why others are not measured
	unread   []string                       // names of files that may have a runtime, or not
	own      bool                           // fulgur itself was left out
}

// check returns an error if the processes that a target names have no runtime that can be measured.
func (f *files) check(t target.Target) error {
	switch {
	case t.Scope != target.Processes || t.Children || len(f.attached) > 0:
		return nil
	case len(f.refused) > 0:
		return fmt.Errorf("nothing can be measured: %s", strings.Join(f.refused, "; "))
	case len(f.unread) > 0:
		return fmt.Errorf("no Go program was found in the files of the target, and some could not be read: %s", strings.Join(f.unread, ", "))
	}
	return usage.Errorf("the target has no goroutines: none of its files is a Go program")
}

// Follow implements [source.FileFollower]. It attaches to Go's runtime in the files that a process maps, unless it
// did before.
func (s *Source) Follow(mapped []*process.File) error {
	if s.files.seen == nil {
		s.files.seen = map[process.FileKey]*goRuntime{}
	}
	for _, f := range mapped {
		if _, ok := s.files.seen[f.Key]; ok {
			continue
		}
		r, err := s.attachIn(f)
		s.files.seen[f.Key] = r
		switch {
		case errors.Is(err, fs.ErrPermission):
			return err
		case err != nil:
			s.files.refused = append(s.files.refused, plain.Terminal(fmt.Sprintf("goroutines of %s are not measured: %s", f.Path, plain.Error(err))))
		case r != nil:
			name := plain.Terminal(filepath.Base(f.Path))
			s.files.attached = append(s.files.attached, name)
			if s.counting {
				s.files.late = append(s.files.late, name)
			}
		}
	}
	return nil
}

// attachIn attaches the programs to the runtime in a file. It returns nil if the file has none.
func (s *Source) attachIn(f *process.File) (*goRuntime, error) {
	file, err := f.ELF()
	if err != nil {
		slog.Debug("not searched for Go's runtime", "path", f.Path, "error", err)
		s.files.unread = append(s.files.unread, plain.Terminal(filepath.Base(f.Path)))
		return nil, nil
	}
	if file.Machine() != elf.EM_X86_64 && file.Machine() != elf.EM_AARCH64 || !events.IsGo(file) {
		return nil, nil
	}
	o, err := f.Hold()
	if err != nil {
		return nil, err
	}
	defer o.Close()
	// The programs would measure, and perhaps stop, the goroutines that read what they measure.
	if s.target.Scope != target.Processes && isSelf(o) {
		s.files.own = true
		return nil, nil
	}
	r, err := findRuntime(file)
	if err != nil {
		return nil, err
	}
	return r, s.attachTo(r, f.Path, o)
}

// isSelf reports whether an open file is the program that runs.
func isSelf(o *safeopen.File) bool {
	own, err := os.Stat("/proc/self/exe")
	if err != nil {
		return false
	}
	other, err := o.Stat()
	return err == nil && os.SameFile(own, other)
}

// attachTo attaches the programs to a runtime in an open file.
func (s *Source) attachTo(r *goRuntime, path string, o *safeopen.File) error {
	// The ends first: a wait that is seen needs its end.
	for _, program := range []program{execute, list, ready, park} {
		index := int(program)
		if program == list {
			for _, l := range lists {
				if l.schedlink == r.release.schedlink {
					index = l.index
				}
			}
		}
		name := functions[program]
		if err := s.Attached[index].AttachTo(&events.Probe{
			Event:  events.Event{Kind: events.Uprobe, Path: path, Name: name},
			Points: []events.Point{{Name: name, Address: r.places[program]}}, Files: []*safeopen.File{o},
		}, s.target); err != nil {
			return err
		}
	}
	return nil
}
