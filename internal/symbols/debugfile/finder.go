// Package debugfile finds files that belong to a binary: separate debug files, shared
// debug info moved by dwz, split DWARF (.dwo, .dwp), the kernel's vmlinux and its
// modules' debug files. It also names the package that would provide a missing file.
//
// The search paths are the same as in GDB ("Separate Debug Files" in its manual), elfutils
// and the distributions. The package searches them below several roots, since the debug files
// of a program in a container may be in the container or on the host. A file is used only if
// it provably belongs to the binary: by build ID or, without one, by checksum.
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

	"fulgur/internal/files/safeopen"
	"fulgur/internal/symbols/elffile"
)

// debugDir is the directory in which distributions install separate debug files.
const debugDir = "/usr/lib/debug"

// ErrNotFound is wrapped by the errors of searches that found nothing.
var ErrNotFound = errors.New("not found")

// File is an ELF file and its location, where the search for related files begins.
type File struct {
	*elffile.File
	// Root is the directory that serves as "/" for the file: "/", or "/proc/PID/root" for
	// the file of a process. For a search, it may be empty if the file is not on disk.
	Root string
	// Path is the file's absolute path below Root.
	Path string
}

// Config configures where to search. The zero value means the host.
type Config struct {
	// Root is a directory with a copy of another system's files that is searched first, or
	// empty for none. It corresponds to perf's --symfs.
	Root string
	// Host is the root directory of the host; empty means "/".
	Host string
	// Release is the running kernel's release, as in uname -r; empty means to ask the
	// kernel.
	Release string
	// Getenv reads the environment; nil means os.Getenv. Files are downloaded only if
	// DEBUGINFOD_URLS is set.
	Getenv func(string) string
	// Client makes the requests; nil means a client without limits of its own.
	Client *http.Client
}

// Finder finds files. Its methods are safe for concurrent use.
type Finder struct {
	root, host string
	buildIDs   string // perf's cache of files by build ID, or ""
	release    string
	downloads  *downloads // nil if disabled
	owners     *owners
}

// New returns a finder for c. It fails if the environment's settings for downloads are
// invalid.
func New(c Config) (*Finder, error) {
	f := &Finder{root: c.Root, host: c.Host, release: c.Release, owners: newOwners()}
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
	if f.buildIDs = getenv("PERF_BUILDID_DIR"); f.buildIDs == "" && getenv("HOME") != "" {
		f.buildIDs = path.Join(getenv("HOME"), ".debug")
	}
	var err error
	f.downloads, err = newDownloads(getenv, c.Client)
	return f, err
}

// Local returns a copy of the finder that does not download.
func (f *Finder) Local() *Finder {
	if f == nil {
		return nil
	}
	local := *f
	local.downloads = nil
	return &local
}

// roots returns the directories to search for files related to a file below root, which may
// be empty. Of several names of the same directory, it includes only the first:
// /proc/PID/root of an ordinary process is the host's root, and each candidate would be tried
// twice.
func (f *Finder) roots(root string) []string {
	var roots []string
	var seen []os.FileInfo
	for _, r := range []string{f.root, root, f.host} {
		if r == "" || slices.Contains(roots, r) {
			continue
		}
		// Keep a directory that cannot be checked; opening files in it will return the
		// error.
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

// search is a single search. It opens candidates and records why they were rejected.
type search struct {
	what     string
	problems []error
}

// open returns the ELF file at name below root. If accept is not nil, it must return nil for
// the file. Otherwise open returns nil and records the problem, unless the file is missing.
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
	case errors.Is(err, safeopen.ErrNoAnswer) && slices.ContainsFunc(s.problems, func(err error) bool { return errors.Is(err, safeopen.ErrNoAnswer) }):
		// One problem of each kind is enough.
	default:
		s.problems = append(s.problems, err)
	}
	return nil
}

// Problems returns the problems in the error of a search: files that could not be used, and
// servers that failed.
func Problems(err error) []error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok || len(joined.Unwrap()) == 0 {
		return nil
	}
	return joined.Unwrap()[1:]
}

// err returns the error of an unsuccessful search.
func (s *search) err() error {
	return errors.Join(append([]error{fmt.Errorf("%s: %w", s.what, ErrNotFound)}, s.problems...)...)
}
