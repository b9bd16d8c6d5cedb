package report

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"path"
	"slices"
	"strings"

	"fulgur/internal/message/plain"
	"fulgur/internal/message/usage"
	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/describe"
)

// rules are the rules in the order of their findings: what dominates, waits, and losses.
// docs/report.md has them all.
var rules = []rule{
	{"empty", empty, false},
	{"negative", negative, false},
	{"few_samples", fewSamples, false},
	{SlowRule, slow, true},
	{"load", load, true},
	{"waits", waits, true},
	{"idle", idle, false},
	{"thread", thread, true},
	{"starved", starved, true},
	{"memory", memory, true},
	{"hot_function", hotFunction, false},
	{"interrupts", interrupts, false},
	{"split", split, false},
	{"flat", flat, false},
	{"kernel", kernel, false},
	{"bpf", bpf, false},
	{"process", process, false},
	{"unnamed", unnamed, false},
	{"lost", lost, false},
	{"truncated", truncated, false},
}

// rule is a rule. If it answers, the summary on the terminal also has its finding: the table of
// functions and the line about losses there say the rest.
type rule struct {
	name    string
	look    func(*facts) (Finding, bool)
	answers bool
}

// Thresholds of rules, as shares unless stated otherwise.
const (
	hotShare       = 0.2
	flatShare      = 0.05
	busyShare      = 0.95
	splitShare     = 0.1
	trunkShare     = 0.7
	kernelShare    = 0.3
	bpfShare       = 0.05
	preemptedShare = 0.1
	processShare   = 0.5
	waitShare      = 0.5
	unnamedShare   = 0.05
	memoryShare    = 0.05
	blindShare     = 0.03
	lostShare      = 0.01
	truncatedShare = 0.1
	manySamples    = 200 // samples
)

// Marks around the names in a sentence. Names are printable, so they have none.
const begin, end = "\x01", "\x02"

// named returns an untrusted name as a part of a sentence.
func named(s string) string { return begin + plain.Terminal(s) + end }

// strip removes the marks of names.
func strip(s string) string { return strings.NewReplacer(begin, "", end, "").Replace(s) }

func percent(share float64) string { return fmt.Sprintf("%.1f %%", 100*share) }

// quantity returns n of a value in words.
func (f *facts) quantity(n int64, v profile.ValueType) string {
	if v.Unit == "count" {
		return describe.Amount(n, v)
	}
	return describe.Quantity(n, v.Unit)
}

// times are values in nanoseconds in words.
var times = map[string]string{"cpu": "CPU time", "off-cpu": "off-CPU time", "wall": "wall-clock time", profile.ElapsedTime.Type: "elapsed time"}

// all returns a phrase for the total of the value: "all samples", "the CPU time".
func (f *facts) all() string { return f.allOf(f.value) }

// allOf is all for value i.
func (f *facts) allOf(i int) string {
	v := f.ValueTypes[i]
	if v.Unit == "count" {
		return "all " + named(v.Type)
	}
	return "the " + named(cmp.Or(times[v.Type], v.Type))
}

// plural returns one or many, with n in place of "#".
func plural(n uint64, one, many string) string {
	if n == 1 {
		many = one
	}
	return strings.Replace(many, "#", fmt.Sprint(n), 1)
}

// find returns the index of a value in nanoseconds, or -1.
func (f *facts) find(name string) int {
	return slices.Index(f.ValueTypes, profile.ValueType{Type: name, Unit: "nanoseconds"})
}

func empty(f *facts) (Finding, bool) {
	return Finding{marked: "The profile is empty: the total of " + named(f.ValueTypes[f.value].Type) + " is 0."}, f.whole == 0
}

// negative says that a profile is a comparison. pprof writes such profiles (-diff_base), whose shares
// are of the sum of the magnitudes, too.
func negative(f *facts) (Finding, bool) {
	more, less := int64(0), int64(0)
	for _, s := range f.Samples {
		more += max(s.Values[f.value], 0)
		less += max(-s.Values[f.value], 0)
	}
	v := f.ValueTypes[f.value]
	return Finding{
		Numbers: map[string]float64{"more": float64(more), "less": float64(less)},
		marked: fmt.Sprintf("The profile is a comparison, since amounts are negative: %s more and %s less. Shares are of both together.",
			f.quantity(more, v), f.quantity(less, v)),
	}, less > 0
}

// load says how much CPU time was used. A target that used less than most of a CPU either waited or had
// no CPU, which a profile of CPU time alone cannot tell.
func load(f *facts) (Finding, bool) {
	v := f.find("cpu")
	seconds := f.Meta.Duration.Seconds()
	if v < 0 || seconds <= 0 || f.Total(v) <= 0 {
		return Finding{}, false
	}
	busy := f.Total(v)
	used := float64(busy) / 1e9
	found := Finding{Numbers: map[string]float64{"cpu_seconds": used, "seconds": seconds, "cpus": used / seconds}}
	of, in := "", describe.Quantity(f.Meta.Duration.Nanoseconds(), "nanoseconds")
	if f.Meta.CPUs > 0 {
		of = fmt.Sprintf(" of %d", f.Meta.CPUs)
		found.Numbers["machine_cpus"] = float64(f.Meta.CPUs)
	}
	switch part := used / seconds; {
	case describe.IsWhole(f.Meta):
		found.marked = fmt.Sprintf("On average, %.2f%s CPUs were busy: %s of CPU time in %s.", part, of, describe.Quantity(busy, "nanoseconds"), in)
	case part >= busyShare:
		found.marked = fmt.Sprintf("It used %.2f CPUs%s on average: %s of CPU time in %s.", part, of, describe.Quantity(busy, "nanoseconds"), in)
	case f.find("off-cpu") < 0 && f.find("wall") < 0:
		found.marked = fmt.Sprintf("It used %.0f %% of a CPU in %s; the rest of the time it waited or had no CPU.", 100*part, in)
		if found.Remedy = fmt.Sprintf("fulgur profile %s shows which", usage.Wall); len(f.Meta.Unmeasured) > 0 { // it was measured without BPF
			found.Remedy = "with sudo, " + found.Remedy
		}
	default:
		found.marked = fmt.Sprintf("It used %.0f %% of a CPU in %s.", 100*part, in)
	}
	return found, true
}

func waits(f *facts) (Finding, bool) {
	on, off := f.find("cpu"), f.find("off-cpu")
	if off < 0 {
		return Finding{}, false
	}
	waited, ran := f.Total(off), int64(0)
	if on >= 0 {
		ran = f.Total(on)
	}
	if waited <= 0 || float64(waited) < waitShare*float64(waited+ran) {
		return Finding{}, false
	}
	share := float64(waited) / float64(waited+ran)
	numbers := map[string]float64{"waiting_seconds": float64(waited) / 1e9, "running_seconds": float64(ran) / 1e9, "share": share}
	sentence := fmt.Sprintf("%s waited for %s", f.whoWaits(), describe.Quantity(waited, "nanoseconds"))
	if ran > 0 {
		sentence += fmt.Sprintf(", %s of their time", percent(share))
	}
	if reason, n := f.reason(off); n > 0 {
		of := float64(n) / float64(waited)
		numbers["reason_share"] = of
		sentence += mainReason(reason, of)
	}
	switch {
	case on >= 0 && ran == 0:
		sentence += ", and ran too briefly for a sample"
	case on >= 0:
		sentence += ", and ran for " + describe.Quantity(ran, "nanoseconds")
	}
	sentence += "."
	return Finding{Numbers: numbers, marked: sentence}, true
}

// whoWaits returns what waits.
func (f *facts) whoWaits() string {
	if f.Meta.Event == profile.GoroutineWaits {
		return "Goroutines"
	}
	return "Threads"
}

// mainReason returns the part of a sentence about the main reason for waiting and its share of that time.
func mainReason(reason string, share float64) string {
	return fmt.Sprintf(", mostly %s (%s)", named(reason), percent(share))
}

// reason returns the most frequent note on top of the stacks of value v, "[futex]", and its
// sum.
func (f *facts) reason(v int) (note string, sum int64) {
	return most(func(add func(string, int64)) {
		for _, s := range f.Samples {
			if leaf := f.leaf(s.Stack); leaf != 0 && f.Frames[leaf].Kind == profile.KindMarker {
				add(f.FrameName(leaf), s.Values[v])
			}
		}
	})
}

// most returns the key with the largest sum.
func most(each func(add func(string, int64))) (key string, sum int64) {
	sums := map[string]int64{}
	each(func(k string, n int64) { sums[k] += n })
	keys := slices.SortedFunc(maps.Keys(sums), func(a, b string) int { return cmp.Or(cmp.Compare(sums[b], sums[a]), cmp.Compare(a, b)) })
	if len(keys) == 0 {
		return "", 0
	}
	return keys[0], sums[keys[0]]
}

func hotFunction(f *facts) (Finding, bool) {
	g, ofProgram, ok := f.first()
	if !ok || f.share(g.Self) < hotShare {
		return Finding{}, false
	}
	share, name := f.share(g.Self), named(g.Name)
	if g.Module != profile.UnknownModule {
		name += " of " + named(g.Module)
	}
	how := "takes %s of %s by itself: %s."
	if ofProgram {
		how = "is the innermost function of a program in %s of %s: %s."
	}
	return Finding{
		Numbers: map[string]float64{"share": share, "value": float64(g.Self)},
		marked:  fmt.Sprintf("%s "+how, name, percent(share), f.all(), f.quantity(g.Self, f.ValueTypes[f.value])),
	}, true
}

func flat(f *facts) (Finding, bool) {
	g, _, ok := f.first()
	if !ok || f.share(g.Self) >= flatShare || f.share(f.hottest.Functions[0].Self) >= flatShare {
		return Finding{}, false
	}
	share := f.share(g.Self)
	return Finding{
		Numbers: map[string]float64{"share": share},
		marked:  fmt.Sprintf("The profile is flat: the hottest function, %s, takes only %s; look at callers and at the paths below.", named(g.Name), percent(share)),
	}, true
}

func kernel(f *facts) (Finding, bool) {
	var sum int64
	callers := f.callers()
	caller, called := most(func(add func(string, int64)) {
		for _, s := range f.Samples {
			if by := callers[s.Stack]; by != 0 && f.Frames[f.Stacks[s.Stack].Frame].Kind == profile.KindKernel {
				add(f.GroupName(by), s.Values[f.value])
			}
		}
	})
	function, n := most(func(add func(string, int64)) {
		for _, s := range f.Samples {
			leaf := f.leaf(s.Stack)
			if leaf != 0 && f.Frames[leaf].Kind == profile.KindKernel {
				sum += s.Values[f.value]
				add(f.GroupName(leaf), s.Values[f.value])
			}
		}
	})
	if f.whole <= 0 || f.share(sum) < kernelShare {
		return Finding{}, false
	}
	found := Finding{
		Numbers: map[string]float64{"share": f.share(sum), "function_share": f.share(n)},
		marked:  fmt.Sprintf("The kernel takes %s", percent(f.share(sum))),
	}
	if called > 0 {
		found.Numbers["caller_share"] = f.share(called)
		found.marked += fmt.Sprintf("; calls by %s take the largest part, %s", named(caller), percent(f.share(called)))
	}
	found.marked += fmt.Sprintf(". Its hottest function, %s, takes %s.", named(function), percent(f.share(n)))
	return found, true
}

// callers returns for each stack the innermost function of the program or of the C library, not one
// inlined into it: in a stack that ends in the kernel, the one that called the kernel. It is 0 if
// there is none.
func (f *facts) callers() []profile.FrameID {
	list := make([]profile.FrameID, len(f.Stacks))
	for id := 1; id < len(list); id++ {
		s := f.Stacks[id]
		list[id] = list[s.Parent]
		if frame := f.Frames[s.Frame]; frame.Kind != profile.KindKernel && frame.Kind != profile.KindMarker && !frame.Inlined {
			list[id] = s.Frame
		}
	}
	return list
}

// bpf finds the cost of BPF programs, which includes fulgur's own.
func bpf(f *facts) (Finding, bool) {
	is := make([]bool, len(f.Frames))
	for id := 1; id < len(is); id++ {
		is[id] = f.Frames[id].Kind == profile.KindKernel && strings.HasPrefix(f.GroupName(profile.FrameID(id)), "bpf_prog_")
	}
	within := make([]bool, len(f.Stacks))
	for id := 1; id < len(within); id++ {
		within[id] = within[f.Stacks[id].Parent] || is[f.Stacks[id].Frame]
	}
	var sum int64
	for _, s := range f.Samples {
		if within[s.Stack] {
			sum += s.Values[f.value]
		}
	}
	if f.whole <= 0 || f.share(sum) < bpfShare {
		return Finding{}, false
	}
	return Finding{
		Numbers: map[string]float64{"share": f.share(sum)},
		marked:  fmt.Sprintf("BPF programs take %s, including those that measure.", percent(f.share(sum))),
	}, true
}

func process(f *facts) (Finding, bool) {
	names := map[string]bool{}
	name, n := most(func(add func(string, int64)) {
		for _, s := range f.Samples {
			comm := f.Tasks[s.Task].Comm
			names[comm] = true
			add(comm, s.Values[f.value])
		}
	})
	if f.whole <= 0 || len(names) < 2 || f.share(n) < processShare {
		return Finding{}, false
	}
	return Finding{
		Numbers: map[string]float64{"share": f.share(n), "names": float64(len(names))},
		marked:  fmt.Sprintf("Of %d names of processes and threads, %s takes %s.", len(names), named(name), percent(f.share(n))),
	}, true
}

// samples returns the number of samples, and false if the profile does not count them.
func (f *facts) samples() (int64, bool) {
	v := slices.Index(f.ValueTypes, profile.ValueType{Type: "samples", Unit: "count"})
	if v < 0 || describe.IsMixed(f.ValueTypes) {
		return 0, false
	}
	return f.Total(v), true
}

func fewSamples(f *facts) (Finding, bool) {
	n, ok := f.samples()
	about := ""
	if rate := f.Meta.Frequency; !ok && f.value == f.find("cpu") && rate > 0 { // of a recording
		n, ok = int64(math.Round(float64(f.whole)/1e9*float64(rate))), true
		about = "about "
	}
	if !ok || n <= 0 || n >= manySamples {
		return Finding{}, false
	}
	// The standard error of a share of one half.
	points := 50 / math.Sqrt(float64(n))
	return Finding{
		Numbers: map[string]float64{"samples": float64(n), "standard_error_points": points},
		marked:  fmt.Sprintf("There %s: a share of 50 %% has a standard error of %.0f points.", plural(uint64(n), "is only "+about+"# sample", "are only "+about+"# samples"), points),
		Remedy:  "measure longer, or at a higher rate",
	}, true
}

func unnamed(f *facts) (Finding, bool) {
	var sum, generated int64
	module, n := most(func(add func(string, int64)) {
		for _, s := range f.Samples {
			leaf := f.leaf(s.Stack)
			if leaf == 0 || f.Frames[leaf].Kind == profile.KindMarker || f.Named(leaf) {
				continue
			}
			v := s.Values[f.value]
			sum += v
			if f.Frames[leaf].Kind == profile.KindJIT {
				generated += v
			} else {
				add(f.ModuleName(f.Frames[leaf].Mapping), v)
			}
		}
	})
	if f.whole <= 0 || f.share(sum) < unnamedShare {
		return Finding{}, false
	}
	found := Finding{Numbers: map[string]float64{"share": f.share(sum)}}
	where := "generated code"
	if generated <= n {
		where = named(module)
		for _, file := range f.Meta.Stripped.Files {
			if path.Base(file.Path) == module {
				found.Remedy = cmp.Or(found.Remedy, plain.Terminal(file.Remedy))
			}
		}
	} else {
		found.Remedy = describe.Remedy(profile.LossUnresolvedGenerated)
	}
	found.marked = fmt.Sprintf("%s is in functions without names, most of it in %s (%s).", percent(f.share(sum)), where, percent(f.share(max(n, generated))))
	return found, true
}

func lost(f *facts) (Finding, bool) {
	n, ok := f.samples()
	missing := f.Losses.Uncounted()
	if !ok || missing == 0 || float64(missing) < lostShare*float64(n) {
		return Finding{}, false
	}
	found := Finding{
		Numbers: map[string]float64{"lost": float64(missing), "samples": float64(n)},
		marked:  fmt.Sprintf("%s not counted; %d were.", plural(missing, "# sample was", "# samples were"), n),
	}
	for _, cause := range []profile.Loss{profile.LossSamples, profile.LossRing, profile.LossUnsent} {
		if f.Losses[cause] > 0 {
			found.Remedy = describe.Remedy(cause)
			break
		}
	}
	return found, true
}

func truncated(f *facts) (Finding, bool) {
	var sum int64
	why, n := most(func(add func(string, int64)) {
		for _, s := range f.Samples {
			if s.End.Cut() {
				sum += s.Values[f.value]
				add(s.End.String(), s.Values[f.value])
			}
		}
	})
	if f.whole <= 0 || f.share(sum) < truncatedShare {
		return Finding{}, false
	}
	return Finding{
		Numbers: map[string]float64{"share": f.share(sum), "cause_share": f.share(n)},
		marked:  fmt.Sprintf("%s has stacks without their outermost callers; the most frequent cause is %q (%s).", percent(f.share(sum)), why, percent(f.share(n))),
	}, true
}
