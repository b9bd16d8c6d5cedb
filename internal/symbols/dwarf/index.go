package dwarf

import "context"

// readIndex finds the code of all units in .debug_aranges and, for units missing there,
// in their root entries. If ctx is done, it omits the rest.
func (f *file) readIndex(ctx context.Context, probs *problems) segments {
	var spans []span
	known := make([]bool, len(f.headers))
	// If units have the same code, the first one wins, as in llvm-symbolizer.
	id := func(i int) int32 { return int32(len(f.headers) - 1 - i) }
	last := -1 // sets come in long runs of one unit
	f.readAranges(ctx, probs, func(unitOff, lo, hi uint64) {
		if last < 0 || f.headers[last].off != unitOff {
			if last = f.headerAt(unitOff); last < 0 || f.headers[last].off != unitOff {
				return
			}
		}
		known[last] = true
		spans = append(spans, span{lo, hi, id(last)})
	})
	for i, h := range f.headers {
		if ctx.Err() != nil {
			break
		}
		if known[i] || !h.code() {
			continue
		}
		u := newUnit(f, h) // not kept, since few will be used
		err := u.readRoot()
		if err == nil {
			spans, err = u.spans(spans, &u.root.extent, id(i))
		}
		probs.add(err)
	}
	s := paint(spans)
	for i, id := range s.id {
		if id >= 0 {
			s.id[i] = int32(len(f.headers)-1) - id
		}
	}
	return s
}
