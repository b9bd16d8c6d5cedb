package naming

import (
	"cmp"
	"slices"

	"fulgur/internal/profile"
	"fulgur/internal/symbols/symbolize"
)

// query is a frame to look up at call, the address of its call in the table.
type query[ID any] struct {
	frame ID
	call  uint64
}

// lookUp looks up all frames in one batch, sorted by address. It calls found with the
// functions of each frame, innermost first, or nil if t does not know the address.
func lookUp[ID any](t symbolize.Table, queries []query[ID], found func(q query[ID], functions []symbolize.Frame)) error {
	slices.SortFunc(queries, func(a, b query[ID]) int { return cmp.Compare(a.call, b.call) })
	calls := make([]uint64, len(queries))
	for i, q := range queries {
		calls[i] = q.call
	}
	functions, err := t.LookupBatch(calls)
	functions = append(functions, make([][]symbolize.Frame, len(queries)-len(functions))...) // shorter after an error
	for i, q := range queries {
		found(q, functions[i])
	}
	return err
}

// named reports whether the functions of a frame, innermost first, have names: the
// function with the code has a symbol or debug information.
func named(functions []symbolize.Frame) bool {
	return len(functions) > 0 && !functions[len(functions)-1].NoSymbol
}

// addFrames adds a frame to the profile, once for each of its functions, and returns the
// new frames, outermost first. functions has the innermost function first, and may be
// empty.
func addFrames(b *profile.Builder, frame profile.Frame, functions []symbolize.Frame) []profile.FrameID {
	if len(functions) == 0 {
		return []profile.FrameID{b.Frame(frame)}
	}
	added := make([]profile.FrameID, 0, len(functions))
	for i, f := range slices.Backward(functions) {
		frame.Function = 0
		if f.Name != "" {
			frame.Function = b.Function(profile.Function{Name: f.Name, SystemName: f.SystemName, File: f.File, StartLine: f.StartLine})
		}
		frame.Offset, frame.Line, frame.Inlined = f.Offset, f.Line, i < len(functions)-1
		added = append(added, b.Frame(frame))
	}
	return added
}
