package debugfile

import (
	"context"
	"fmt"
	"path"

	"fulgur/internal/symbols/elffile"
)

// Alt returns the file to which dwz moved debug info of debug, or nil if debug has no link to
// such a file. The caller closes it. If no file is found, the error wraps [ErrNotFound] and
// lists why candidates were rejected.
func (f *Finder) Alt(ctx context.Context, debug *File) (*File, error) {
	link, err := debug.AltLink()
	if link == nil {
		return nil, err
	}
	s := &search{what: fmt.Sprintf("%s, which has debug info of %s (ID %s)", link.Path, debug.Name(), link.ID)}
	accept := func(c *elffile.File) error {
		if got := c.AltID(); got != link.ID {
			return fmt.Errorf("ID is %q, not %s", got, link.ID)
		}
		return nil
	}
	names := []string{link.Path}
	if !path.IsAbs(link.Path) {
		names[0] = path.Join(path.Dir(debug.Path), link.Path)
	}
	names = append(names, path.Join(debugDir, ".dwz", path.Base(link.Path)))
	for _, root := range f.roots(debug.Root) {
		for _, name := range names {
			if found := s.open(root, name, accept); found != nil {
				return found, nil
			}
		}
	}
	if found := f.byBuildID(s, debug.Root, link.ID, accept); found != nil {
		return found, nil
	}
	if found := f.download(ctx, s, link.ID); found != nil {
		return found, nil
	}
	return nil, s.err()
}
