package stacks

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"unsafe"

	"fulgur/bpf"
	"fulgur/internal/linux/ringbuf"
	"fulgur/internal/profile"
)

// Labels is a set of labels from the kernel side.
type Labels struct{ list profile.Labels }

// List returns the labels, which must not be changed.
func (l *Labels) List() profile.Labels {
	if l == nil {
		return nil
	}
	return l.list
}

// maxLabelSets limits the sets of labels in a store, and maxLabelBytes an estimate of their memory.
// The kernel side limits them by process and time.
const (
	maxLabelSets  = 1 << 18
	maxLabelBytes = 64 << 20
)

// labels holds the sets of labels that the kernel side sent.
type labels struct {
	known    map[uint64]*Labels // by the kernel side's ID
	previous map[uint64]*Labels // from the previous store
	same     map[string]*Labels // by their identity
	bytes    int                // estimate of the memory of same
}

func newLabels() labels {
	return labels{known: map[uint64]*Labels{}, same: map[string]*Labels{}}
}

// AddLabels adds the set of labels in a record. The stacks with the set arrive later. Beyond the
// limits, it drops the set, so these stacks have no labels.
func (s *Store) AddLabels(record []byte) error {
	var r bpf.LabelRecord
	header := unsafe.Offsetof(r.Labels)
	if err := ringbuf.Copy(&r, record, header); err != nil {
		return err
	}
	if n := (len(record) - int(header)) / int(unsafe.Sizeof(r.Labels[0])); int(r.Count) > min(n, len(r.Labels)) {
		return fmt.Errorf("%w: %d labels in %d bytes", ringbuf.ErrRecord, r.Count, len(record))
	}
	body := record[header:]
	if int64(r.Context) > int64(len(body)) {
		return fmt.Errorf("%w: %d bytes of context in %d bytes", ringbuf.ErrRecord, r.Context, len(record))
	}
	var list []profile.Label
	for i := range r.Labels[:r.Count] {
		l := &r.Labels[i]
		list = append(list, profile.Label{Key: labelText(l.Key[:], l.KeySize), Value: labelText(l.Value[:], l.ValueSize)})
	}
	if r.Context > 0 {
		list = append(list, s.contextLabels(int(r.Pid), r.Epoch, body[:r.Context])...)
	}
	if len(s.labels.known) >= maxLabelSets {
		return nil
	}
	if set := s.labels.intern(profile.NewLabels(list)); set != nil {
		s.labels.known[r.Id] = set
	}
	return nil
}

// contextLabels returns the labels in the context of a thread; see struct thread_context of
// bpf/label_maps.h. It leaves out attributes whose keys are not known.
func (s *Store) contextLabels(pid int, epoch uint64, context []byte) (list []profile.Label) {
	var c bpf.ThreadContext
	header := unsafe.Offsetof(c.Attributes)
	if err := ringbuf.Copy(&c, context, header); err != nil {
		return nil
	}
	for key, id := range map[string][]byte{profile.TraceID: c.TraceId[:], profile.SpanID: c.SpanId[:]} {
		if slices.ContainsFunc(id, func(b byte) bool { return b != 0 }) {
			list = append(list, profile.Label{Key: key, Value: hex.EncodeToString(id)})
		}
	}
	values := map[int][]byte{}
	last := -1
	for b := context[header:]; len(b) >= 2 && len(b) >= 2+int(b[1]); b = b[2+int(b[1]):] {
		values[int(b[0])] = b[2 : 2+int(b[1])] // the last value of a key counts
		last = max(last, int(b[0]))
	}
	if last < 0 || s.Keys == nil {
		return list
	}
	for i, key := range s.Keys(pid, epoch, last) {
		if value, ok := values[i]; ok && key != "" {
			list = append(list, profile.Label{Key: key, Value: strings.ToValidUTF8(string(value), "\uFFFD")})
		}
	}
	return list
}

// labelText returns a text of size bytes. The kernel side sent up to len(b) of them.
func labelText(b []byte, size uint16) string {
	if int(size) > len(b) {
		return strings.ToValidUTF8(string(b), "") + "…"
	}
	return strings.ToValidUTF8(string(b[:size]), "\uFFFD")
}

// sizeLabels estimates the memory of a set, and of each of its labels, without the texts.
const sizeLabels = 64

// intern returns the same pointer for equal sets, and nil for a new set if there is no room.
func (l *labels) intern(list profile.Labels) *Labels {
	key := list.Identity()
	same := l.same[key]
	if same != nil {
		return same
	}
	size := sizeLabels*(1+len(list)) + 2*len(key) // the texts, and the key
	if l.bytes+size > maxLabelBytes {
		return nil
	}
	l.bytes += size
	same = &Labels{list}
	l.same[key] = same
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
		set = l.intern(set.list)
	}
	if set != nil {
		l.known[id] = set
	}
	return set
}
