package containers

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"golang.org/x/sys/unix"

	"fulgur/internal/files/safeopen"
	"fulgur/internal/linux/capability"
)

// Limits of the files of runtimes. A container's file has a few kilobytes, and grows with its
// environment, labels and mounts. The list of all containers has about a kilobyte per
// container.
const (
	maxConfig = 1 << 20
	maxList   = 16 << 20
	// maxNesting is the maximum depth of their JSON. Real files have less than 20 levels.
	maxNesting = 64
)

// Errors of files of runtimes.
var (
	errOwner   = errors.New("belongs to another user, or other users can write it")
	errTooLong = errors.New("too long")
	errNesting = fmt.Errorf("JSON nested deeper than %d", maxNesting)
)

// state reads the files of a runtime whose owner is a given user.
type state struct {
	// uid owns the files.
	uid int
	// budget limits the waits for file systems of the user. It is nil for root.
	budget *safeopen.Budget
}

// accept returns a function that accepts regular files of the user of up to limit bytes that
// nobody else can write.
func (s state) accept(limit int64) func(*unix.Stat_t) error {
	return func(st *unix.Stat_t) error {
		if err := safeopen.Regular(st); err != nil {
			return err
		}
		if err := s.trust(st); err != nil {
			return err
		}
		if st.Size > limit {
			return fmt.Errorf("%w: %d bytes", errTooLong, st.Size)
		}
		return nil
	}
}

// trust accepts files and directories of the user that nobody else can write.
func (s state) trust(st *unix.Stat_t) error {
	if int(st.Uid) != s.uid || st.Mode&0o022 != 0 {
		return errOwner
	}
	return nil
}

// open opens a file or directory. Only the paths of a user's files are untrusted.
func (s state) open(path string, accept func(*unix.Stat_t) error) (*safeopen.File, error) {
	if s.uid == 0 {
		return safeopen.OpenTrusted(path, capability.SetOf(capability.DACReadSearch), accept)
	}
	return safeopen.OpenWithin(s.budget, "/", path, accept)
}

// read returns the contents of a file of up to limit bytes.
func (s state) read(path string, limit int64) (b []byte, err error) {
	f, err := s.open(path, s.accept(limit))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	b, err = io.ReadAll(io.NewSectionReader(f, 0, limit+1))
	if err == nil && int64(len(b)) > limit {
		return nil, fmt.Errorf("%s: %w", path, errTooLong)
	}
	return b, err
}

// readJSON decodes a JSON file of up to limit bytes into v.
func (s state) readJSON(path string, limit int64, v any) error {
	b, err := s.read(path, limit)
	if err != nil {
		return err
	}
	if err := decodeJSON(b, v); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// names returns up to limit names of the entries of a directory.
func (s state) names(path string, limit int) (list []string, err error) {
	dir, err := s.open(path, func(st *unix.Stat_t) error { return errors.Join(safeopen.Directory(st), s.trust(st)) })
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	return dir.Names(limit)
}

// decodeJSON decodes JSON of bounded depth.
func decodeJSON(b []byte, v any) error {
	if err := checkNesting(b); err != nil {
		return err
	}
	return json.Unmarshal(b, v)
}

// checkNesting returns an error if JSON is nested too deep.
func checkNesting(b []byte) error {
	depth, inString := 0, false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			if depth++; depth > maxNesting {
				return errNesting
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return nil
}

// clean returns an absolute path without "..", or "".
func clean(path string) string {
	if !filepath.IsAbs(path) {
		return ""
	}
	return filepath.Clean(path)
}
