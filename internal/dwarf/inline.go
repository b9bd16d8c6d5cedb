package dwarf

// maxDepth bounds how deep entries of a function may nest.
const maxDepth = 1 << 14

// tree is what was inlined into a function.
type tree struct {
	// calls[0] is the function itself; a call precedes those within it.
	calls []call
	// index maps addresses to the innermost call there. Where it maps to
	// none, there is the function's own code.
	index segments
}

// call is one inlined call.
type call struct {
	origin ref      // the entry that names the function
	name   *subname // nil before it was asked for
	// The place of the call, in the function that parent is.
	parent             int32 // -1 for the function itself
	file, line, column uint32
}

// size is the memory that t takes, in bytes.
func (t *tree) size() int { return 64 + 48*cap(t.calls) + t.index.bytes() }

// tree reads the inlined calls of a function.
func (b *body) tree(fn *function, scratch []span) (*tree, []span, error) {
	t := &tree{calls: []call{{origin: ref{off: b.off + uint64(fn.off)}, parent: -1}}}
	spans := scratch[:0]
	r := b.at(uint64(fn.off))
	a, err := b.next(r)
	if err != nil || a == nil {
		return t, spans, err
	}
	a.skip(r)
	if !a.children {
		return t, spans, nil
	}
	current := int32(0)
	var outer []int32 // what current is again, at each end of children
	for {
		pos := r.pos
		a, err := b.next(r)
		if err != nil {
			return t, spans, err
		}
		if a == nil {
			if r.bad {
				return t, spans, b.errorAt(pos, "entries that end beyond their unit")
			}
			if len(outer) == 0 {
				break
			}
			current = outer[len(outer)-1]
			outer = outer[:len(outer)-1]
			continue
		}
		inner := current
		switch a.kind {
		case kindInlined:
			inner = int32(len(t.calls))
			n := len(spans)
			if spans, err = b.call(t, a, r, current, spans); err != nil {
				return t, spans, err
			}
			if len(spans) == n && !a.children {
				t.calls = t.calls[:inner]
			}
		case kindScope:
			a.skip(r)
		default:
			a.skip(r)
			if err := b.skipChildren(a, r); err != nil {
				return t, spans, err
			}
			continue
		}
		if a.children {
			if len(outer) == maxDepth {
				return t, spans, b.errorAt(pos, "entries nested too deep")
			}
			outer = append(outer, current)
			current = inner
		}
	}
	t.index = paint(spans)
	return t, spans, nil
}

// call reads a DW_TAG_inlined_subroutine.
func (b *body) call(t *tree, a *abbrev, r *buf, parent int32, spans []span) ([]span, error) {
	pos := r.pos
	c := call{origin: ref{off: b.off + uint64(pos)}, parent: parent}
	var e extent
	for _, at := range a.attrs {
		v := r.value(at, b.format)
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
		default:
			e.set(at.name, v)
		}
	}
	if r.bad {
		return spans, b.errorAt(pos, "entry that ends beyond its unit")
	}
	t.calls = append(t.calls, c)
	return b.spans(spans, &e, int32(len(t.calls)-1))
}
