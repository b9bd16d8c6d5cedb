package stacks

import (
	"fmt"
	"strings"
	"unsafe"

	"fulgur/bpf"
	"fulgur/internal/linux/ringbuf"
	"fulgur/internal/profile"
)

// Labels is a set of labels from the kernel side.
type Labels struct {
	list  [len(bpf.LabelRecord{}.Labels)]profile.Label
	count int
}

// List returns the labels.
func (l *Labels) List() profile.Labels {
	if l == nil {
		return nil
	}
	return profile.NewLabels(append([]profile.Label(nil), l.list[:l.count]...))
}

// maxLabelSets limits the sets of labels in a store. The kernel side limits them by process.
const maxLabelSets = 1 << 18

// labels holds the sets of labels that the kernel side sent.
type labels struct {
	known    map[uint64]*Labels // by the kernel side's ID
	previous map[uint64]*Labels // from the previous store
	same     map[Labels]*Labels
}

func newLabels() labels {
	return labels{known: map[uint64]*Labels{}, same: map[Labels]*Labels{}}
}

// AddLabels adds the set of labels in a record. Stacks that have it arrive later. Beyond the limit
// on sets, stacks have no labels.
func (s *Store) AddLabels(record []byte) error {
	var r bpf.LabelRecord
	header := unsafe.Offsetof(r.Labels)
	if err := ringbuf.Copy(&r, record, header); err != nil {
		return err
	}
	if n := (len(record) - int(header)) / int(unsafe.Sizeof(r.Labels[0])); int(r.Count) > min(n, len(r.Labels)) {
		return fmt.Errorf("%w: %d labels in %d bytes", ringbuf.ErrRecord, r.Count, len(record))
	}
	var list []profile.Label
	for i := range r.Labels[:r.Count] {
		l := &r.Labels[i]
		list = append(list, profile.Label{Key: labelText(l.Key[:], l.KeySize), Value: labelText(l.Value[:], l.ValueSize)})
	}
	list = profile.NewLabels(list)
	set := Labels{count: len(list)}
	copy(set.list[:], list)
	if len(s.labels.known) < maxLabelSets {
		s.labels.known[r.Id] = s.labels.intern(set)
	}
	return nil
}

// labelText returns a text of size bytes, of which the kernel side sent the first ones.
func labelText(b []byte, size uint16) string {
	if int(size) > len(b) {
		return strings.ToValidUTF8(string(b), "") + "…"
	}
	return strings.ToValidUTF8(string(b[:size]), "\uFFFD")
}

// intern returns the same pointer for equal sets.
func (l *labels) intern(set Labels) *Labels {
	same := l.same[set]
	if same == nil {
		same = &set
		l.same[set] = same
	}
	return same
}

// find returns the set with the given ID, or nil if it has not arrived.
func (l *labels) find(id uint64) *Labels {
	if id == 0 {
		return nil
	}
	if set := l.known[id]; set != nil {
		return set
	}
	set := l.previous[id]
	if set != nil {
		set = l.intern(*set)
		l.known[id] = set
	}
	return set
}
