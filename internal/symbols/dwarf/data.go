package dwarf

import (
	"context"
	"errors"
	"sync"
)

// Options tunes reading. The zero value is the usual.
type Options struct {
	// Context ends reading early, at the next unit, both while opening and in
	// every look-up; nil for never.
	Context context.Context
	// Budget is the number of bytes of memory to keep parsed units in, 0 for
	// a sixteenth of the debug information, but 4 MiB at least.
	Budget int
	// Workers is the number of units to work on at a time, 0 for one a CPU.
	Workers int
	// Split returns the sections of the .dwo file that holds the rest of a
	// unit, or those of a .dwp file, which should be the same for all units
	// then. It may be called concurrently. For nil the unit has lines only,
	// and that is no error of the look-up: what is missing, and how much of
	// it, is best told by who knows the files. Without Split it is one.
	Split func(SplitUnit) (*Sections, error)
}

const (
	minBudget   = 4 << 20
	budgetShare = 16
)

// Data is a file's debug information. It is safe for concurrent use.
type Data struct {
	ctx     context.Context
	main    *file
	index   segments // address to unit
	cache   *cache
	workers int
	split   func(SplitUnit) (*Sections, error)

	packageMu sync.Mutex
	packages  map[*Sections]*file
}

// Open reads the headers of units and finds out where their code is. On an
// error the data is still usable: units that are malformed are left out, and
// those that were not reached when the context ended.
func Open(s *Sections, o Options) (*Data, error) {
	ctx := o.Context
	if ctx == nil {
		ctx = context.Background()
	}
	var probs problems
	f := newFile(s)
	f.readUnits(ctx, &probs)
	if f.alt != nil {
		f.alt.readUnits(ctx, &probs)
	}
	d := &Data{ctx: ctx, main: f, workers: o.Workers, split: o.Split}
	if d.workers <= 0 {
		d.workers = defaultWorkers()
	}
	budget := o.Budget
	if budget <= 0 {
		budget = max(minBudget, int(s.size())/budgetShare)
	}
	d.cache = newCache(budget)
	d.index = f.readIndex(ctx, &probs)
	return d, errors.Join(ctx.Err(), probs.err())
}
