package safeopen

import (
	"errors"
	"io"
	"os"
	"path"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"fulgur/internal/answer"
)

// File is a file or directory that was opened by [Open]. Its methods wait for its
// file system for a moment only; where that does not answer, their errors wrap
// [answer.ErrNone].
type File struct {
	file *os.File
	name string
	info os.FileInfo
	// on is what reading asks; nil of a file on a disk of this machine, which
	// keeps nobody waiting.
	on *place
}

// place is what may fail to answer: a file system by its device number, or where
// that is not known yet, the surroundings of a path.
type place struct {
	device uint64
	root   string
	above  string // of the path below root, its first directories
}

// placeDepth is how many directories of a path tell mounts apart: those of a mount
// that does not answer are best asked once, and what lies beside it is not to
// suffer.
const placeDepth = 3

// places remembers, for all of the process, who does not answer.
var places = answer.New[place]()

// placeOf returns the surroundings of name below root.
func placeOf(root, name string) place {
	parts := strings.SplitN(strings.TrimPrefix(path.Dir(path.Clean("/"+name)), "/"), "/", placeDepth+1)
	return place{root: root, above: strings.Join(parts[:min(len(parts), placeDepth)], "/")}
}

// Open opens what is at name below the directory root, for reading, if accept
// returns nil for it. Symbolic links lead to places below root, whatever they
// say: those of a container mean its own files.
func Open(root, name string, accept func(*unix.Stat_t) error) (*File, error) {
	full := path.Join(root, name)
	f, err := answer.Ask(places, placeOf(root, name), func() (*File, error) {
		file, err := open(root, name, accept)
		if err != nil {
			return nil, err
		}
		info, err := file.Stat()
		if err != nil {
			return nil, errors.Join(err, file.Close())
		}
		f := &File{file: file, name: full, info: info}
		if st := info.Sys().(*syscall.Stat_t); unix.Major(st.Dev) == 0 {
			f.on = &place{device: st.Dev}
		}
		return f, nil
	}, func(f *File, err error) {
		if err == nil {
			_ = f.file.Close() // nobody waited for it
		}
	})
	if errors.Is(err, answer.ErrNone) {
		err = &os.PathError{Op: "open", Path: full, Err: err}
	}
	return f, err
}

// Stat returns what [os.Stat] does of what is at a trusted path.
func Stat(name string) (os.FileInfo, error) {
	info, err := answer.Ask(places, place{root: name}, func() (os.FileInfo, error) { return os.Stat(name) },
		func(os.FileInfo, error) {}) // nothing is left of it
	if errors.Is(err, answer.ErrNone) {
		err = &os.PathError{Op: "stat", Path: name, Err: err}
	}
	return info, err
}

// Name returns the path that the file was opened at, its root included.
func (f *File) Name() string { return f.name }

// Stat returns what the file was when it was opened.
func (f *File) Stat() (os.FileInfo, error) { return f.info, nil }

// OS returns the open file for programs that are to read it. It is closed with f.
func (f *File) OS() *os.File { return f.file }

// ReadAt implements [io.ReaderAt].
func (f *File) ReadAt(b []byte, off int64) (int, error) {
	return f.into(b, func(b []byte) (int, error) { return f.file.ReadAt(b, off) })
}

// Read implements [io.Reader].
func (f *File) Read(b []byte) (int, error) { return f.into(b, f.file.Read) }

// into reads into b by read, which is handed other memory if it may come back when
// nobody waits for it any more.
func (f *File) into(b []byte, read func([]byte) (int, error)) (int, error) {
	if f.on == nil {
		return read(b)
	}
	got, err := ask(f, func() ([]byte, error) {
		own := make([]byte, len(b))
		n, err := read(own)
		return own[:n], err
	})
	return copy(b, got), err
}

// Names returns the names of what is in a directory, most of them at most.
func (f *File) Names(most int) ([]string, error) {
	names, err := ask(f, func() ([]string, error) { return f.file.Readdirnames(most) })
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return names, err
}

// Close closes the file, or has it closed once its file system answers.
func (f *File) Close() error {
	if f.on == nil {
		return f.file.Close()
	}
	return answer.Close(places, *f.on, f.file)
}

// ask asks the file's file system.
func ask[T any](f *File, question func() (T, error)) (T, error) {
	if f.on == nil {
		return question()
	}
	got, err := answer.Ask(places, *f.on, question, func(T, error) {}) // what is late is of no use
	if errors.Is(err, answer.ErrNone) {
		err = &os.PathError{Op: "read", Path: f.name, Err: err}
	}
	return got, err
}
