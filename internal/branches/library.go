package branches

import (
	"fmt"
	"path"
	"strings"

	"fulgur/internal/bolt"
	"fulgur/internal/message/plain"
	"fulgur/internal/perfdata"
)

// library finds mapped files on this machine. The zero value is ready for use.
type library struct {
	byID    map[string]*bolt.Binary // by build ID, or by path without one
	missing []error                 // errors of the first missing files
	more    int                     // number of further missing files
}

// maxMissing limits the missing files that are listed.
const maxMissing = 5

// find returns the binary of a mapped file, nil if it is not found. Files with the
// same contents share a binary.
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

// openMapped opens a mapped file and checks that it is the same build.
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
		return nil, fmt.Errorf("%s: deleted, and without a build ID the file that now has its name may be another one", name)
	}
	return b, nil
}

// leftOut lists the files that were not found, as the end of a sentence.
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
