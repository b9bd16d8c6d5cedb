package bolt

import (
	"errors"
	"fmt"
	"io"
	"iter"
)

// NoBranch is the From of a [Trace] that has only a fall-through.
const NoBranch = ^uint64(0)

// Traces yields the branches and fall-throughs of a pre-aggregated profile, in the order of
// the file.
func (r *Reader) Traces() iter.Seq2[Trace, error] {
	return func(yield func(Trace, error) bool) {
		for {
			l, err := r.Next()
			if errors.Is(err, io.EOF) {
				return
			}
			if err == nil && l.Kind == KindSample {
				err = fmt.Errorf("%s: samples without branches", r.name)
			}
			if err != nil {
				yield(Trace{}, err)
				return
			}
			if t, ok := l.trace(); ok && !yield(t, nil) {
				return
			}
		}
	}
}

// foreignMarks is the first of the markers that are not addresses.
const foreignMarks = ^uint64(0) - 3

// trace returns the trace of a line, and false if it has none.
func (l Line) trace() (Trace, bool) {
	for i, a := range l.Addr {
		if a >= foreignMarks {
			l.Addr[i] = 0
		}
	}
	t := Trace{Count: l.Count, Mispredicted: l.Mispredicted}
	switch l.Kind {
	case KindTrace, KindReturn:
		t.From, t.To, t.End = l.Addr[0], l.Addr[1], l.Addr[2]
	case KindBranch:
		t.From, t.To = l.Addr[0], l.Addr[1]
	case KindFallThrough, KindEnteredFallThrough, KindReturnedFallThrough:
		t.From, t.To, t.End = NoBranch, l.Addr[0], l.Addr[1]
	}
	return t, t.Count > 0
}
