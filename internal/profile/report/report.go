// Package report describes a profile as an expert would: first the main findings, then
// functions, paths and losses. Its JSON is stable, see docs/report.md.
package report

import (
	"cmp"
	"slices"
	"time"

	"fulgur/internal/message/plain"
	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/describe"
	"fulgur/internal/profile/encode/text"
)

// Version is the version of the JSON. Members may be added to a version, but not change.
const Version = 1

// Report is a report. Names in it are safe to print in the sense of package plain. Shares
// are from 0 to 1.
type Report struct {
	Version int `json:"version"`
	// Run describes the run, and Machine the machine.
	Run     string `json:"run"`
	Machine string `json:"machine"`
	// Duration is in seconds, 0 if unknown.
	Duration float64 `json:"duration_seconds"`
	Totals   []Total `json:"totals"`
	// Value is the type of the value that all shares refer to.
	Value     string     `json:"value"`
	Findings  []Finding  `json:"findings"`
	Functions []Function `json:"functions"`
	// Lines are lines of functions of interpreted languages, if there are any.
	Lines []Line `json:"lines"`
	// Programs and Reasons are as in [text.Hottest].
	Programs []Program `json:"programs"`
	Reasons  []Reason  `json:"reasons"`
	Paths    []Path    `json:"paths"`
	// Slowest are the slowest intervals, if intervals were measured, the slowest first.
	Slowest []SlowInterval `json:"slowest"`
	// Losses are all that the profile lacks.
	Losses []describe.Loss `json:"losses"`

	slowest []profile.SlowInterval
	isOwn   bool // functions own the time of their interpreter
}

// Total is the sum of a value over all samples.
type Total struct {
	Type  string `json:"type"`
	Unit  string `json:"unit"`
	Total int64  `json:"total"`
}

// Finding is the result of a rule.
type Finding struct {
	Rule string `json:"rule"`
	// Text is a sentence with the numbers that it rests on.
	Text string `json:"text"`
	// Numbers are these numbers by name.
	Numbers map[string]float64 `json:"numbers"`
	// Remedy is the remedy, empty if there is none.
	Remedy string `json:"remedy,omitempty"`

	marked string // Text with its names between the marks of [named]
}

// Function is a function with its shares of the value: of the stacks that end in it (Self), of those
// that it owns (Own, see package own) and of those that contain it. Caller is as in [text.Function].
type Function struct {
	Name   string  `json:"function"`
	Module string  `json:"module"`
	Caller string  `json:"caller,omitempty"`
	Self   float64 `json:"self"`
	Own    float64 `json:"own"`
	Total  float64 `json:"total"`
}

// Line is a line of a function of an interpreted language with the share of the value that it owns.
type Line struct {
	Function string  `json:"function"`
	File     string  `json:"file"`
	Line     int     `json:"line"`
	Own      float64 `json:"own"`

	place string
}

// Program is a function with the share of the stacks in which it is the innermost one of a
// program, and the share of the stacks that contain it.
type Program struct {
	Name   string  `json:"function"`
	Module string  `json:"module"`
	Inner  float64 `json:"inner"`
	Total  float64 `json:"total"`
}

// Reason is a note at the ends of stacks, "[futex]", with its share of the value.
type Reason struct {
	Name  string  `json:"reason"`
	Share float64 `json:"share"`
}

// Path is a stack, root first, with its share of the value.
type Path struct {
	Frames []string `json:"frames"`
	Share  float64  `json:"share"`
}

// SlowInterval is one of the slowest intervals, such as requests. Its thread runs, waits for a CPU (Runnable),
// or waits for something else, in seconds.
type SlowInterval struct {
	Begin    time.Time `json:"begin"` // in UTC
	Length   float64   `json:"length_seconds"`
	Running  float64   `json:"running_seconds"`
	Runnable float64   `json:"runnable_seconds"`
	Waiting  float64   `json:"waiting_seconds"`
	// Slow is set if the interval is on the slow side.
	Slow    bool   `json:"slow"`
	Process int    `json:"pid"`
	Thread  int    `json:"tid"`
	Task    string `json:"name"`
	// Fields are arguments of the event at which the interval began, and IDs of its trace, by name.
	Fields map[string]string `json:"fields,omitempty"`
}

// slowestOf returns the slowest intervals of p.
func slowestOf(p *profile.Profile) []SlowInterval {
	all := []SlowInterval{}
	for _, i := range p.Meta.Slowest {
		s := SlowInterval{
			Begin: i.Begin.UTC(), Length: i.Length.Seconds(), Running: i.Running.Seconds(), Runnable: i.Runnable.Seconds(), Waiting: i.Waiting().Seconds(),
			Slow: i.Slow, Process: i.PID, Thread: i.TID, Task: plain.Terminal(i.Comm),
		}
		for _, f := range i.Fields {
			if s.Fields == nil {
				s.Fields = map[string]string{}
			}
			s.Fields[plain.Terminal(f.Key)] = plain.Terminal(f.Value)
		}
		all = append(all, s)
	}
	return all
}

// maxPaths limits the paths.
const maxPaths = 5

// New returns the report of p with the n hottest functions by a value, given as its index. Native
// counts each stack for its leaf, even if that is an interpreter's function.
func New(p *profile.Profile, value, n int, native bool) *Report {
	v := p.ValueTypes[value]
	r := &Report{
		Version: Version, Run: describe.Run(p.Meta), Machine: describe.Machine(p.Meta), Duration: p.Meta.Duration.Seconds(),
		Value: plain.Terminal(v.Type), Totals: []Total{}, Findings: []Finding{}, Functions: []Function{}, Lines: []Line{}, Programs: []Program{}, Reasons: []Reason{}, Paths: []Path{}, Losses: []describe.Loss{},
		Slowest: slowestOf(p), slowest: p.Meta.Slowest,
	}
	for i, v := range p.ValueTypes {
		r.Totals = append(r.Totals, Total{plain.Terminal(v.Type), plain.Terminal(v.Unit), p.Total(i)})
	}
	f := newFacts(p, value, n, native)
	r.isOwn = f.hottest.IsOwn
	r.Findings = append(r.Findings, f.findings(func(rule) bool { return true })...)
	if f.whole > 0 {
		for _, g := range f.hottest.Functions {
			r.Functions = append(r.Functions, Function{plain.Terminal(g.Name), plain.Terminal(g.Module), plainCaller(g.Caller), f.share(g.Leaf), f.share(g.Self), f.share(g.Total)})
		}
		for _, l := range f.hottest.Lines {
			r.Lines = append(r.Lines, Line{plain.Terminal(l.Function), plain.Terminal(l.File), l.Number, f.share(l.Self), plain.Terminal(l.Place())})
		}
		for _, g := range f.hottest.Programs {
			r.Programs = append(r.Programs, Program{plain.Terminal(g.Name), plain.Terminal(g.Module), f.share(g.Self), f.share(g.Total)})
		}
		for _, g := range f.hottest.Reasons {
			r.Reasons = append(r.Reasons, Reason{plain.Terminal(g.Name), f.share(g.Self)})
		}
		r.Paths = f.paths()
	}
	r.Losses = append(r.Losses, describe.Of(p)...)
	return r
}

// plainCaller returns the name of a caller, "" if there is none.
func plainCaller(name string) string {
	if name == "" {
		return ""
	}
	return plain.Terminal(name)
}

// Answers returns the findings for the summary of p on the terminal, those that its table of functions
// and its line about losses do not show, and the profile of that table, which is p without idle threads.
func Answers(p *profile.Profile, value int, native bool) ([]Finding, *profile.Profile) {
	mixed := describe.IsMixed(p.ValueTypes) // the totals of a recording have its load
	f := newFacts(p, value, 1, native)
	return f.findings(func(r rule) bool { return r.answers && (r.name != "load" || !mixed) }), f.Profile
}

// Functions is the default number of hottest functions.
const Functions = 20

// Findings returns the findings of [New], for [Functions] functions.
func Findings(p *profile.Profile, value int, native bool) []Finding {
	return newFacts(p, value, Functions, native).findings(func(rule) bool { return true })
}

// facts are the inputs of rules.
type facts struct {
	*profile.Profile
	value   int
	whole   int64 // sum of the magnitudes of the value: its total, unless amounts are negative
	hottest text.Hottest
	waiters []profile.StackID // see [profile.Profile.Waiters]
	idle    []profile.Sample  // waits of idle threads, which Profile does not have; see withoutIdle
}

// newFacts returns the facts about a value of p, with n hottest functions, by their leaves if native is set.
func newFacts(p *profile.Profile, value, n int, native bool) *facts {
	f := &facts{Profile: p, value: value, waiters: p.Waiters()}
	f.withoutIdle()
	f.whole = f.Magnitude(value)
	if n > 0 {
		f.hottest = text.HottestOf(f.Profile, n, value, native)
	}
	return f
}

// findings returns the findings of the chosen rules.
func (f *facts) findings(chosen func(rule) bool) (all []Finding) {
	for _, rule := range rules {
		if !chosen(rule) {
			continue
		}
		found, ok := rule.look(f)
		if !ok {
			continue
		}
		found.Rule = rule.name
		if found.Numbers == nil {
			found.Numbers = map[string]float64{} // not null in JSON
		}
		found.Text = strip(found.marked)
		all = append(all, found)
	}
	return all
}

// leaf returns the leaf of a stack, without a waker.
func (f *facts) leaf(s profile.StackID) profile.FrameID { return f.Stacks[f.waiters[s]].Frame }

// first returns the hottest function of programs that has a name, if stacks end in notes or in a
// few functions, or else the hottest function with a name. ok is false if there is none.
func (f *facts) first() (g text.Function, ofProgram, ok bool) {
	list := f.hottest.Functions
	if ofProgram = len(f.hottest.Programs) > 0; ofProgram {
		list = f.hottest.Programs
	}
	i := slices.IndexFunc(list, func(g text.Function) bool { return !slices.Contains(profile.Unnamed, g.Name) })
	if f.whole <= 0 || i < 0 {
		return g, false, false
	}
	return list[i], ofProgram, true
}

// share returns n as a share of the whole.
func (f *facts) share(n int64) float64 { return float64(n) / float64(f.whole) }

// sameFunctions returns for each stack the first one with the same functions.
func (f *facts) sameFunctions() []profile.StackID {
	type node struct {
		parent profile.StackID
		name   string
	}
	first, known := make([]profile.StackID, len(f.Stacks)), map[node]profile.StackID{}
	names := make([]string, len(f.Frames))
	for id := 1; id < len(first); id++ {
		s := f.Stacks[id]
		if names[s.Frame] == "" {
			names[s.Frame] = f.FrameName(s.Frame)
		}
		key := node{first[s.Parent], names[s.Frame]}
		if known[key] == 0 {
			known[key] = profile.StackID(id)
		}
		first[id] = known[key]
	}
	return first
}

// paths returns the heaviest stacks. Stacks with the same functions count as one.
func (f *facts) paths() []Path {
	sums, same := map[profile.StackID]int64{}, f.sameFunctions()
	for _, s := range f.Samples {
		sums[same[s.Stack]] += s.Values[f.value]
	}
	var ids []profile.StackID
	for id, n := range sums {
		if n != 0 {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b profile.StackID) int {
		return cmp.Or(cmp.Compare(max(sums[b], -sums[b]), max(sums[a], -sums[a])), cmp.Compare(a, b))
	})
	all := []Path{}
	for _, id := range ids[:min(len(ids), maxPaths)] {
		path := Path{Frames: []string{}, Share: f.share(sums[id])}
		for _, frame := range slices.Backward(f.AppendFrames(nil, id)) {
			path.Frames = append(path.Frames, plain.Terminal(f.FrameName(frame)))
		}
		all = append(all, path)
	}
	return all
}
