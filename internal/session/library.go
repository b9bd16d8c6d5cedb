package session

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"fulgur/internal/bolt"
	"fulgur/internal/perfdata"
)

// library finds the files that processes had mapped, on this machine. The zero
// value is ready for use.
type library struct {
	byID    map[string]*bolt.Binary // by build ID, or path without one
	missing []missingFile           // the first few
	more    int                     // how many besides
}

// missingFile is a file that gets no profile.
type missingFile struct {
	path string
	why  error
}

// maxMissing is how many files without a profile are told of one by one.
const maxMissing = 5

// find returns the binary that a mapped file is, nil if it is not here. Files
// of the same contents are one.
func (l *library) find(m perfdata.Mapped) *bolt.Binary {
	b, err := openMapped(m)
	if err != nil {
		if len(l.missing) < maxMissing {
			l.missing = append(l.missing, missingFile{m.Path, err})
		} else {
			l.more++
		}
		return nil
	}
	id := b.BuildID
	if id == "" {
		id = b.Name
	}
	if same := l.byID[id]; same != nil {
		return same
	}
	if l.byID == nil {
		l.byID = map[string]*bolt.Binary{}
	}
	l.byID[id] = b
	return b
}

// openMapped opens a mapped file and makes sure that it is the same.
func openMapped(m perfdata.Mapped) (*bolt.Binary, error) {
	name, deleted := strings.CutSuffix(m.Path, " (deleted)")
	if !path.IsAbs(name) {
		return nil, errors.New("no file")
	}
	b, err := openBinary(name)
	switch {
	case err != nil:
		return nil, err
	case m.BuildID != "" && b.BuildID != "":
		if perfdata.Match(b)(m) == nil {
			return nil, fmt.Errorf("another build: build ID %s was recorded, the file has %s", m.BuildID, b.BuildID)
		}
	case deleted:
		return nil, errors.New("was deleted, and no build ID tells whether the file of its name is the same")
	}
	return b, nil
}

// leftOut tells of the files that were not found, for the end of a sentence.
func (l *library) leftOut() string {
	if len(l.missing) == 0 {
		return ""
	}
	var b strings.Builder
	for _, m := range l.missing {
		fmt.Fprintf(&b, "; %s: %s", printable(m.path), printable(m.why.Error()))
	}
	if l.more > 0 {
		fmt.Fprintf(&b, "; and %s", count(uint64(l.more), "more file"))
	}
	return b.String()
}
