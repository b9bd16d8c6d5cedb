package describe

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"fulgur/internal/message/plain"
	"fulgur/internal/message/usage"
	"fulgur/internal/profile"
	"fulgur/internal/unwind/stackend"
)

// Loss is what a profile lacks, or nearly lacked, for one cause. Its JSON is stable, see
// docs/report.md.
type Loss struct {
	// Cause is the name of a [profile.Loss], "stripped" for a file without symbols, or "unmeasured" for what the way
	// of measuring left out.
	Cause string `json:"cause"`
	// What is the loss and its amount: "3 samples lost", "3 of 100 samples in unnamed functions".
	What string `json:"what"`
	// Effect is the cause, or the effect on the profile. Remedy is empty if
	// there is none.
	Effect string `json:"effect"`
	Remedy string `json:"remedy,omitempty"`
	// Count is the number in What, 0 for a file.
	Count uint64 `json:"-"`

	one, many string
	cause     profile.Loss
}

// Why returns the effect and the remedy.
func (l Loss) Why() string { return strings.Trim(l.Effect+"; "+l.Remedy, "; ") }

// String returns the loss in a line.
func (l Loss) String() string { return strings.TrimSuffix(l.What+": "+l.Why(), ": ") }

// Of returns all that p lacks: what was not measured, the losses, the gravest first, and the files without symbols.
func Of(p *profile.Profile) []Loss {
	noun := NounOfProfile(p)
	var all []Loss
	for _, line := range p.Meta.Unmeasured {
		all = append(all, Loss{Cause: unmeasured, What: plain.Terminal(line)})
	}
	all = append(all, LossesIn(p.Losses, noun, Samples(p))...)
	return append(all, Stripped(p.Meta.Stripped, noun)...)
}

// Remedy returns the remedy of a cause, "" if there is none.
func Remedy(of profile.Loss) string { return causes[of].remedy.String() }

// RemedyOptions returns the options that the remedy of a cause names.
func RemedyOptions(of profile.Loss) (list []usage.Option) {
	for _, o := range causes[of].remedy.options {
		if option, ok := o.(usage.Option); ok {
			list = append(list, option)
		}
	}
	return list
}

// Brief returns a short list of the losses in l, the most serious first. It combines
// causes with the same description, and leaves out data that arrived late.
func Brief(l profile.Losses, of Noun) []string {
	l = l.Missing()
	var whats []string
	sums := map[string]uint64{}
	all := Losses(l, of)
	for _, loss := range all {
		sums[loss.many] += loss.Count
	}
	for _, loss := range all {
		if n, ok := sums[loss.many]; ok {
			whats = append(whats, counted(n, loss.one, loss.many))
			delete(sums, loss.many)
		}
	}
	return whats
}

// Lost joins the losses of [Brief], only the first ones if most is not 0, or says that there are none.
func Lost(l profile.Losses, of Noun, most int) string {
	all, more := Brief(l, of), ""
	if len(all) == 0 {
		return "nothing lost"
	}
	if most > 0 && len(all) > most {
		all, more = all[:most], "…"
	}
	return strings.Join(all, ", ") + more
}

// remedy is the remedy of a loss: a format with the options that it names.
type remedy struct {
	format  string
	options []any
}

// do returns the remedy with the given format and options, of type [usage.Option].
func do(format string, options ...any) remedy { return remedy{format, options} }

// String returns the text of the remedy, "" for none.
func (r remedy) String() string { return fmt.Sprintf(r.format, r.options...) }

// maxDepth is the remedy for stacks that were truncated at the depth limit. fulgur and,
// unless the sysctl was changed, the kernel walk at most 127 frames.
var maxDepth = do("if %s or sysctl kernel.perf_event_max_stack is below 127, the maximum, raise it", usage.MaxDepth)

// Losses returns the causes whose count in l is not zero, the gravest first. What was lost is
// called by the given noun.
func Losses(l profile.Losses, of Noun) []Loss { return LossesIn(l, of, 0) }

// LossesIn is like [Losses], and says of how many samples of a profile the stacks or names are
// incomplete, unless the number is 0.
func LossesIn(l profile.Losses, of Noun, samples uint64) []Loss {
	var losses []Loss
	for cause, n := range l {
		c := causes[cause]
		if n == 0 || c.many == "" {
			continue
		}
		noun := of
		if of.isGeneral() && c.unless != (Noun{}) {
			noun = c.unless
		}
		ofSamples := strings.Contains(c.many, "{samples}")
		c.one, c.many = strings.Replace(c.one, "{sample}", noun.one, 1), strings.Replace(c.many, "{samples}", noun.many, 1)
		if profile.Loss(cause) == profile.LossSkipped && !of.isGeneral() {
			c.effect, c.remedy = "by the kernel, of any process: another BPF program ran", remedy{} // they have no rate
		}
		if frames := l[profile.LossUnresolvedFrames]; profile.Loss(cause) == profile.LossUnresolved && frames > 0 {
			c.effect = "at " + counted(frames, "place", "places")
		}
		what := counted(n, c.one, c.many)
		switch {
		case n > samples || !isPart(profile.Loss(cause)):
		case ofSamples:
			what = fmt.Sprintf("%d of %d %s", n, samples, c.many)
		default:
			what += " in " + of.Count(samples)
		}
		losses = append(losses, Loss{profile.Loss(cause).String(), what, c.effect, c.remedy.String(), n, c.one, c.many, profile.Loss(cause)})
	}
	return losses
}

// isPart reports whether a loss counts samples that are in the profile, whose stacks or names are
// incomplete.
func isPart(l profile.Loss) bool {
	switch l {
	case profile.LossTraces, profile.LossTruncatedKernel, profile.LossCrowded, profile.LossTooDeep, profile.LossTooMany,
		profile.LossBrokenC, profile.LossBrokenGenerated, profile.LossBrokenJava, profile.LossUnlabeled, profile.LossUnsearched, profile.LossUnresolved, profile.LossUnresolvedGenerated,
		profile.LossUnresolvedCallers:
		return true
	}
	return causes[l].end != stackend.None
}

// OfEnd returns the loss of user stacks with the given end, and false if the end is no loss.
func OfEnd(e stackend.End) (profile.Loss, bool) {
	i := slices.IndexFunc(causes[:], func(c cause) bool { return c.end == e && e != stackend.None })
	return profile.Loss(max(i, 0)), i >= 0
}

// cause describes a [profile.Loss].
type cause struct {
	one, many string       // what is counted, with {sample} and {samples} for the noun
	effect    string       // see [Loss]
	remedy    remedy       // none if zero
	end       stackend.End // of the user stacks that are counted, if all end so
	unless    Noun         // of profiles whose samples are of several kinds; none if zero
}

// causes are the descriptions of all causes but LossUnresolvedFrames, which is the effect
// of LossUnresolved.
var causes = [profile.NumLosses]cause{
	profile.LossSamples: {"{sample} lost", "{samples} lost",
		"not counted: no room", do("raise %s and %s", usage.CountEntries, usage.RingSize), stackend.None, Noun{}},
	profile.LossUnsent: {"{sample} lost", "{samples} lost",
		"not counted: the ring was full", do("raise %s", usage.RingSize), stackend.None, Noun{}},
	profile.LossRing: {"{sample} lost", "{samples} lost",
		"not counted: a ring of perf events was full", do("lower the rate"), stackend.None, Noun{}},
	profile.LossSkipped: {"{sample} skipped", "{samples} skipped",
		"by the kernel, of any process: a late timer or another BPF program", do("if many, lower the rate"), stackend.None, sample},
	profile.LossLimited: {"{sample} above the limit", "{samples} above the limit",
		"not counted", do("raise %s", usage.MaxRate), stackend.None, Noun{"hit", "hits"}},
	profile.LossImpossible: {"{sample} with impossible numbers", "{samples} with impossible numbers",
		"not counted: reported so by the program", remedy{}, stackend.None, Noun{}},
	profile.LossThrottled: {"sampling pause", "sampling pauses",
		"throttled by the kernel", do("lower the rate or raise sysctl kernel.perf_event_max_sample_rate"), stackend.None, Noun{}},
	profile.LossTraces: {"{sample} without stack", "{samples} without stack",
		"shown as [stack lost]", do("raise %s", usage.RingSize), stackend.None, Noun{}},
	profile.LossTruncatedUser: {"user stack truncated", "user stacks truncated",
		"at the depth limit", maxDepth, stackend.Depth, Noun{}},
	profile.LossTruncatedKernel: {"kernel stack truncated", "kernel stacks truncated",
		"at the depth limit", maxDepth, stackend.None, Noun{}},
	profile.LossCrowded: {"stack truncated", "stacks truncated",
		"too many distinct stacks", do("raise %s, or record fewer processes", usage.StackNodes), stackend.None, Noun{}},
	profile.LossTooDeep: {"stack truncated", "stacks truncated",
		fmt.Sprintf("after %d frames", profile.MaxDepth), remedy{}, stackend.None, Noun{}},
	profile.LossTooMany: {"{sample} with an incomplete stack", "{samples} with incomplete stacks",
		"too many distinct stacks in the input", do("convert a part of it"), stackend.None, Noun{}},
	profile.LossLongNames: {"name truncated", "names truncated",
		fmt.Sprintf("after %d bytes", profile.MaxName), remedy{}, stackend.None, Noun{}},
	profile.LossUnnamed: {"task name change ignored", "task name changes ignored",
		"too many in the input: samples may have older names", do("convert a part of it"), stackend.None, Noun{}},
	profile.LossUnread: {"line not read", "lines not read",
		"not understood; the others are in the profile", remedy{}, stackend.None, Noun{}},
	profile.LossUserFaults: {"unreadable user stack", "unreadable user stacks",
		"paged out, or no frame pointers", remedy{}, stackend.Fault, Noun{}},
	profile.LossBrokenUser: {"broken user stack", "broken user stacks",
		"frame pointers lead to no code", remedy{}, stackend.Broken, Noun{}},
	profile.LossBrokenC: {"broken user stack", "broken user stacks",
		"in C or C++ code with neither frame pointers nor unwind tables", do("compile it with -fno-omit-frame-pointer"), stackend.None, Noun{}},
	profile.LossBrokenGenerated: {"user stack broken in generated code", "user stacks broken in generated code",
		"of a JIT compiler or an emulator, which keeps no frame pointers", do("it may have an option that keeps them"), stackend.None, Noun{}},
	profile.LossBrokenJava: {"user stack broken in generated code", "user stacks broken in generated code",
		"of Java, which keeps no frame pointers", do("run java with -XX:+PreserveFramePointer"), stackend.None, Noun{}},
	profile.LossOmitted: {"user stack that may lack callers", "user stacks that may lack callers",
		"generated code keeps no frame pointers", do("run mono with MONO_DEBUG=disable_omit_fp, java with -XX:+PreserveFramePointer"), stackend.Omitted, Noun{}},
	profile.LossNotReady: {"user stack without unwind tables", "user stacks without unwind tables",
		"not loaded yet; frame pointers may not reach the root", remedy{}, stackend.NotReady, Noun{}},
	profile.LossEvicted: {"user stack truncated", "user stacks truncated",
		"unwind table was evicted", do("raise %s", usage.UnwindMemory), stackend.Evicted, Noun{}},
	profile.LossNoTable: {"user stack truncated", "user stacks truncated",
		"code without an unwind table", remedy{}, stackend.NoTable, Noun{}},
	profile.LossUnsupported: {"user stack truncated", "user stacks truncated",
		"unsupported unwind rule", remedy{}, stackend.Unsupported, Noun{}},
	profile.LossNoMapping: {"user stack truncated", "user stacks truncated",
		"no known code at the address", remedy{}, stackend.NoMapping, Noun{}},
	profile.LossNotGrowing: {"user stack truncated", "user stacks truncated",
		"the stack contradicts the unwind table", remedy{}, stackend.NotGrowing, Noun{}},
	profile.LossCopy: {"user stack truncated", "user stacks truncated",
		"at the end of the recorded copy", do("record larger copies with perf record --call-graph dwarf,65528"), stackend.Copy, Noun{}},
	profile.LossBeyondCopy: {"user stack truncated", "user stacks truncated",
		"longer than the part that perf events copy", do("run fulgur with sudo: BPF programs walk all of a stack"), stackend.BeyondCopy, Noun{}},
	profile.LossDeferred: {"user stack missing", "user stacks missing",
		"perf record deferred it and has no record of it: the thread did not return from the kernel, or a buffer was full", remedy{}, stackend.Deferred, Noun{}},
	profile.LossUnwindFiles: {"file with unreadable unwind information", "files with unreadable unwind information",
		"stacks may end in them", remedy{}, stackend.None, Noun{}},
	profile.LossUnwindMemory: {"file without unwind table", "files without unwind table",
		"no room", do("raise %s", usage.UnwindMemory), stackend.None, Noun{}},
	profile.LossUnwindProcesses: {"process not fully unwound by tables", "processes not fully unwound by tables",
		"too many mappings", do("profile fewer processes at once"), stackend.None, Noun{}},
	profile.LossSideband: {"mapping record lost", "mapping records lost",
		"names may be missing", remedy{}, stackend.None, Noun{}},
	profile.LossUntracked: {"child process not followed", "child processes not followed",
		"the target set was full", do("profile a cgroup with %s", usage.Cgroup), stackend.None, Noun{}},
	profile.LossUnlabeled: {"{sample} without its labels", "{samples} without their labels",
		"too many different labels, or the ring was full", do("for a full ring, raise %s", usage.RingSize), stackend.None, Noun{}},
	profile.LossUnsearched: {"{sample} that may lack Python functions", "{samples} that may lack Python functions",
		"their processes have too many threads to find the right one", remedy{}, stackend.None, Noun{}},
	profile.LossMissed: {"wait missed", "waits missed",
		"not counted: the kernel did not report the end", remedy{}, stackend.None, Noun{}},
	profile.LossUnfollowed: {"{sample} not tracked", "{samples} not tracked",
		"too many at once", do("measure fewer processes, or raise %s", usage.PendingEntries), stackend.None, Noun{"wait, request or call", "waits, requests or calls"}},
	profile.LossRemaps: {"replaced mapping not marked", "replaced mappings not marked",
		"stacks may show names of older code", do("profile fewer processes at once"), stackend.None, Noun{}},
	profile.LossProcessesGone: {"process exited early", "processes exited early",
		"before the mappings were read", remedy{}, stackend.None, Noun{}},
	profile.LossUnresolved: {"{sample} in an unnamed function", "{samples} in unnamed functions",
		"shown by address", do("install debug symbols"), stackend.None, Noun{}},
	profile.LossUnresolvedGenerated: {"{sample} in unnamed generated code", "{samples} in unnamed generated code",
		"of a JIT compiler or an emulator, or not read in time", do("a perf map or a jitdump file names it, if the program can write one"), stackend.None, Noun{}},
	profile.LossUnresolvedCallers: {"{sample} with unnamed callers", "{samples} with unnamed callers",
		"their own functions have names", remedy{}, stackend.None, Noun{}},
	profile.LossOverflows: {"{sample} sent through the ring", "{samples} sent through the ring",
		"nothing is missing", do("raise %s", usage.CountEntries), stackend.None, Noun{}},
	profile.LossRetries: {"stack sent again", "stacks sent again",
		"nothing is missing", do("raise %s", usage.RingSize), stackend.None, Noun{}},
}

// Causes that are no [profile.Loss].
const (
	stripped   = "stripped"
	unmeasured = "unmeasured"
)

// Stripped describes the files of a profile that lack symbols. of is the noun for samples.
func Stripped(s profile.StrippedFiles, of Noun) []Loss {
	var all []Loss
	for _, f := range s.Files {
		what := noSymbols(f)
		if f.BuildID != "" {
			what += " (build ID " + shortID(plain.Terminal(f.BuildID)) + ")"
		}
		l := Loss{Cause: stripped, What: what, Effect: of.Count(f.Samples)}
		if f.Remedy != "" {
			l.Remedy = plain.Terminal(f.Remedy)
		}
		all = append(all, l)
	}
	if s.Omitted > 0 {
		all = append(all, Loss{Cause: stripped, What: plain.Count(uint64(s.Omitted), "more file") + " without symbols"})
	}
	return all
}

// noSymbols says what a file lacks.
func noSymbols(f profile.Stripped) string {
	what := ": stripped"
	if f.Exports {
		what += ", only exported symbols"
	}
	return plain.Terminal(path.Base(f.Path)) + what
}

// shortID returns the beginning of a build ID, which suffices to recognize it. Nobody types
// all 40 digits.
func shortID(id string) string {
	const digits = 12
	if len(id) <= digits {
		return id
	}
	return id[:digits] + "…"
}

// counted returns n and the noun in its number.
func counted(n uint64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// roundDuration rounds d to the precision that readers need.
func roundDuration(d time.Duration) time.Duration {
	switch {
	case d > time.Second:
		return d.Round(10 * time.Millisecond)
	case d > time.Millisecond:
		return d.Round(time.Millisecond)
	}
	return d.Round(time.Microsecond)
}
