// Package compare compares the functions of two sides of profiles, and tells which changes are beyond
// noise; see package noise for how. Its JSON is stable, see docs/diff.md.
package compare

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"fulgur/internal/message/plain"
	"fulgur/internal/message/shortname"
	"fulgur/internal/profile"
	"fulgur/internal/profile/compare/noise"
	"fulgur/internal/profile/encode/text"
)

// Version is the version of the JSON. Members may be added to a version, but not change.
const Version = 1

// Run is a profile of one run.
type Run struct {
	*profile.Profile
	// Name is the name of its file.
	Name string
	// Value is the index of the value to compare.
	Value int
	// Work is how much work the run did, for [ByWork].
	Work float64
}

// total returns the sum of the value.
func (r Run) total() float64 { return float64(r.Total(r.Value)) }

// Normalization is what amounts are divided by.
type Normalization string

// The normalizations.
const (
	// Automatic is [Amounts] if the runs have the same length, and else [Shares].
	Automatic Normalization = ""
	// Shares divides by the sum of the run.
	Shares Normalization = "shares"
	// Amounts divides by the number of runs.
	Amounts Normalization = "amounts"
	// ByWork divides by the work done.
	ByWork Normalization = "work"
)

// typical is the share of the function of [Comparison.Smallest].
const typical = 0.1

// Options configure a comparison.
type Options struct {
	Normalize Normalization
	// Work names the unit of work, for [ByWork].
	Work string
	// ShortNames shows the short names of functions.
	ShortNames bool
	// Native counts each stack for its leaf, even if that is an interpreter's function.
	Native bool
}

// Comparison is how two sides differ. Names in it are safe to print in the sense of package plain.
type Comparison struct {
	Version int `json:"version"`
	// Value and Unit are the type and the unit of the compared value.
	Value string `json:"value"`
	Unit  string `json:"unit"`
	// Normalized is how amounts were made comparable, and Work the unit of work, if it was by work.
	// All amounts below are shares from 0 to 1, amounts in Unit by run, or amounts in Unit by work.
	Normalized Normalization `json:"normalized"`
	Work       string        `json:"work,omitempty"`
	// Confidence is that of intervals. Spread is set if they come from the spread between runs;
	// otherwise, they come from the numbers of samples alone, and are a lower bound.
	Confidence float64 `json:"confidence"`
	Spread     bool    `json:"from_spread_between_runs"`
	// Tested is set if changes could be told from noise.
	Tested bool `json:"tested"`
	// Dispersion is the variance in relation to that of independent samples, 0 if unknown.
	Dispersion float64 `json:"dispersion"`
	Base       Side    `json:"base"`
	New        Side    `json:"new"`
	// Run is the change of the value by run. It says something about the program only if each run did
	// the same work.
	Run Change `json:"run"`
	// Total is the change of the sum of all functions; nil for shares.
	Total *Change `json:"total,omitempty"`
	// Functions are those that changed, beyond noise if Tested is set: those with the largest changes of
	// self first.
	Functions []Function `json:"functions"`
	// Within is the number of functions within noise, and Few the number of those that have too
	// few samples to be tested.
	Within int `json:"within_noise"`
	Few    int `json:"too_few_samples"`
	// Smallest is by how much a function that takes 10 % of all must change to be found with a probability
	// of 90 %, as a part of all; 0 if unknown.
	Smallest float64 `json:"smallest_change"`
	// Regressions are those beyond limits, see [Comparison.Check]; null if there are no limits.
	Regressions []Regression `json:"regressions"`

	others   []Function // within noise, or with too few samples
	sameWork bool       // whether all runs are of the same command
}

// Side is one side of a comparison.
type Side struct {
	Runs []string `json:"runs"`
	// Amount is the sum of the value, Samples the number of samples, 0 if unknown, and Work the work done,
	// if that was counted. Seconds is how long the runs were, 0 if unknown.
	Amount  float64 `json:"amount"`
	Samples float64 `json:"samples"`
	Work    float64 `json:"work,omitempty"`
	Seconds float64 `json:"duration_seconds"`
}

// Function is how a function changed, by its own code and with all that it calls.
type Function struct {
	Name   string `json:"function"`
	Module string `json:"module"`
	Self   Change `json:"self"`
	Total  Change `json:"total"`
}

// Change is how an amount changed.
type Change struct {
	Base   float64 `json:"base"`
	New    float64 `json:"new"`
	Change float64 `json:"change"`
	// Low and High limit the interval of Change. They are null if it could not be tested.
	Low  *float64 `json:"low"`
	High *float64 `json:"high"`
	// P is the p-value, corrected for all functions.
	P float64 `json:"p"`
	// Beyond is set if the change is beyond noise.
	Beyond bool `json:"beyond_noise"`

	tested bool
}

// New compares two sides of runs. Each side has at least one.
func New(base, changed []Run, o Options) *Comparison {
	all := slices.Concat(base, changed)
	first := changed[0]
	value := first.ValueTypes[first.Value]
	c := &Comparison{
		Version: Version, Value: plain.Terminal(value.Type), Unit: plain.Terminal(value.Unit),
		Normalized: o.Normalize, Confidence: 1 - noise.Alpha, Functions: []Function{},
		sameWork: sameCommand(all),
	}
	if c.Normalized == Automatic {
		c.Normalized = Shares
		if sameLength(all) {
			c.Normalized = Amounts
		}
	}
	if c.Normalized == ByWork {
		c.Work = plain.Terminal(o.Work)
	}
	table := tabulate(base, changed, o.Native)
	runs := noise.Runs{Counted: table.counted, Shares: c.Normalized == Shares}
	for side, list := range [2][]Run{base, changed} {
		for _, r := range list {
			runs.Exposure[side] = append(runs.Exposure[side], c.exposure(r))
		}
	}
	c.Base, c.New = table.side(base, noise.Base, c), table.side(changed, noise.New, c)
	c.Tested, c.Spread = runs.Possible(), len(all) > 2
	table.findMachine(runs)
	quantities := make([]noise.Quantity, 0, 2*len(table.functions)+1)
	for _, f := range table.functions {
		quantities = append(quantities, f.self, f.total)
	}
	if c.Normalized != Shares {
		quantities = append(quantities, table.whole)
	}
	result := noise.Test(runs, quantities)
	if !math.IsNaN(result.Dispersion) && table.counted {
		c.Dispersion = result.Dispersion
	}
	if c.Tested && table.counted && result.Tests > 0 && c.Base.Samples > 0 && c.New.Samples > 0 {
		c.Smallest = result.Needed() * math.Sqrt(typical*(1-typical)*(1/c.Base.Samples+1/c.New.Samples))
	}
	if c.Normalized != Shares {
		total := changeOf(result.Changes[len(quantities)-1])
		c.Total = &total
	}
	perRun := runs
	perRun.Shares = false
	for side := range perRun.Exposure {
		perRun.Exposure[side] = slices.Repeat([]float64{1}, len(runs.Exposure[side]))
	}
	c.Run = changeOf(noise.Test(perRun, []noise.Quantity{table.whole}).Changes[0])
	if !c.Spread && c.Normalized == Shares {
		c.Run = Change{Base: c.Run.Base, New: c.Run.New, Change: c.Run.Change, P: 1} // how long a run is says nothing
	}
	for i, f := range table.functions {
		c.add(Function{
			Name: plain.Terminal(shown(f.name, o)), Module: plain.Terminal(f.module),
			Self: changeOf(result.Changes[2*i]), Total: changeOf(result.Changes[2*i+1]),
		})
	}
	slices.SortStableFunc(c.Functions, byChange)
	slices.SortStableFunc(c.others, byChange)
	return c
}

func shown(name string, o Options) string {
	if o.ShortNames {
		return shortname.Of(name)
	}
	return name
}

// exposure returns what the amounts of a run are divided by.
func (c *Comparison) exposure(r Run) float64 {
	switch c.Normalized {
	case Shares:
		return max(1, r.total()) // a run without samples has no shares
	case ByWork:
		return r.Work
	}
	return 1
}

// Scale returns the factor that makes the sum of all base amounts comparable with that of all new ones,
// as the comparison does.
func (c *Comparison) Scale() float64 {
	switch {
	case c.Normalized == Shares && c.Base.Amount != 0:
		return c.New.Amount / c.Base.Amount
	case c.Normalized == ByWork:
		return c.New.Work / c.Base.Work
	case c.Normalized == Amounts:
		return float64(len(c.New.Runs)) / float64(len(c.Base.Runs))
	}
	return 1
}

// add adds a function to the list that it belongs to.
func (c *Comparison) add(f Function) {
	changed := f.Self.Change != 0 || f.Total.Change != 0
	switch {
	case f.Self.Beyond, f.Total.Beyond, !c.Tested && changed:
		c.Functions = append(c.Functions, f)
	case f.Self.tested || f.Total.tested:
		c.Within++
		c.others = append(c.others, f)
	case c.Tested && changed:
		c.Few++
		c.others = append(c.others, f)
	}
}

// byChange orders functions by what they are listed for: changes of self, or else of total.
func byChange(a, b Function) int {
	weight := func(c Change) float64 {
		if c.tested && !c.Beyond {
			return 0
		}
		return math.Abs(c.Change)
	}
	return cmp.Or(
		cmp.Compare(weight(b.Self), weight(a.Self)), cmp.Compare(weight(b.Total), weight(a.Total)),
		cmp.Compare(math.Abs(b.Self.Change), math.Abs(a.Self.Change)), cmp.Compare(math.Abs(b.Total.Change), math.Abs(a.Total.Change)),
		cmp.Compare(a.Name, b.Name), cmp.Compare(a.Module, b.Module),
	)
}

func changeOf(n noise.Change) Change {
	c := Change{Base: n.Rate[noise.Base], New: n.Rate[noise.New], Change: n.Difference(), P: n.Corrected, Beyond: n.Beyond, tested: n.Tested}
	if n.Tested {
		c.Low, c.High = &n.Low, &n.High
	}
	return c
}

// lengthTolerance is the relative difference of lengths that are the same: those of two runs of 10 s
// differ by milliseconds.
const lengthTolerance = 0.01

// sameLength reports whether the runs have the same length: they were measured for the same time. If some
// do not say for how long, their sums decide. A command that runs to its end has the length that
// it has.
func sameLength(runs []Run) bool {
	stated := !slices.ContainsFunc(runs, func(r Run) bool { return r.Meta.Duration <= 0 })
	lengths := make([]float64, len(runs))
	for i, r := range runs {
		lengths[i] = r.total()
		if stated {
			lengths[i] = r.Meta.Duration.Seconds()
		}
		if command(r.Profile) != "" {
			return false
		}
	}
	return slices.Max(lengths) <= slices.Min(lengths)*(1+lengthTolerance)
}

// command returns the command that a run measured from its start, as far as known.
func command(p *profile.Profile) string {
	if !strings.HasPrefix(p.Meta.Scope, "command") {
		return ""
	}
	_, argv, ok := strings.Cut(p.Meta.Command, " -- ")
	if !ok {
		return ""
	}
	return argv
}

// sameCommand reports whether all runs are of the same command.
func sameCommand(runs []Run) bool {
	first := command(runs[0].Profile)
	return first != "" && !slices.ContainsFunc(runs, func(r Run) bool { return command(r.Profile) != first })
}

// seconds returns how long the runs were, 0 if that is unknown.
func seconds(runs []Run) float64 {
	var sum time.Duration
	for _, r := range runs {
		if r.Meta.Duration <= 0 {
			return 0
		}
		sum += r.Meta.Duration
	}
	return sum.Seconds()
}

// function is a function with its amounts in all runs.
type function struct {
	name, module string
	kernel       bool // code of the kernel
	self, total  noise.Quantity
}

// table has the amounts of all functions in all runs.
type table struct {
	functions []function
	whole     noise.Quantity
	counted   bool
	apart     bool // whether the number of samples is another value
}

// findMachine finds what depends on the machine: code of the kernel, and functions that call nearly
// everything, whose share is what is left by the kernel's start and end of the program.
func (t *table) findMachine(runs noise.Runs) {
	t.whole.Machine = true
	whole := runs.Rate(t.whole)
	for i := range t.functions {
		f := &t.functions[i]
		f.self.Machine = f.kernel
		f.total.Machine = f.kernel || runs.Rate(f.total) > whole/2
	}
}

// tabulate returns the amounts of all functions. Native is as in [Options].
func tabulate(base, changed []Run, native bool) *table {
	t := &table{counted: true}
	for _, r := range slices.Concat(base, changed) {
		t.counted = t.counted && r.SamplesOf(r.Value) >= 0
		t.apart = t.apart || r.SamplesOf(r.Value) != r.Value
	}
	aligned := profile.Align(t.values(base), t.values(changed))
	columns := len(aligned.ValueTypes) / (len(base) + len(changed))
	list := text.Functions(aligned, native)
	t.functions = make([]function, len(list))
	for i, f := range list {
		t.functions[i] = function{name: f.Name, module: f.Module, kernel: f.Kernel}
	}
	at := 0
	for side, runs := range [2][]Run{base, changed} {
		for _, r := range runs {
			amount, samples := at, at+columns-1
			reduction := float64(max(1, r.Meta.Reduction))
			add := func(q *noise.Quantity, sums []int64) {
				q.Amount[side] = append(q.Amount[side], float64(sums[amount]))
				if t.counted {
					q.Samples[side] = append(q.Samples[side], float64(sums[samples])/reduction)
				}
			}
			for i, f := range list {
				add(&t.functions[i].self, f.Self)
				add(&t.functions[i].total, f.Total)
			}
			totals := make([]int64, len(aligned.ValueTypes))
			totals[amount], totals[samples] = aligned.Total(amount), aligned.Total(samples)
			add(&t.whole, totals)
			at += columns
		}
	}
	return t
}

// values returns the profiles of runs with the value to compare, and the number of samples if
// that is known and another value.
func (t *table) values(runs []Run) (list []*profile.Profile) {
	for _, r := range runs {
		if t.counted && t.apart {
			list = append(list, r.Only(r.Value, r.SamplesOf(r.Value)))
		} else {
			list = append(list, r.Only(r.Value))
		}
	}
	return list
}

// side returns the description of a side.
func (t *table) side(runs []Run, side int, c *Comparison) Side {
	s := Side{Runs: []string{}, Seconds: seconds(runs)}
	for i, r := range runs {
		s.Runs = append(s.Runs, plain.Terminal(r.Name))
		s.Amount += r.total()
		if t.counted {
			s.Samples += t.whole.Samples[side][i]
		}
		if c.Normalized == ByWork {
			s.Work += r.Work
		}
	}
	return s
}
