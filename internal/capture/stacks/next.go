package stacks

// Next returns the empty store of the time after s, when the kernel side names
// stacks anew ([fulgur/internal/capture/probe.Probe.Renew]). What a program
// counted that still ran then has an old name: its trace is taken over from s when
// it is asked for. So are those of the names in pending at once, which will be
// counted whenever what has them ends. What else s had from an earlier store is let go.
//
// From then on s is not changed any more, and may be read by another goroutine.
// [Store.Files] are not taken over.
func (s *Store) Next(pending ...uint64) *Store {
	for _, id := range pending {
		s.Find(id)
	}
	s.previous = nil
	next := NewStore(s.resolver)
	next.previous = s
	next.Anonymous, next.MaxNodes = s.Anonymous, s.MaxNodes
	for _, id := range pending {
		next.Find(id)
	}
	return next
}

// Names returns how many names of stacks the kernel side has told, of which several
// may mean the same: memory grows with them.
func (s *Store) Names() int { return len(s.ids) }

// Find returns the trace that the kernel side calls id, and false if it has not
// arrived.
func (s *Store) Find(id uint64) (TraceID, bool) {
	if i, ok := s.ids[id]; ok || s.previous == nil {
		return i, ok
	}
	old, ok := s.previous.ids[id]
	if ok {
		s.ids[id] = s.Adopt(s.previous, old)
	}
	return s.ids[id], ok
}

// Adopt takes over a trace of another store.
func (s *Store) Adopt(from *Store, id TraceID) TraceID {
	trace := from.Traces[id]
	leaf, cut := s.adopt(from, trace.Leaf)
	trace.Leaf, trace.Cut = leaf, trace.Cut || cut
	return s.trace(trace)
}

// adopt returns the stack that is node n in the store from, and whether it was cut.
func (s *Store) adopt(from *Store, n NodeID) (at NodeID, cut bool) {
	if n == 0 {
		return 0, false
	}
	node := from.Nodes[n]
	below, cut := s.adopt(from, node.Parent)
	if cut {
		return below, true
	}
	frame := from.Frames[node.Frame]
	frame.Code = s.code(from.Codes[frame.Code], from.Ranges[frame.Code])
	at = s.push(below, frame)
	return at, at == below
}
