// Package debugfile finds what belongs to a binary but is kept apart from it:
// separate debug files, the files that dwz moves shared debug info to, split
// DWARF (.dwo, .dwp), the kernel's vmlinux and its modules' debug files; and it
// tells which package would bring what is missing.
//
// The places are those of GDB ("Separate Debug Files" in its manual), elfutils
// and the distributions. All are looked for below several roots, since a
// container has its own debug files, or none while the host has them. What is
// found is only used if it is proven to belong to the binary: by build ID, or
// without one by checksum.
package debugfile

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path"
	"slices"

	"golang.org/x/sys/unix"

	"fulgur/internal/files/answer"
	"fulgur/internal/files/safeopen"
	"fulgur/internal/symbols/elffile"
)

// debugDir is where distributions put separate debug files.
const debugDir = "/usr/lib/debug"

// ErrNotFound is wrapped by the error that says what was looked for in vain.
var ErrNotFound = errors.New("not found")

// File is an ELF file and where it was found, which is where the search for
// what belongs to it begins.
type File struct {
	*elffile.File
	// Root is the directory that stands for "/" where the file was found:
	// "/", or "/proc/PID/root" for the file of a process. Of the files to
	// search from it may be empty for one that is not on disk.
	Root string
	// Path is the file's absolute path below Root.
	Path string
}

// Config says where to look. The zero value is the host as it is.
type Config struct {
	// Root is a directory with a copy of another system's files, searched
	// before all others, or empty for none: perf's --symfs.
	Root string
	// Host is the directory that stands for "/" of the host, "/" if empty.
	Host string
	// Release is the running kernel's, as uname -r shows it; asked of the
	// kernel if empty.
	Release string
	// Getenv reads the environment; os.Getenv if nil. Files are downloaded
	// only if it has DEBUGINFOD_URLS.
	Getenv func(string) string
	// Client makes the requests; a client without limits of its own if nil.
	Client *http.Client
}

// Finder finds files. Its methods may be called from several goroutines.
type Finder struct {
	root, host string
	release    string
	downloads  *downloads // nil if none are wanted
}

// New returns a finder for c. It fails if the environment asks for downloads in
// a way that cannot be understood.
func New(c Config) (*Finder, error) {
	f := &Finder{root: c.Root, host: c.Host, release: c.Release}
	if f.host == "" {
		f.host = "/"
	}
	if f.release == "" {
		var name unix.Utsname
		if err := unix.Uname(&name); err != nil {
			return nil, fmt.Errorf("uname: %w", err)
		}
		f.release = unix.ByteSliceToString(name.Release[:])
	}
	getenv := c.Getenv
	if getenv == nil {
		getenv = os.Getenv
	}
	var err error
	f.downloads, err = newDownloads(getenv, c.Client)
	return f, err
}

// Local returns a finder that does as f does, but downloads nothing.
func (f *Finder) Local() *Finder {
	local := *f
	local.downloads = nil
	return &local
}

// roots returns the directories to search for what belongs to a file found
// below root, which may be empty. Of several names of one directory it has the
// first: /proc/PID/root of an ordinary process is the host's root, and each
// candidate there would be tried, and perhaps read, twice.
func (f *Finder) roots(root string) []string {
	var roots []string
	var seen []os.FileInfo
	for _, r := range []string{f.root, root, f.host} {
		if r == "" || slices.Contains(roots, r) {
			continue
		}
		// What cannot be looked at stays, and opening it tells why.
		if info, err := safeopen.StatRoot(r); err == nil {
			if slices.ContainsFunc(seen, func(s os.FileInfo) bool { return safeopen.Same(s, info) }) {
				continue
			}
			seen = append(seen, info)
		}
		roots = append(roots, r)
	}
	return roots
}

// search is one search: it opens candidates and remembers why it took none.
type search struct {
	what     string
	problems []error
}

// open opens the ELF file at name below root if accept, which may be nil,
// returns nil for it; else it returns nil. That there is no such file is no
// problem worth remembering.
func (s *search) open(root, name string, accept func(*elffile.File) error) *File {
	file, err := openIn(root, name)
	if err == nil {
		if accept != nil {
			err = accept(file)
		}
		if err == nil {
			return &File{File: file, Root: root, Path: path.Clean(name)}
		}
		_ = file.Close() // nothing was written
		err = fmt.Errorf("%s: %w", path.Join(root, name), err)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
	case errors.Is(err, answer.ErrNone) && slices.ContainsFunc(s.problems, func(err error) bool { return errors.Is(err, answer.ErrNone) }):
		// Of all that is there, one tells enough.
	default:
		s.problems = append(s.problems, err)
	}
	return nil
}

// Problems returns what else an error of a search says beside that nothing was
// found: files that could not be used, servers that failed.
func Problems(err error) []error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok || len(joined.Unwrap()) == 0 {
		return nil
	}
	return joined.Unwrap()[1:]
}

// err returns the error of a search in vain.
func (s *search) err() error {
	return errors.Join(append([]error{fmt.Errorf("%s: %w", s.what, ErrNotFound)}, s.problems...)...)
}
