package stacks

import "maps"

// Next returns an empty store for the time after s, when the kernel side assigns new
// stack IDs ([fulgur/internal/capture/probe.Probe.Renew]). Programs that were still
// running may have counted under an old ID: its trace is copied from s on demand.
// The traces of pending IDs are copied at once, because they will be counted
// whenever they end. Everything else that s took over from earlier stores is
// dropped.
//
// After that, s no longer changes, and another goroutine may read it. [Store.Files]
// are not copied.
func (s *Store) Next(pending ...uint64) *Store {
	for _, id := range pending {
		s.Find(id)
	}
	s.previous = nil
	next := NewStore(s.resolver)
	next.previous = s
	next.functions.previous = s.functions.known
	next.labels.previous = s.labels.known
	next.Anonymous, next.MaxNodes, next.Hides, next.Readers, next.Owners = s.Anonymous, s.MaxNodes, s.Hides, s.Readers, s.Owners
	next.Language, next.Omits, next.KernelName = s.Language, s.Omits, s.KernelName
	next.Unkept, next.Keys, next.Judge = s.Unkept, s.Keys, s.Judge
	maps.Copy(next.Interpreted, s.Interpreted)
	for _, id := range pending {
		next.Find(id)
	}
	return next
}

// Previous returns the store of the time before, from which s still takes traces on demand, nil if there is none.
func (s *Store) Previous() *Store { return s.previous }

// Names returns the number of stack IDs from the kernel side. Several IDs may share
// a trace. Memory grows with their number.
func (s *Store) Names() int { return len(s.ids) }

// Find returns the trace of a stack ID, or false if it has not arrived.
func (s *Store) Find(id uint64) (TraceID, bool) {
	s.finish(id)
	if i, ok := s.ids[id]; ok || s.previous == nil {
		return i, ok
	}
	old, ok := s.previous.ids[id]
	if ok {
		s.ids[id] = s.CopyTrace(s.previous, old)
	}
	return s.ids[id], ok
}

// CopyTrace copies a trace from another store.
func (s *Store) CopyTrace(from *Store, id TraceID) TraceID {
	trace := from.Traces[id]
	if from.Interpreted[int(trace.PID)] {
		s.Interpreted[int(trace.PID)] = true
	}
	if trace.Labels != nil {
		trace.Labels = s.labels.intern(trace.Labels.list)
		trace.Unlabeled = trace.Labels == nil
	}
	leaf, cut := s.copyStack(from, trace.Leaf)
	trace.Leaf, trace.Cut = leaf, trace.Cut || cut
	return s.trace(trace)
}

// copyStack copies the stack of node n in the store from. It reports whether the copy is
// truncated.
func (s *Store) copyStack(from *Store, n NodeID) (at NodeID, cut bool) {
	if n == 0 {
		return 0, false
	}
	node := from.Nodes[n]
	below, cut := s.copyStack(from, node.Parent)
	if cut {
		return below, true
	}
	frame := from.Frames[node.Frame]
	seen, timed := from.Seen[frame]
	old := frame.Code
	frame.Code = s.code(from.Codes[old], from.Ranges[old])
	if language := from.Languages[old]; language != "" {
		s.Languages[frame.Code] = language
	}
	if from.Omitting[old] {
		s.Omitting[frame.Code] = true
	}
	if _, known := s.Seen[frame]; timed && !known {
		s.Seen[frame] = seen
	}
	at = s.push(below, frame)
	return at, at == below
}
