package dwarf

// Extent is a function with its code.
type Extent struct {
	// Function describes the function.
	Function *Function
	// Ranges holds the start and the end, exclusive, of each part of the function.
	Ranges [][2]uint64
}

// Extents returns for each of addrs, which are as in [Data.LookupBatch], the function whose
// code is there, not the functions inlined into it. It returns nil for an address without a
// function. Addresses in the same function share an Extent. On error the result is still
// usable.
func (d *Data) Extents(addrs []uint64) ([]*Extent, error) {
	out := make([]*Extent, len(addrs))
	err := d.eachUnit(addrs, func(w *worker, groups []unitAddrs) error { return w.extents(groups, addrs, out) })
	return out, err
}

// extents finds the functions at the addresses of a unit.
func (w *worker) extents(groups []unitAddrs, addrs []uint64, out []*Extent) error {
	s, err := w.acquire(groups)
	defer w.data.cache.put(s)
	var probs problems
	probs.add(err)
	probs.add(w.findFunctions(s, groups, addrs))
	found := map[int32]*Extent{}
	for _, group := range groups {
		for i := group.first; i < group.end; i++ {
			id := s.index.find(addrs[i])
			if id < 0 {
				continue
			}
			e, ok := found[id]
			if !ok {
				e, err = w.extent(s, &s.funcs[id])
				probs.add(err)
				found[id] = e
			}
			out[i] = e
		}
	}
	return probs.err()
}

// extent reads a function's entry.
func (w *worker) extent(s *state, fn *function) (*Extent, error) {
	b, err := w.load(s)
	if err != nil {
		return nil, err
	}
	c := call{origin: ref{off: b.off + uint64(fn.off)}}
	nameErr := w.name(s, &c)
	e, err := b.extent(fn)
	e.Function = c.function
	if err == nil {
		err = nameErr
	}
	return e, err
}

// extent reads the ranges of a function's code.
func (b *body) extent(fn *function) (*Extent, error) {
	result := &Extent{}
	r := b.at(uint64(fn.off))
	a, err := b.next(r)
	if err != nil || a == nil {
		return result, err
	}
	var e extent
	for _, at := range a.attrs {
		e.set(at.name, readValue(r, at, b.format))
	}
	if r.Bad {
		return result, b.errorAt(int(fn.off), "entry that ends beyond its unit")
	}
	spans, err := b.spans(nil, &e, 0)
	for _, s := range spans {
		result.Ranges = append(result.Ranges, [2]uint64{s.lo, s.hi})
	}
	return result, err
}
