package stacks

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"
	"unsafe"

	"fulgur/internal/bpf"
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
	bytes    int                // estimate of the memory of all sets
	// unfinished holds the sets with attributes whose keys are not known yet, at most
	// maxUnfinished.
	unfinished []unfinishedLabels
}

// unfinishedLabels is a set whose keys are to be read again.
type unfinishedLabels struct {
	set     *Labels
	pid     int
	epoch   uint64
	context []byte
	tries   int
	next    time.Time
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
	finished := true
	if r.Context > 0 {
		list, finished = s.contextLabels(int(r.Pid), r.Epoch, body[:r.Context])
	}
	if len(s.labels.known) >= maxLabelSets {
		return nil
	}
	var set *Labels
	if finished || len(s.labels.unfinished) >= maxUnfinished {
		set = s.labels.intern(profile.NewLabels(list))
	} else if set = s.labels.keep(profile.NewLabels(list), r.Context); set != nil {
		s.labels.unfinished = append(s.labels.unfinished, unfinishedLabels{
			set: set, pid: int(r.Pid), epoch: r.Epoch, context: slices.Clone(body[:r.Context]), next: s.now().Add(retryTime),
		})
	}
	if set != nil {
		s.labels.known[r.Id] = set
	}
	return nil
}

// FinishLabels looks again for the keys of attributes that were not known when their sets
// arrived: a process publishes a new key at about the time when it first uses it.
func (s *Store) FinishLabels() {
	left := s.labels.unfinished[:0]
	for _, u := range s.labels.unfinished {
		if s.now().Before(u.next) {
			left = append(left, u)
			continue
		}
		u.tries++
		u.next = s.now().Add(retryTime)
		list, finished := s.contextLabels(u.pid, u.epoch, u.context)
		u.set.list = profile.NewLabels(list)
		if !finished && u.tries < maxRetries {
			left = append(left, u)
		}
	}
	clear(s.labels.unfinished[len(left):])
	s.labels.unfinished = left
}

// contextLabels returns the labels in the context of a thread; see struct thread_context of
// bpf/label_maps.h. It leaves out attributes whose keys are not known, and reports whether a later
// call may find more keys.
func (s *Store) contextLabels(pid int, epoch uint64, context []byte) (list []profile.Label, finished bool) {
	var c bpf.ThreadContext
	header := unsafe.Offsetof(c.Attributes)
	if err := ringbuf.Copy(&c, context, header); err != nil {
		return nil, true
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
		return list, true
	}
	keys := s.Keys(pid, epoch, last)
	for i, key := range keys {
		if value, ok := values[i]; ok && key != "" {
			list = append(list, profile.Label{Key: key, Value: strings.ToValidUTF8(string(value), "\uFFFD")})
		}
	}
	return list, last < len(keys)
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
	if same = l.keep(list, uint32(len(key))); same != nil {
		l.same[key] = same
	}
	return same
}

// keep returns a new set, or nil if there is no room. more is the size of what else is kept.
func (l *labels) keep(list profile.Labels, more uint32) *Labels {
	size := sizeLabels*(1+len(list)) + int(more)
	for _, label := range list {
		size += len(label.Key) + len(label.Value)
	}
	if l.bytes+size > maxLabelBytes {
		return nil
	}
	l.bytes += size
	return &Labels{list}
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
