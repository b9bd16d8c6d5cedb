package main

import (
	"fmt"

	"fulgur/internal/profile/filter"
	"fulgur/internal/session"
)

// stackFilters select samples by their stacks, like pprof's flags.
type stackFilters struct {
	Focus  []string `sep:"none" placeholder:"EXPR" group:"contents" help:"Only stacks with a function or process whose name matches this regular expression; after module: or file:, the path of its module or source file. It ignores case unless it has capitals."`
	Ignore []string `sep:"none" placeholder:"EXPR" group:"contents" help:"Only stacks without a match of EXPR."`
	Hide   []string `sep:"none" placeholder:"EXPR" group:"contents" help:"Without the functions that match EXPR: their callees belong to their callers."`
}

// taskFilters select samples by the code that ran.
type taskFilters struct {
	Process []string `sep:"none" placeholder:"NAME" group:"contents" help:"Only processes with this ID, or whose name matches this regular expression."`
	Thread  []string `sep:"none" placeholder:"NAME" group:"contents" help:"Only threads with this ID, or whose name matches this regular expression."`
	Label   []string `sep:"none" placeholder:"KEY=EXPR" group:"contents" help:"Only samples with a label whose value matches: of the program, or container, pod, namespace, image or unit."`
}

// liveFilters select samples while they are taken. Each can be given several times: all filters apply, hide last.
type liveFilters struct {
	stackFilters
	taskFilters
}

// filterFlags select samples of a stored profile, like liveFilters.
type filterFlags struct {
	liveFilters
	Time       []string `sep:"none" placeholder:"FROM,TO" group:"contents" help:"Only this part of a recording or perf.data: seconds or durations since the beginning, such as 2.5,10 or 1m,1m30s. Without FROM it begins at the beginning, without TO it ends at the end."`
	IgnoreTime []string `sep:"none" placeholder:"FROM,TO" group:"contents" help:"Without this part of a recording."`
	Filters    string   `placeholder:"ADDRESS" group:"contents" help:"The filters, the process or thread, and the range of time in the address of a page of fulgur, before those of other flags."`
}

// live translates the flags of a command that measures, which has labels only if they are asked for.
func (f liveFilters) live(o *session.Options) (filter.List, error) {
	list, err := filterFlags{liveFilters: f}.list()
	o.PerThread = o.PerThread || list.Has(filter.Thread)
	if list.Has(filter.Label) {
		o.Labels, o.Owners = true, true
	}
	return list, err
}

// list translates the flags. Its errors are usage errors.
func (f filterFlags) list() (list filter.List, err error) {
	if f.Filters != "" {
		if list, err = filter.ParseAddress(f.Filters); err != nil {
			return nil, usageError{fmt.Errorf("--filters: %w", err)}
		}
	}
	for _, flag := range []struct {
		kind      string
		arguments []string
	}{
		{filter.Process, f.Process}, {filter.Thread, f.Thread}, {filter.Label, f.Label},
		{filter.Time, f.Time}, {filter.IgnoreTime, f.IgnoreTime},
		{filter.Focus, f.Focus}, {filter.Ignore, f.Ignore}, {filter.Hide, f.Hide},
	} {
		for _, argument := range flag.arguments {
			made, err := filter.New(flag.kind, argument)
			if err != nil {
				return nil, usageError{fmt.Errorf("--%s: %w", flag.kind, err)}
			}
			list = append(list, made)
		}
	}
	if len(list) > filter.Max {
		return nil, usageError{fmt.Errorf("%d filters, the maximum is %d", len(list), filter.Max)}
	}
	return list, nil
}
