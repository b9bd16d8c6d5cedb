package code

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"fulgur/internal/files/safeopen"
	"fulgur/internal/symbols/symbolize"
)

// maxSource is the maximum size of source files to show, in bytes.
const maxSource = 16 << 20

var (
	// ErrNotNamed is wrapped by the error for a source file that the debug information
	// does not mention at the given address.
	ErrNotNamed = errors.New("the debug information does not name it there")
	// ErrNoSource is wrapped by the error for a source file that does not exist here.
	ErrNoSource = errors.New("this source file is not installed")
	// ErrNoText is wrapped by the error for a source file that is not text.
	ErrNoText = errors.New("not a text file")
)

// Source is the text of a source file.
type Source struct {
	Text string
	// Modified is the time of the file's last change.
	Modified time.Time
}

// Source returns the text of a source file. file is its name in the debug information,
// which must mention it at one of the link-time virtual addresses at (including functions
// inlined there). Otherwise the error wraps [ErrNotNamed].
func (f *File) Source(file string, at ...uint64) (Source, error) {
	at = slices.Sorted(slices.Values(at))
	found, err := f.all.LookupBatch(at)
	if slices.ContainsFunc(found, func(frames []symbolize.Frame) bool { return names(frames, file) }) {
		return readSource(file)
	}
	return Source{}, errors.Join(fmt.Errorf("%s: %w", file, ErrNotNamed), err)
}

// names reports whether one of the functions at an address is from the source file.
func names(frames []symbolize.Frame, file string) bool {
	return file != "" && slices.ContainsFunc(frames, func(f symbolize.Frame) bool { return f.File == file })
}

// readSource reads a file mentioned in debug information.
func readSource(name string) (s Source, err error) {
	if !path.IsAbs(name) {
		return Source{}, fmt.Errorf("%s: the directory of the compilation is not known", name)
	}
	file, err := safeopen.Open("/", name, safeopen.Regular)
	if errors.Is(err, fs.ErrNotExist) {
		return Source{}, fmt.Errorf("%s: %w", name, ErrNoSource)
	}
	if err != nil {
		return Source{}, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	info, err := file.Stat()
	if err != nil {
		return Source{}, err
	}
	text, err := io.ReadAll(io.LimitReader(file, maxSource+1))
	switch {
	case err != nil:
		return Source{}, err
	case len(text) > maxSource:
		return Source{}, fmt.Errorf("%s: more than %d MiB: %w", name, maxSource>>20, ErrNoText)
	case bytes.IndexByte(text, 0) >= 0:
		return Source{}, fmt.Errorf("%s: %w", name, ErrNoText)
	}
	return Source{Text: strings.ToValidUTF8(string(text), "\uFFFD"), Modified: info.ModTime()}, nil
}
