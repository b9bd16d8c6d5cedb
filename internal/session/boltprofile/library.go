package boltprofile

import (
	"fmt"
	"path"
	"strings"

	"fulgur/internal/bolt"
	"fulgur/internal/message/plain"
	"fulgur/internal/profile/perfdata"
)

// library finds the files that processes had mapped, on this machine. The zero
// value is ready for use.
type library struct {
	byID    map[string]*bolt.Binary // by build ID, or path without one
	missing []error                 // the first few files that are not here
	more    int                     // how many besides
}

// maxMissing is how many files that are missing are told of one by one.
const maxMissing = 5

// find returns the binary that a mapped file is, nil if it is not here. Files
// of the same contents are one.
func (l *library) find(m perfdata.Mapped) *bolt.Binary {
	b, err := openMapped(m)
	if err != nil {
		if len(l.missing) < maxMissing {
			l.missing = append(l.missing, err)
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
		return nil, fmt.Errorf("%s: no file", m.Path)
	}
	b, err := openBinary(name)
	switch {
	case err != nil:
		return nil, err
	case m.BuildID != "" && b.BuildID != "":
		if perfdata.Match(b)(m) == nil {
			return nil, fmt.Errorf("%s: another build: recorded build ID %s, the file has %s", name, m.BuildID, b.BuildID)
		}
	case deleted:
		return nil, fmt.Errorf("%s: deleted, and without a build ID the file of that name may be another one", name)
	}
	return b, nil
}

// leftOut tells of the files that were not found, to go on a sentence.
func (l *library) leftOut() string {
	if len(l.missing) == 0 {
		return ""
	}
	var b strings.Builder
	for _, err := range l.missing {
		fmt.Fprintf(&b, "; %s", plain.Terminal(err.Error()))
	}
	if l.more > 0 {
		fmt.Fprintf(&b, "; and %s", plain.Count(uint64(l.more), "more file"))
	}
	return b.String()
}
