package flame

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"time"

	"fulgur/internal/message/plain"
	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/describe"
	"fulgur/internal/profile/encode/label"
	"fulgur/internal/profile/report"
	"fulgur/internal/profile/runinfo"
	"fulgur/internal/profile/sides"
)

// header is the JSON part of the page's data: everything except the long tables.
type header struct {
	Title  string          `json:"title"`
	Meta   meta            `json:"meta"`
	Losses []describe.Loss `json:"losses"`
	// Lost are the losses in brief, each said once.
	Lost []string `json:"lost"`
	// Findings are what a report says about the value to show first. In a comparison, it is only what compares the
	// sides of the same profile.
	Findings []finding `json:"findings"`
	// Slowest are the slowest intervals, if intervals were measured.
	Slowest []slowInterval `json:"slowest,omitempty"`
	Values  []valueType    `json:"values"`
	// Noun is the plural of the noun for a sample, if that is not "samples".
	Noun string `json:"noun,omitempty"`
	// Mixed is [describe.IsMixed]: the number of samples says nothing.
	Mixed bool `json:"mixed,omitempty"`
	// Value is the index of the value to show first.
	Value    int  `json:"value"`
	Inverted bool `json:"inverted"`
	// Native is [Options.Native].
	Native bool `json:"native,omitempty"`
	// ShortNames is [Options.ShortNames].
	ShortNames bool `json:"shortNames"`
	// Compared reports whether the samples also have columns of the base profile.
	Compared bool `json:"compared"`
	// Idle are the samples of idle threads, which the page leaves out at first, as the findings do: indexes of
	// the table of samples.
	Idle []int `json:"idle"`
	// Base describes the base profile, if there is one.
	Base *base `json:"base,omitempty"`
	// Run is the description of the run for programs that read the page.
	Run json.RawMessage `json:"run"`
	// Builds has the build ID of each module that has a single known one.
	Builds map[string]string `json:"builds,omitempty"`
	// Listings is [Options.Listings].
	Listings string   `json:"listings,omitempty"`
	Kinds    []string `json:"kinds"`
	Strings  []string `json:"strings"`
	Frames   frames   `json:"frames"`
	Tasks    tasks    `json:"tasks"`
	// Nodes, Chains and Samples are the numbers of rows of the following tables.
	Nodes   int `json:"nodes"`
	Chains  int `json:"chains"`
	Samples int `json:"samples"`
	// Times describes the table of times, if there is one.
	Times *times `json:"times,omitempty"`
	// Scales holds the divisor of each column of values.
	Scales []int64 `json:"scales"`
}

// meta is [profile.Meta] in the page's form.
type meta struct {
	Converted bool    `json:"converted,omitempty"`
	Command   string  `json:"command"`
	Scope     string  `json:"scope"`
	Host      string  `json:"host"`
	Kernel    string  `json:"kernel"`
	Arch      string  `json:"arch"`
	CPUs      int     `json:"cpus"`
	Start     string  `json:"start"` // RFC 3339 in UTC; empty if unknown
	Seconds   float64 `json:"seconds"`
	Event     string  `json:"event"`
	Frequency uint64  `json:"frequency"`
	Period    uint64  `json:"period"`
}

// finding is a sentence of a report, with its remedy if there is one.
type finding struct {
	Text   string `json:"text"`
	Remedy string `json:"remedy,omitempty"`
}

// slowInterval is one of the slowest intervals, with its times in seconds.
type slowInterval struct {
	Begin    string      `json:"begin"` // RFC 3339 in UTC
	Length   float64     `json:"length"`
	Running  float64     `json:"running"`
	Runnable float64     `json:"runnable"`
	Waiting  float64     `json:"waiting"`
	Thread   string      `json:"thread"`
	Fields   [][2]string `json:"fields,omitempty"` // names and values
}

// slowestOf returns the slowest intervals of p.
func slowestOf(p *profile.Profile) (all []slowInterval) {
	for _, i := range p.Meta.Slowest {
		s := slowInterval{
			Begin: i.Begin.UTC().Format(time.RFC3339Nano), Length: i.Length.Seconds(),
			Running: i.Running.Seconds(), Runnable: i.Runnable.Seconds(), Waiting: i.Waiting().Seconds(), Thread: sides.Thread(i),
		}
		for _, f := range i.Fields {
			s.Fields = append(s.Fields, [2]string{plain.Terminal(f.Key), plain.Terminal(f.Value)})
		}
		all = append(all, s)
	}
	return all
}

// base describes a base profile.
type base struct {
	Seconds float64 `json:"seconds"`
	// Name and Other are the names of [Options.Sides].
	Name  string `json:"name,omitempty"`
	Other string `json:"other,omitempty"`
}

type valueType struct {
	Type string `json:"type"`
	Unit string `json:"unit"`
}

// frames is a table of frames with an array for each column.
type frames struct {
	Name   []int `json:"name"`   // indexes of strings
	Module []int `json:"module"` // indexes of strings
	File   []int `json:"file"`   // indexes of strings
	Line   []int `json:"line"`   // first line of the function, or 0
	Kind   []int `json:"kind"`   // indexes of kinds
	// Inlined is 0 or 1.
	Inlined []int `json:"inlined"`
	// Code says whose code it is, see [own.Codes].
	Code []int `json:"code"`
	// Short holds the short names and Own the functions' own names, which are their ends:
	// indexes of strings, see package shortname.
	Short []int `json:"short"`
	Own   []int `json:"own"`
	// Address is in hex. It is a string because JavaScript numbers are too small for
	// kernel addresses. "0" means none.
	Address []string `json:"address"`
}

// tasks is a table of tasks with an array for each column.
type tasks struct {
	Comm []int `json:"comm"` // indexes of strings
	PID  []int `json:"pid"`
	TID  []int `json:"tid"` // 0 if not by thread
	// Group has indexes of strings. It is missing without groups.
	Group []int `json:"group,omitempty"`
}

// findings returns what a report says about a profile.
func (o Options) findings(p *profile.Profile) []finding {
	all := []finding{}
	if o.Base != nil && o.Sides == nil || o.Value < 0 || o.Value >= len(p.ValueTypes) {
		return all
	}
	for _, f := range report.Findings(p, o.Value, o.Native) {
		if o.Base != nil && f.Rule != report.SlowRule {
			continue
		}
		all = append(all, finding{f.Text, f.Remedy})
	}
	return all
}

// newHeader returns the header of a page of p, without its samples and findings. Empty tables are
// empty arrays rather than null.
func newHeader(p *profile.Profile, o Options, t *tree) header {
	m, drawn := p.Meta, t.drawn(p)
	h := header{
		Title: o.title(p),
		Meta: meta{
			Command: plainText(m.Command), Scope: plainText(m.Scope),
			Host: plainText(m.Host), Kernel: plainText(m.Kernel), Arch: plainText(m.Arch), CPUs: m.CPUs,
			Seconds: m.Duration.Seconds(),
			Event:   plainText(m.Event), Frequency: m.Frequency, Period: m.Period,
			Converted: m.Converted,
		},
		Losses:     append([]describe.Loss{}, describe.Of(drawn)...),
		Lost:       lost(drawn),
		Slowest:    slowestOf(p),
		Run:        json.RawMessage(runinfo.Text(p)),
		Builds:     builds(p),
		Mixed:      describe.IsMixed(p.ValueTypes),
		Value:      o.Value,
		Native:     o.Native,
		Inverted:   o.Inverted,
		ShortNames: o.ShortNames,
		Compared:   o.Base != nil,
		Listings:   o.Listings,
		Values:     []valueType{},
		Kinds:      kindNames[:],
		Tasks:      tasks{Comm: []int{}, PID: []int{}, TID: []int{}},
		Nodes:      len(t.boxes),
		Scales:     []int64{},
		Idle:       []int{},
	}
	values := make([]int, len(p.ValueTypes))
	for i := range values {
		values[i] = i
	}
	if text := describe.Negative(p, values...); text != "" {
		h.Losses = append(h.Losses, describe.Loss{Cause: "negative", What: text, Effect: describe.NegativeEffect})
		h.Lost = append(h.Lost, text)
	}
	if o.Base != nil {
		h.Base = &base{Seconds: o.Base.Meta.Duration.Seconds()}
		if o.Sides != nil {
			h.Base.Name, h.Base.Other = o.Sides.Base, o.Sides.New
		}
	}
	if !m.Start.IsZero() {
		h.Meta.Start = m.Start.UTC().Format(time.RFC3339)
	}
	if noun := describe.NounOfProfile(p).Many(); noun != "samples" {
		h.Noun = noun
	}
	for _, v := range p.ValueTypes {
		h.Values = append(h.Values, valueType{plainText(v.Type), plainText(v.Unit)})
	}
	strs := stringTable{ids: map[string]int{}}
	strs.index("")
	for _, f := range t.frames {
		h.Frames.Name = append(h.Frames.Name, strs.index(f.name))
		h.Frames.Module = append(h.Frames.Module, strs.index(f.module))
		h.Frames.File = append(h.Frames.File, strs.index(f.file))
		h.Frames.Line = append(h.Frames.Line, f.line)
		h.Frames.Kind = append(h.Frames.Kind, int(f.kind))
		inlined := 0
		if f.inlined {
			inlined = 1
		}
		h.Frames.Inlined = append(h.Frames.Inlined, inlined)
		h.Frames.Code = append(h.Frames.Code, int(f.code))
		h.Frames.Short = append(h.Frames.Short, strs.index(f.shown(true)))
		h.Frames.Own = append(h.Frames.Own, strs.index(f.own()))
		h.Frames.Address = append(h.Frames.Address, strconv.FormatUint(f.address, 16))
	}
	grouped := slices.ContainsFunc(t.tasks, func(t task) bool { return t.group != "" })
	for _, task := range t.tasks {
		h.Tasks.Comm = append(h.Tasks.Comm, strs.index(plain.Terminal(task.comm)))
		h.Tasks.PID = append(h.Tasks.PID, task.pid)
		h.Tasks.TID = append(h.Tasks.TID, task.tid)
		if grouped {
			h.Tasks.Group = append(h.Tasks.Group, strs.index(plainText(task.group)))
		}
	}
	h.Strings = strs.list
	return h
}

// builds returns the build IDs of modules. A module with several has none, since the
// boxes of its builds are merged.
func builds(p *profile.Profile) map[string]string {
	ids := map[string]string{}
	for _, m := range p.Mappings[1:] {
		name := plainText(m.Path)
		if id, ok := ids[name]; ok && id != m.BuildID {
			ids[name] = ""
			continue
		}
		ids[name] = plainText(m.BuildID)
	}
	maps.DeleteFunc(ids, func(_, id string) bool { return id == "" })
	return ids
}

// lost returns the losses of a drawn profile in brief.
func lost(p *profile.Profile) []string {
	losses := p.Losses
	if !describe.LackOf(p).IsBiased() {
		losses[profile.LossSkipped] = 0
	}
	brief := append([]string{}, describe.Brief(losses, describe.NounOfProfile(p))...)
	if n := len(p.Meta.Stripped.Files) + p.Meta.Stripped.Omitted; n > 0 {
		brief = append(brief, plain.Count(uint64(n), "file")+" without symbols")
	}
	return brief
}

// stringTable interns strings.
type stringTable struct {
	list []string
	ids  map[string]int
}

func (t *stringTable) index(s string) int {
	id, ok := t.ids[s]
	if !ok {
		id = len(t.list)
		t.list = append(t.list, s)
		t.ids[s] = id
	}
	return id
}

// sortedTasks returns the tasks of profiles in an order independent of sampling order.
func sortedTasks(profiles []*profile.Profile) []task {
	var all []task
	for _, p := range profiles {
		all = append(all, tasksOf(p)...)
	}
	slices.SortFunc(all, compareTasks)
	return slices.Compact(all)
}

// task is a task with its group, "" in profiles without groups.
type task struct {
	comm     string
	pid, tid int
	group    string
}

// tasksOf returns the tasks of a profile.
func tasksOf(p *profile.Profile) []task {
	list, groups := make([]task, len(p.Tasks)), label.Groups(p)
	for i, t := range p.Tasks {
		list[i] = task{t.Comm, t.PID, t.TID, groups[i]}
	}
	return list
}

func compareTasks(a, b task) int {
	return cmp.Or(cmp.Compare(a.comm, b.comm), cmp.Compare(a.pid, b.pid), cmp.Compare(a.tid, b.tid), cmp.Compare(a.group, b.group))
}
