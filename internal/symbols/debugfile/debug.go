package debugfile

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"path"
	"strings"

	"fulgur/internal/symbols/elffile"
)

// Limits of files whose checksum is computed, which requires reading the whole file.
const (
	// maxChecksummed bounds the file's size, in bytes.
	maxChecksummed = 4 << 30
	// maxSparse is the size in bytes above which a file must not be sparse: creating it cost
	// next to nothing, but reading it takes long.
	maxSparse = 64 << 20
)

// Debug returns the separate debug file of b, or an unstripped copy of b below [Config.Root].
// It looks for that copy first, then below all roots by build ID, then by debug link, and
// finally downloads. The caller closes the file. If none is found, the error wraps
// [ErrNotFound] and lists why candidates were rejected.
func (f *Finder) Debug(ctx context.Context, b *File) (*File, error) {
	s := &search{what: "debug file of " + b.Name()}
	id := b.BuildID()
	accept := func(c *elffile.File) error { return errors.Join(sameBuildID(c, id), hasDebugInfo(c)) }
	if f.root != "" && id != "" && path.IsAbs(b.Path) {
		if found := s.open(f.root, b.Path, accept); found != nil {
			return found, nil
		}
	}
	if found := f.byBuildID(s, b.Root, id, accept); found != nil {
		return found, nil
	}
	link, err := b.DebugLink()
	if err != nil {
		s.problems = append(s.problems, err)
	}
	if found := f.byLink(ctx, s, b, link); found != nil {
		return found, nil
	}
	if found := f.download(ctx, s, id); found != nil {
		return found, nil
	}
	return nil, s.err()
}

// ByBuildID returns the debug file of a binary that is not available, by its build ID in
// lowercase hex. It may download. The caller closes the file. If none is found, the error
// wraps [ErrNotFound] and lists why candidates were rejected.
func (f *Finder) ByBuildID(ctx context.Context, id string) (*File, error) {
	s := &search{what: "debug file with build ID " + id}
	if strings.Trim(id, "0123456789abcdef") != "" {
		return nil, s.err() // it becomes part of a path
	}
	accept := func(c *elffile.File) error { return errors.Join(sameBuildID(c, id), hasDebugInfo(c)) }
	if found := f.byBuildID(s, "", id, accept); found != nil {
		return found, nil
	}
	if found := f.download(ctx, s, id); found != nil {
		return found, nil
	}
	return nil, s.err()
}

// byBuildID looks for the file with the given build ID, which accept must compare.
func (f *Finder) byBuildID(s *search, root, id string, accept func(*elffile.File) error) *File {
	if len(id) <= 2 {
		return nil
	}
	for _, root := range f.roots(root) {
		if found := s.open(root, debugDir+"/.build-id/"+id[:2]+"/"+id[2:]+".debug", accept); found != nil {
			return found
		}
	}
	return nil
}

// byLink looks for the debug file named by b's debug link.
func (f *Finder) byLink(ctx context.Context, s *search, b *File, link *elffile.DebugLink) *File {
	if link == nil || !path.IsAbs(b.Path) {
		return nil
	}
	if strings.Contains(link.Name, "/") || link.Name == ".." {
		s.problems = append(s.problems, fmt.Errorf("%s: debug link with a directory: %q", b.Name(), link.Name))
		return nil
	}
	accept := func(c *elffile.File) error {
		if err := hasDebugInfo(c); err != nil {
			return err
		}
		// Build IDs are stronger evidence than the checksum, and do not require reading
		// the file.
		if id := b.BuildID(); id != "" && c.BuildID() != "" {
			return sameBuildID(c, id)
		}
		return sameChecksum(ctx, c, link.CRC)
	}
	for _, root := range f.roots(b.Root) {
		dir := path.Dir(b.Path)
		for _, name := range []string{path.Join(dir, link.Name), path.Join(dir, ".debug", link.Name)} {
			if name == path.Clean(b.Path) {
				continue // its own name
			}
			if found := s.open(root, name, accept); found != nil {
				return found
			}
		}
		for _, dir := range usrMerged(dir) {
			if found := s.open(root, path.Join(debugDir, dir, link.Name), accept); found != nil {
				return found
			}
		}
	}
	return nil
}

// usrMerged returns the equivalent paths of name on systems where /lib, /bin and /sbin are
// links into /usr. A program may use one path, and its debug package the other.
func usrMerged(name string) []string {
	if rest, ok := strings.CutPrefix(name, "/usr"); ok && inMerged(rest) {
		return []string{name, rest}
	}
	if inMerged(name) {
		return []string{name, "/usr" + name}
	}
	return []string{name}
}

// inMerged reports whether name is or is in a directory that is a link into /usr,
// including directories for other word sizes ("/lib64").
func inMerged(name string) bool {
	first, _, _ := strings.Cut(strings.TrimPrefix(name, "/"), "/")
	switch first {
	case "bin", "sbin", "lib", "lib32", "lib64", "libx32":
		return strings.HasPrefix(name, "/")
	}
	return false
}

// hasDebugInfo returns an error for a file with neither symbols nor debug info. A link may
// lead back to the stripped binary itself.
func hasDebugInfo(f *elffile.File) error {
	sections, err := f.Sections()
	if err != nil {
		return err
	}
	for _, s := range sections {
		if s.Type == elf.SHT_SYMTAB && s.Size > 0 {
			return nil
		}
	}
	if f.Section(".debug_info") == nil && f.Section(".debug_line") == nil {
		return errors.New("neither debug info nor symbols in it")
	}
	return nil
}

// sameBuildID returns an error unless f has the given build ID.
func sameBuildID(f *elffile.File, id string) error {
	if got := f.BuildID(); got != id {
		return fmt.Errorf("build ID is %q, not %s", got, id)
	}
	return nil
}

// sameChecksum returns an error unless f has the given CRC. It stops reading when ctx is
// done.
func sameChecksum(ctx context.Context, f *elffile.File, crc uint32) error {
	if f.Size() > maxChecksummed {
		return fmt.Errorf("%d bytes are too many for a checksum", f.Size())
	}
	if f.Size() > maxSparse && f.Stored() < f.Size()/2 {
		return fmt.Errorf("%d bytes with %d stored are too sparse for a checksum", f.Size(), f.Stored())
	}
	sum := crc32.NewIEEE()
	if _, err := io.Copy(sum, elffile.Interruptible(ctx, f.Reader())); err != nil {
		return err
	}
	if got := sum.Sum32(); got != crc {
		return fmt.Errorf("checksum is %#08x, not %#08x", got, crc)
	}
	return nil
}
