package dwarf

import (
	"context"
	"errors"
	"sync"
)

// Options configures reading. The zero value has the defaults.
type Options struct {
	// Context stops Open and lookups at the next unit when it is done. nil means never.
	Context context.Context
	// Budget is the memory for cached units in bytes. 0 means a sixteenth of the debug
	// information, but at least 4 MiB.
	Budget int
	// Workers is the number of units to process concurrently. 0 means one for each CPU.
	Workers int
	// Split returns the sections of the .dwo file with the rest of a unit, or of a .dwp file,
	// which should then be the same for all units. It may be called concurrently. If it
	// returns nil, the unit has only lines. This is not an error, because the caller knows
	// which files are missing. If Split itself is nil, it is an error.
	Split func(SplitUnit) (*Sections, error)
}

const (
	minBudget   = 4 << 20
	budgetShare = 16
)

// Data is the debug information of a file. It is safe for concurrent use.
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

// Open reads the unit headers and finds their code. On error the data is still usable. It
// lacks units that are malformed or were not read before the context was done.
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
