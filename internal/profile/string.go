package profile

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Limits of [Profile.String].
const (
	shownSamples = 20
	shownFrames  = 12 // of a stack, the innermost
	shownText    = 60 // of a name, in bytes
)

// String describes p for debuggers and failing tests: its first samples, the sizes of its tables and
// its losses, in a few kilobytes whatever p contains. p need not be valid.
func (p *Profile) String() string {
	if p == nil {
		return "no profile"
	}
	var b strings.Builder
	b.WriteString("values:")
	for i, v := range p.ValueTypes[:min(len(p.ValueTypes), shownSamples)] {
		fmt.Fprintf(&b, " %s/%s", shown(v.Type), shown(v.Unit))
		if i == p.Weight() {
			b.WriteString(" (shown first)")
		}
	}
	m := &p.Meta
	fmt.Fprintf(&b, "\nrun: %s, event %s", shown(m.Command), shown(m.Event))
	if m.Frequency > 0 {
		fmt.Fprintf(&b, ", %d Hz", m.Frequency)
	}
	if !m.Start.IsZero() {
		fmt.Fprintf(&b, ", from %s", m.Start.UTC().Format(time.RFC3339Nano))
	}
	fmt.Fprintf(&b, ", %v\ntables: %d mappings, %d functions, %d frames, %d stacks, %d tasks, %d owners, %d sets of labels\n",
		m.Duration, len(p.Mappings), len(p.Functions), len(p.Frames), len(p.Stacks), len(p.Tasks), len(p.Owners), len(p.Labels))
	for l, n := range p.Losses {
		if n > 0 {
			fmt.Fprintf(&b, "lost: %d %s\n", n, Loss(l))
		}
	}
	fmt.Fprintf(&b, "samples: %d\n", len(p.Samples))
	for _, s := range p.Samples[:min(len(p.Samples), shownSamples)] {
		p.describe(&b, s)
	}
	if more := len(p.Samples) - shownSamples; more > 0 {
		fmt.Fprintf(&b, "  and %d more\n", more)
	}
	return b.String()
}

// describe adds a line on a sample, whose indexes may be out of range.
func (p *Profile) describe(b *strings.Builder, s Sample) {
	fmt.Fprintf(b, "  %d", s.Values[:min(len(s.Values), shownSamples)])
	if int(s.Task) < len(p.Tasks) {
		t := p.Tasks[s.Task]
		fmt.Fprintf(b, " %s %d/%d", shown(t.Comm), t.PID, t.TID)
		labels := p.LabelsAt(t.Labels)
		for _, l := range labels[:min(len(labels), shownSamples)] {
			fmt.Fprintf(b, " %s=%s", shown(l.Key), shown(l.Value))
		}
	} else {
		fmt.Fprintf(b, " task %d?", s.Task)
	}
	if s.CPU >= 0 {
		fmt.Fprintf(b, " CPU %d", s.CPU)
	}
	fmt.Fprintf(b, " (%v):", s.End)
	var names []string
	at := s.Stack
	for ; at != 0 && len(names) < shownFrames; at = p.Stacks[at].Parent {
		if int(at) >= len(p.Stacks) {
			names = append(names, fmt.Sprintf("stack %d?", at))
			at = 0
			break
		}
		names = append(names, p.frameText(p.Stacks[at].Frame))
	}
	if at != 0 {
		names = append(names, "…")
	}
	slices.Reverse(names)
	fmt.Fprintf(b, " %s\n", strings.Join(names, ";"))
}

// frameText returns a frame's name, whose indexes may be out of range.
func (p *Profile) frameText(id FrameID) string {
	if int(id) >= len(p.Frames) {
		return fmt.Sprintf("frame %d?", id)
	}
	f := p.Frames[id]
	if int(f.Function) >= len(p.Functions) || int(f.Mapping) >= len(p.Mappings) {
		return fmt.Sprintf("frame %d of function %d and mapping %d?", id, f.Function, f.Mapping)
	}
	return shown(p.FrameName(id))
}

// shown returns the beginning of an untrusted text as it can be printed.
func shown(text string) string {
	if len(text) > shownText {
		text = text[:shownText] + "…"
	}
	if text != "" {
		text = strings.Trim(strconv.Quote(text), `"`)
	}
	return text
}
