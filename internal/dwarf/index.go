package dwarf

// readIndex finds the code of all units: in .debug_aranges, and where that
// leaves out a unit, in the unit's root entry.
func (f *file) readIndex(probs *problems) segments {
	var spans []span
	known := make([]bool, len(f.units))
	// The first of units with the same code counts, as in llvm-symbolizer.
	id := func(u *unit) int32 { return int32(len(f.units) - 1 - u.id) }
	var last *unit // sets come in long runs of one unit
	f.readAranges(probs, func(unitOff, lo, hi uint64) {
		if last == nil || last.off != unitOff {
			if last = f.unitAt(unitOff); last == nil || last.off != unitOff {
				return
			}
		}
		known[last.id] = true
		spans = append(spans, span{lo, hi, id(last)})
	})
	for _, u := range f.units {
		if known[u.id] || !u.code() {
			continue
		}
		err := u.readRoot()
		if err == nil {
			spans, err = u.spans(spans, &u.root.extent, id(u))
		}
		probs.add(err)
	}
	s := paint(spans)
	for i, id := range s.id {
		if id >= 0 {
			s.id[i] = int32(len(f.units)-1) - id
		}
	}
	return s
}
