package dwarf

import (
	"slices"

	"fulgur/internal/symbols/dwarfdata"
)

// maxDepth bounds the nesting of entries in a function.
const maxDepth = 1 << 10

// tree holds the inlined calls of a function, at some addresses or completely.
type tree struct {
	// calls[0] is the function itself. A call precedes its nested calls.
	calls []call
	// index maps addresses to their innermost call: 0 for the function's own code, and
	// unread for addresses that were not looked up.
	index segments
}

// unread is the index value of addresses that are not in a tree.
const unread = -2

// call is an inlined call.
type call struct {
	origin   ref       // the entry that names the function
	function *Function // nil until requested
	// The location of the call, in the function of the parent.
	parent             int32 // -1 for the function itself
	file, line, column uint32
	discriminator      uint32
}

// callSize is the size of a call, in bytes.
const callSize = 48

// find returns the innermost call at an address, or unread.
func (t *tree) find(addr uint64) int32 {
	id := t.index.find(addr)
	if id == -1 {
		return 0
	}
	return id
}

// depth returns the number of functions at a call.
func (t *tree) depth(id int32) int {
	n := 0
	for ; id >= 0; id = t.calls[id].parent {
		n++
	}
	return n
}

// size returns the memory size of t, in bytes.
func (t *tree) size() int { return 64 + callSize*cap(t.calls) + t.index.bytes() }

// treeReader reads the inlined calls of functions. It reuses its buffers.
type treeReader struct {
	body  *body
	calls []call
	outer []int32 // the current call to restore at each end of children
	one   []span  // the code of a single call

	// addrs are the addresses to look up, or empty for all. In the latter case, spans
	// collects the code of all calls.
	addrs []uint64
	found []int32 // innermost call at each of addrs
	spans []span
}

// read reads the inlined calls of a function that are at addrs, which must be sorted, or all
// if addrs is empty. Most calls are elsewhere, and are skipped.
func (tr *treeReader) read(b *body, fn *function, addrs []uint64) (*tree, error) {
	tr.body = b
	tr.addrs = addrs
	tr.found = append(tr.found[:0], make([]int32, len(addrs))...)
	tr.spans = tr.spans[:0]
	tr.calls = append(tr.calls[:0], call{origin: ref{off: b.off + uint64(fn.off)}, parent: -1})
	err := tr.walk(b.at(uint64(fn.off)))
	t := &tree{calls: slices.Clone(tr.calls)}
	if len(addrs) > 0 {
		t.index = points(addrs, tr.found)
	} else {
		t.index = paint(tr.spans)
	}
	return t, err
}

// points converts distinct addresses into segments, surrounded by unread.
func points(addrs []uint64, ids []int32) segments {
	s := segments{lo: make([]uint64, 0, 2*len(addrs)+1), id: make([]int32, 0, 2*len(addrs)+1)}
	s.add(0, unread)
	for i, a := range addrs {
		if n := len(s.lo); n > 0 && s.lo[n-1] == a {
			s.lo, s.id = s.lo[:n-1], s.id[:n-1]
		}
		s.add(a, ids[i])
		s.add(a+1, unread)
	}
	return segments{slices.Clip(s.lo), slices.Clip(s.id)}
}

// walk reads the entry of a function and its children.
func (tr *treeReader) walk(r *dwarfdata.Reader) error {
	b := tr.body
	a, err := b.next(r)
	if err != nil || a == nil {
		return err
	}
	a.skip(r)
	if !a.children {
		return nil
	}
	current := int32(0)
	tr.outer = tr.outer[:0]
	for {
		pos := r.Pos
		a, err := b.next(r)
		if err != nil {
			return err
		}
		if a == nil {
			if r.Bad {
				return b.errorAt(pos, "entries that end beyond their unit")
			}
			n := len(tr.outer) - 1
			if n < 0 {
				return nil
			}
			current = tr.outer[n]
			tr.outer = tr.outer[:n]
			continue
		}
		inner := current
		enter := a.kind == kindScope
		if a.kind == kindInlined {
			if inner, enter, err = tr.call(a, r, current); err != nil {
				return err
			}
		} else {
			a.skip(r)
		}
		if !enter {
			if err := b.skipChildren(a, r); err != nil {
				return err
			}
			continue
		}
		if a.children {
			if len(tr.outer) == maxDepth {
				return b.errorAt(pos, "entries nested too deep")
			}
			tr.outer = append(tr.outer, current)
			current = inner
		}
	}
}

// call reads a DW_TAG_inlined_subroutine. If its code is at one of the addresses to look up,
// call adds it and returns its index in calls.
func (tr *treeReader) call(a *abbrev, r *dwarfdata.Reader, parent int32) (id int32, ok bool, err error) {
	b := tr.body
	pos := r.Pos
	c := call{origin: ref{off: b.off + uint64(pos)}, parent: parent}
	var e extent
	for _, at := range a.attrs {
		v := readValue(r, at, b.format)
		switch at.name {
		case attrAbstractOrigin:
			if origin, ok := b.ref(v); ok {
				c.origin = origin
			}
		case attrCallFile:
			c.file = uint32(v.u)
		case attrCallLine:
			c.line = uint32(v.u)
		case attrCallColumn:
			c.column = uint32(v.u)
		case attrGNUDiscriminator:
			c.discriminator = uint32(v.u)
		default:
			e.set(at.name, v)
		}
	}
	if r.Bad {
		return 0, false, b.errorAt(pos, "entry that ends beyond its unit")
	}
	id = int32(len(tr.calls))
	if tr.one, err = b.spans(tr.one[:0], &e, id); err != nil {
		return 0, false, err
	}
	if !tr.wanted() {
		return 0, false, nil
	}
	tr.calls = append(tr.calls, c)
	return id, true, nil
}

// wanted records the code of a call, and reports whether it is at one of the addresses to
// look up.
func (tr *treeReader) wanted() bool {
	if len(tr.addrs) == 0 {
		tr.spans = append(tr.spans, tr.one...)
		return len(tr.one) > 0
	}
	taken := false
	for _, s := range tr.one {
		i, _ := slices.BinarySearch(tr.addrs, s.lo)
		for ; i < len(tr.addrs) && tr.addrs[i] < s.hi; i++ {
			tr.found[i] = s.id
			taken = true
		}
	}
	return taken
}
