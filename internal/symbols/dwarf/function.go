package dwarf

import "fulgur/internal/symbols/dwarfdata"

// function is a DW_TAG_subprogram with code.
type function struct {
	off  uint32 // in the unit
	tree *tree  // inlined calls; nil until requested
}

// body is a unit with its bytes.
type body struct {
	*unit
	abbrevs *abbrevs
	raw     []byte // from the start of the unit's header
}

// at returns a reader at an offset in the unit.
func (b *body) at(off uint64) *dwarfdata.Reader {
	return &dwarfdata.Reader{Data: b.raw, Pos: int(off)}
}

// errorAt reports a malformed entry.
func (b *body) errorAt(pos int, problem string) error {
	return b.file.info.errorf(b.off+uint64(pos), "%s", problem)
}

// next reads an entry's abbreviation code. It returns nil at the end of a list of
// children.
func (b *body) next(r *dwarfdata.Reader) (*abbrev, error) {
	pos := r.Pos
	code := r.ULEB()
	if code == 0 {
		return nil, nil
	}
	a := b.abbrevs.get(code)
	if a == nil {
		return nil, b.errorAt(pos, "entry with an unknown abbreviation")
	}
	return a, nil
}

// functions finds all functions that have code, and their code. Unless whole is set, it
// skips types and functions where it can, because local functions are rare.
func (b *body) functions(whole bool) (funcs []function, spans []span, err error) {
	r := b.at(b.first - b.off)
	for depth := 0; r.Left() > 0; {
		pos := r.Pos
		a, nextErr := b.next(r)
		if nextErr != nil {
			return funcs, spans, nextErr
		}
		if a == nil {
			if depth--; depth <= 0 {
				break
			}
			continue
		}
		if a.kind == kindFunction && a.code {
			var e extent
			for _, at := range a.attrs {
				e.set(at.name, readValue(r, at, b.format))
			}
			n := len(spans)
			var listErr error
			if spans, listErr = b.spans(spans, &e, int32(len(funcs))); err == nil {
				err = listErr // the other functions are still usable
			}
			if len(spans) > n {
				funcs = append(funcs, function{off: uint32(pos)})
			}
		} else {
			a.skip(r)
		}
		if r.Bad {
			return funcs, spans, b.errorAt(pos, "entry that ends beyond its unit")
		}
		if !a.children {
			if depth == 0 {
				break
			}
			continue
		}
		if depth > 0 && !whole && a.kind != kindScope {
			if after, ok := a.after(r); ok {
				r.Pos = after
				continue
			}
		}
		depth++
	}
	return funcs, spans, err
}

// skipChildren skips the children of the entry whose attributes were just read.
func (b *body) skipChildren(a *abbrev, r *dwarfdata.Reader) error {
	if !a.children {
		return nil
	}
	if after, ok := a.after(r); ok {
		r.Pos = after
		return nil
	}
	for depth := 1; depth > 0; {
		pos := r.Pos
		a, err := b.next(r)
		if err != nil {
			return err
		}
		if a == nil {
			if r.Bad {
				return b.errorAt(pos, "entries that end beyond their unit")
			}
			depth--
			continue
		}
		a.skip(r)
		if !a.children {
			continue
		}
		if after, ok := a.after(r); ok {
			r.Pos = after
		} else {
			depth++
		}
	}
	return nil
}
