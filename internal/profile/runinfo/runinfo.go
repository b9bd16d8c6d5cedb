// Package runinfo is the description of a run that fulgur adds to the profiles it writes,
// in every format that has room for it: where and how it was measured, what was lost, and
// which files lack symbols. It is JSON, so that [Parse] restores what the formats
// themselves cannot express.
package runinfo

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf16"

	"fulgur/internal/profile"
)

// Limits of a description, which is untrusted.
const (
	// MaxText is the maximum length of a description, in bytes.
	MaxText     = 1 << 20
	maxFiles    = 100
	maxTriggers = 100
)

// Prefix precedes a description in formats with free text, such as pprof's comments.
const Prefix = "fulgur.run: "

// info is the JSON form of a description. Its names must not change.
type info struct {
	Converted bool              `json:"converted,omitempty"`
	Command   string            `json:"command,omitempty"`
	Scope     string            `json:"scope,omitempty"`
	Event     string            `json:"event,omitempty"`
	Frequency uint64            `json:"frequency,omitempty"`
	Requested uint64            `json:"requested_frequency,omitempty"`
	Reduction uint64            `json:"reduction,omitempty"`
	Unnamed   bool              `json:"names_omitted,omitempty"`
	Period    uint64            `json:"period,omitempty"`
	PerCPU    bool              `json:"per_cpu,omitempty"`
	Grouping  string            `json:"grouping,omitempty"` // [profile.Grouping.String]
	Label     string            `json:"group_label,omitempty"`
	Start     int64             `json:"start_ns,omitempty"` // since 1970
	Duration  int64             `json:"duration_ns,omitempty"`
	Host      string            `json:"host,omitempty"`
	Kernel    string            `json:"kernel,omitempty"`
	Arch      string            `json:"arch,omitempty"`
	CPUs      int               `json:"cpus,omitempty"`
	CPUName   string            `json:"cpu_name,omitempty"`
	Memory    uint64            `json:"memory,omitempty"`
	Losses    map[string]uint64 `json:"losses,omitempty"` // by [profile.Loss.String]
	Stripped  []stripped        `json:"stripped,omitempty"`
	Omitted   int               `json:"stripped_omitted,omitempty"`
	Left      []string          `json:"unmeasured,omitempty"`
	Slowest   []slowest         `json:"slowest,omitempty"`
	Triggers  []trigger         `json:"triggers,omitempty"`
	Every     *interval         `json:"every,omitempty"`
	Value     string            `json:"value,omitempty"`
	Guessed   bool              `json:"value_guessed,omitempty"`
	Comments  []string          `json:"comments,omitempty"`
	DocURL    string            `json:"doc_url,omitempty"`
	Drop      string            `json:"drop_frames,omitempty"`
	Keep      string            `json:"keep_frames,omitempty"`
}

// trigger is the JSON form of [profile.Trigger].
type trigger struct {
	After int64  `json:"after_ns"` // since the start
	Name  string `json:"name"`
	Value string `json:"value,omitempty"`
}

// interval is the JSON form of [profile.Interval].
type interval struct {
	Type   string `json:"type"`
	Unit   string `json:"unit"`
	Amount int64  `json:"amount"`
}

// slowest is the JSON form of [profile.SlowInterval].
type slowest struct {
	Begin    int64       `json:"begin_ns"` // since 1970
	Length   int64       `json:"length_ns"`
	Running  int64       `json:"running_ns"`
	Runnable int64       `json:"runnable_ns"`
	Slow     bool        `json:"slow,omitempty"`
	PID      int         `json:"pid,omitempty"`
	TID      int         `json:"tid,omitempty"`
	Comm     string      `json:"name,omitempty"`
	Fields   [][2]string `json:"fields,omitempty"` // names and values
}

// slowestOf returns the JSON form of the slowest intervals.
func slowestOf(intervals []profile.SlowInterval) (all []slowest) {
	for _, i := range intervals {
		s := slowest{
			Begin: i.Begin.UnixNano(), Length: int64(i.Length), Running: int64(i.Running), Runnable: int64(i.Runnable),
			Slow: i.Slow, PID: i.PID, TID: i.TID, Comm: i.Comm,
		}
		for _, f := range i.Fields {
			s.Fields = append(s.Fields, [2]string{f.Key, f.Value})
		}
		all = append(all, s)
	}
	return all
}

// slowestFrom returns the slowest intervals from their JSON form.
func slowestFrom(all []slowest) (intervals []profile.SlowInterval) {
	for _, s := range all {
		length := max(s.Length, 0)
		running := min(max(s.Running, 0), length)
		i := profile.SlowInterval{
			Begin: time.Unix(0, s.Begin), Length: time.Duration(length), Running: time.Duration(running),
			Runnable: time.Duration(min(max(s.Runnable, 0), length-running)),
			Slow:     s.Slow, PID: max(s.PID, 0), TID: max(s.TID, 0), Comm: s.Comm,
		}
		for _, f := range s.Fields {
			i.Fields = append(i.Fields, profile.Label{Key: f[0], Value: f[1]})
		}
		intervals = append(intervals, i)
	}
	return profile.Slowest(intervals)
}

// stripped is the JSON form of [profile.Stripped].
type stripped struct {
	Path    string `json:"path"`
	BuildID string `json:"build_id,omitempty"`
	Exports bool   `json:"exports,omitempty"`
	Samples uint64 `json:"samples"`
	Remedy  string `json:"remedy,omitempty"`
}

// Text returns the description of p's run as one line.
func Text(p *profile.Profile) string {
	m := p.Meta
	i := info{
		Converted: m.Converted,
		Command:   m.Command, Scope: m.Scope, Event: m.Event, Frequency: m.Frequency, Requested: m.RequestedFrequency, Reduction: m.Reduction, Unnamed: m.NamesOmitted,
		Period: m.Period, PerCPU: m.PerCPU, Grouping: m.Grouping.String(), Label: m.GroupLabel,
		Duration: int64(m.Duration), Host: m.Host, Kernel: m.Kernel, Arch: m.Arch, CPUs: m.CPUs, CPUName: m.CPUName, Memory: m.Memory,
		Losses: map[string]uint64{}, Omitted: m.Stripped.Omitted, Left: m.Unmeasured, Slowest: slowestOf(m.Slowest),
		Comments: m.Comments, DocURL: m.DocURL, Drop: m.DropFrames, Keep: m.KeepFrames,
	}
	i.Value, i.Guessed = m.Value, m.ValueGuessed
	if m.Every != (profile.Interval{}) {
		i.Every = &interval{m.Every.Of.Type, m.Every.Of.Unit, m.Every.Amount}
	}
	for _, t := range m.Triggers[:min(len(m.Triggers), maxTriggers)] {
		i.Triggers = append(i.Triggers, trigger{int64(t.After), t.Name, t.Value})
	}
	if !m.Start.IsZero() {
		i.Start = m.Start.UnixNano()
	}
	for cause, n := range p.Losses {
		if n > 0 {
			i.Losses[profile.Loss(cause).String()] = n
		}
	}
	for _, f := range m.Stripped.Files {
		i.Stripped = append(i.Stripped, stripped(f))
	}
	text, _ := json.Marshal(i) // cannot fail for strings and numbers
	return ascii(string(text))
}

// ascii escapes the characters of JSON text that are not ASCII. They occur in strings only,
// and terminals may obey some of them.
func ascii(text string) string {
	var b strings.Builder
	for _, r := range text {
		switch {
		case ' ' <= r && r <= '~':
			b.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// Parse parses a description. It returns an error if it is malformed or too long.
func Parse(text string) (m profile.Meta, l profile.Losses, err error) {
	if len(text) > MaxText {
		return m, l, fmt.Errorf("description of the run: more than %d bytes", MaxText)
	}
	var i info
	if err := json.Unmarshal([]byte(text), &i); err != nil {
		return m, l, fmt.Errorf("description of the run: %w", err)
	}
	if len(i.Stripped) > maxFiles {
		return m, l, fmt.Errorf("description of the run: %d files without symbols, the maximum is %d", len(i.Stripped), maxFiles)
	}
	m = profile.Meta{
		Converted: i.Converted,
		Command:   i.Command, Scope: i.Scope, Event: i.Event, Frequency: i.Frequency, RequestedFrequency: i.Requested, Reduction: i.Reduction, NamesOmitted: i.Unnamed,
		Period: i.Period, PerCPU: i.PerCPU, Grouping: profile.ParseGrouping(i.Grouping), GroupLabel: i.Label,
		Duration: time.Duration(max(i.Duration, 0)), Host: i.Host, Kernel: i.Kernel, Arch: i.Arch,
		CPUs: max(i.CPUs, 0), CPUName: i.CPUName, Memory: i.Memory,
	}
	m.Value, m.ValueGuessed = profile.ShortName(i.Value), i.Guessed
	m.Comments, m.DocURL = profile.ShortComments(i.Comments), profile.ShortName(i.DocURL)
	m.DropFrames, m.KeepFrames = profile.ShortName(i.Drop), profile.ShortName(i.Keep)
	if i.Every != nil {
		m.Every = profile.Interval{Of: profile.ValueType{Type: profile.ShortName(i.Every.Type), Unit: profile.ShortName(i.Every.Unit)}, Amount: i.Every.Amount}
	}
	if i.Start != 0 {
		m.Start = time.Unix(0, i.Start)
	}
	for _, t := range i.Triggers[:min(len(i.Triggers), maxTriggers)] {
		m.Triggers = append(m.Triggers, profile.Trigger{
			After: time.Duration(max(t.After, 0)), Name: profile.ShortName(t.Name), Value: profile.ShortName(t.Value),
		})
	}
	for _, f := range i.Stripped {
		m.Stripped.Files = append(m.Stripped.Files, profile.Stripped(f))
	}
	m.Stripped.Omitted = max(i.Omitted, 0)
	m.Unmeasured, m.Slowest = profile.ShortComments(i.Left), slowestFrom(i.Slowest)
	for cause := range l {
		l[cause] = i.Losses[profile.Loss(cause).String()]
	}
	return m, l, nil
}

// Native returns p without the metadata for which pprof's format has fields, which its descriptions
// therefore lack.
func Native(p *profile.Profile) *profile.Profile {
	native := *p
	m := &native.Meta
	m.Every, m.Comments, m.DocURL, m.DropFrames, m.KeepFrames = profile.Interval{}, nil, "", "", ""
	m.Value, m.ValueGuessed = "", false
	if every := p.Meta.Every; p.Meta.Converted { // otherwise fulgur knows more
		m.Start, m.Duration = time.Time{}, 0
		if m.Event == every.Of.Type {
			m.Event = ""
		}
		if m.Frequency == every.Frequency() {
			m.Frequency = 0
		}
	}
	return &native
}

// IsEmpty reports whether a description of p would say nothing.
func IsEmpty(p *profile.Profile) bool {
	q := *p
	q.Meta.Converted = false
	return Text(&q) == "{}"
}

// Restore gives p the metadata and the losses of a description, in addition to the losses
// of p itself. The value to show stays p's, and so does what the description lacks because the
// format has fields for it. It returns [Parse]'s errors, with p unchanged.
func Restore(p *profile.Profile, text string) error {
	m, l, err := Parse(text)
	if err != nil {
		return err
	}
	was := p.Meta
	if was.Value != "" || was.ValueGuessed {
		m.Value, m.ValueGuessed = was.Value, was.ValueGuessed
	}
	if m.Every == (profile.Interval{}) {
		m.Every = was.Every
	}
	if m.Comments == nil {
		m.Comments = was.Comments
	}
	m.DocURL, m.DropFrames, m.KeepFrames = cmp.Or(m.DocURL, was.DocURL), cmp.Or(m.DropFrames, was.DropFrames), cmp.Or(m.KeepFrames, was.KeepFrames)
	p.Meta, p.Losses = m, p.Losses.Plus(l)
	return nil
}
