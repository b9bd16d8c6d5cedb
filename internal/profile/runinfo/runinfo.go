// Package runinfo is the description of a run that fulgur adds to the profiles it writes,
// in every format that has room for it: where and how it was measured, what was lost, and
// which files lack symbols. It is JSON, so that [Parse] restores what the formats
// themselves cannot express.
package runinfo

import (
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
	MaxText  = 1 << 20
	maxFiles = 100
)

// Prefix precedes a description in formats with free text, such as pprof's comments.
const Prefix = "fulgur.run: "

// info is the JSON form of a description. Its names must not change.
type info struct {
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
		Command: m.Command, Scope: m.Scope, Event: m.Event, Frequency: m.Frequency, Requested: m.RequestedFrequency, Reduction: m.Reduction, Unnamed: m.NamesOmitted,
		Period: m.Period, PerCPU: m.PerCPU, Grouping: m.Grouping.String(), Label: m.GroupLabel,
		Duration: int64(m.Duration), Host: m.Host, Kernel: m.Kernel, Arch: m.Arch, CPUs: m.CPUs, CPUName: m.CPUName, Memory: m.Memory,
		Losses: map[string]uint64{}, Omitted: m.Stripped.Omitted,
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
		Command: i.Command, Scope: i.Scope, Event: i.Event, Frequency: i.Frequency, RequestedFrequency: i.Requested, Reduction: i.Reduction, NamesOmitted: i.Unnamed,
		Period: i.Period, PerCPU: i.PerCPU, Grouping: profile.ParseGrouping(i.Grouping), GroupLabel: i.Label,
		Duration: time.Duration(max(i.Duration, 0)), Host: i.Host, Kernel: i.Kernel, Arch: i.Arch,
		CPUs: max(i.CPUs, 0), CPUName: i.CPUName, Memory: i.Memory,
	}
	if i.Start != 0 {
		m.Start = time.Unix(0, i.Start)
	}
	for _, f := range i.Stripped {
		m.Stripped.Files = append(m.Stripped.Files, profile.Stripped(f))
	}
	m.Stripped.Omitted = max(i.Omitted, 0)
	for cause := range l {
		l[cause] = i.Losses[profile.Loss(cause).String()]
	}
	return m, l, nil
}

// Restore gives p the metadata and the losses of a description, in addition to the losses
// of p itself. The value to show stays p's. It returns [Parse]'s errors, with p unchanged.
func Restore(p *profile.Profile, text string) error {
	m, l, err := Parse(text)
	if err != nil {
		return err
	}
	m.Value = p.Meta.Value
	p.Meta, p.Losses = m, p.Losses.Plus(l)
	return nil
}
