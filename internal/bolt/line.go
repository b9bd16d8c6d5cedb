package bolt

import (
	"cmp"
	"strconv"
)

// Kind is the kind of a line in a pre-aggregated profile. The values are the letters of
// the format (DataAggregator.h in LLVM's bolt).
type Kind byte

// The kinds of lines. LLVM 20 and older read only B, F and f.
const (
	// KindEvent names the sampled event: E name.
	KindEvent Kind = 'E'
	// KindSample is an address and its number of samples: S addr count.
	KindSample Kind = 'S'
	// KindTrace is a branch with its fall-through: T from to end count.
	KindTrace Kind = 'T'
	// KindReturn is a trace that begins with a return: R from to end count.
	KindReturn Kind = 'R'
	// KindBranch is a branch without a fall-through: B from to count mispredicted.
	KindBranch Kind = 'B'
	// KindFallThrough is a fall-through entered from the same function: F start end
	// count.
	KindFallThrough Kind = 'F'
	// KindEnteredFallThrough is a fall-through entered from elsewhere: f start end count.
	KindEnteredFallThrough Kind = 'f'
	// KindReturnedFallThrough is a fall-through entered by a return from elsewhere: r
	// start end count.
	KindReturnedFallThrough Kind = 'r'
)

// branchOnly is the end of a trace whose fall-through is unknown.
const branchOnly = ^uint64(0)

// Line is a line of a pre-aggregated profile.
type Line struct {
	Kind Kind
	// Addr holds the addresses; their number depends on the kind. Values above
	// 0xfffffffffffffffc are markers, not addresses.
	Addr [3]uint64
	// Count is the number of occurrences. Mispredicted is 0 except in B lines.
	Count, Mispredicted uint64
	// Event is the name in an E line.
	Event string
}

// addresses returns the number of addresses in lines of kind k, or false if k is not a
// kind.
func (k Kind) addresses() (n int, ok bool) {
	switch k {
	case KindEvent:
		return 0, true
	case KindSample:
		return 1, true
	case KindBranch, KindFallThrough, KindEnteredFallThrough, KindReturnedFallThrough:
		return 2, true
	case KindTrace, KindReturn:
		return 3, true
	}
	return 0, false
}

// rank returns the order of the part of a file to which lines of kind k belong.
func (k Kind) rank() int {
	switch k {
	case KindEvent:
		return 0
	case KindSample:
		return 1
	case KindTrace, KindReturn, KindBranch:
		return 2
	default:
		return 3
	}
}

// order returns the order of lines with the same addresses. Traces of a branch come before
// the branch.
func (k Kind) order() int {
	switch k {
	case KindReturn:
		return 0
	case KindTrace:
		return 1
	case KindBranch:
		return 2
	default:
		return int(k)
	}
}

// compareLines compares lines by their order in the files that this package writes: events,
// samples, branches, fall-throughs, each sorted by address.
func compareLines(a, b Line) int {
	return cmp.Or(
		cmp.Compare(a.Kind.rank(), b.Kind.rank()),
		cmp.Compare(a.Event, b.Event),
		cmp.Compare(a.Addr[0], b.Addr[0]),
		cmp.Compare(a.Addr[1], b.Addr[1]),
		cmp.Compare(a.Kind.order(), b.Kind.order()),
		cmp.Compare(a.Addr[2], b.Addr[2]),
	)
}

// same reports whether l and o are equal except for their counts.
func (l Line) same(o Line) bool {
	return l.Kind == o.Kind && l.Addr == o.Addr && l.Event == o.Event
}

// append appends the line in the file's format, including the newline.
func (l Line) append(b []byte) []byte {
	b = append(b, byte(l.Kind))
	if l.Kind == KindEvent {
		b = append(b, ' ')
		b = append(b, l.Event...)
		return append(b, '\n')
	}
	n, _ := l.Kind.addresses()
	for _, a := range l.Addr[:n] {
		b = append(b, ' ')
		b = strconv.AppendUint(b, a, 16)
	}
	b = append(b, ' ')
	b = strconv.AppendUint(b, l.Count, 10)
	if l.Kind == KindBranch {
		b = append(b, ' ')
		b = strconv.AppendUint(b, l.Mispredicted, 10)
	}
	return append(b, '\n')
}
