// Package text writes profiles for people: all stacks with their counts, and a short
// summary.
package text

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"fulgur/internal/message/plain"
	"fulgur/internal/message/shortname"
	"fulgur/internal/message/usage"
	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/label"
	"fulgur/internal/unwind/stackend"
)

// Options configures the output. The zero value is the format of bcc's `profile`.
type Options struct {
	// Annotate adds "_[k]" to the names of kernel frames and "_[i]" to those
	// of other frames that were inlined (-a).
	Annotate bool
	// Delimited puts a line "--" between kernel and user frames, in stacks
	// that have both (-d).
	Delimited bool
	// Value is the index of the value to print in [profile.Profile.ValueTypes].
	Value int
	// Screen limits the output.
	Screen Screen
}

// Screen limits text on a terminal. The zero value is no limit.
type Screen struct {
	// Stacks is the maximum number of stacks, 0 for all. Only those with the largest values are
	// written, since thousands would hide them, and a last line counts the others.
	Stacks int
	// Columns is the width of lines in characters, 0 for any: frames leave out the source, and
	// then a part of the name.
	Columns int
}

// Write writes the stacks of p to w in the format of `profile` of the BPF Compiler
// Collection (github.com/iovisor/bcc, tools/profile.py and tools/profile_example.txt):
// the frames with the leaf first, a dash with the task's name and process ID, and the
// value. Stacks whose value is 0 are left out. The largest value comes last, where it is
// visible when the output scrolls. Values that are not counts have their unit. The file and line
// of a frame follow its name, if known, and "(inlined)" marks an inlined function, both as in
// perf: "parse http.cc:52 (inlined)".
//
// A line in brackets after the root marks a user stack that was truncated, so that its root
// is missing. The thread, the CPU and the group follow the process ID in profiles by thread, CPU
// and group.
// Control characters in names are escaped; see [plain.Terminal].
func Write(w io.Writer, p *profile.Profile, o Options) error {
	if o.Value < 0 || o.Value >= len(p.ValueTypes) {
		return fmt.Errorf("write stacks as text: no value %d in a profile of %d", o.Value, len(p.ValueTypes))
	}
	samples := slices.DeleteFunc(slices.Clone(p.Samples), func(s profile.Sample) bool { return s.Values[o.Value] == 0 })
	slices.SortStableFunc(samples, func(a, b profile.Sample) int {
		return cmp.Compare(a.Values[o.Value], b.Values[o.Value])
	})
	omitted := samples[:0:0]
	if n := len(samples) - o.Screen.Stacks; o.Screen.Stacks > 0 && n > 0 {
		omitted, samples = samples[:n], samples[n:]
	}
	names := frameNames(p, o)
	out := bufio.NewWriter(w)
	unit, amount := profile.PrintedUnit(p.ValueTypes[o.Value].Unit)
	if unit = plain.Terminal(unit); unit == "count" {
		unit = ""
	}
	var frames []profile.FrameID
	var lines []byte
	for _, s := range samples {
		frames, lines = p.AppendFrames(frames[:0], s.Stack), lines[:0]
		for i, f := range frames {
			if o.Delimited && i > 0 && p.Frames[frames[i-1]].Kind == profile.KindKernel && p.Frames[f].Kind != profile.KindKernel {
				lines = append(lines, "    --\n"...)
			}
			lines = append(lines, frameIndent...)
			lines = append(lines, names[f]...)
			lines = append(lines, '\n')
		}
		if isCut(p, s.End, frames) {
			lines = fmt.Appendf(lines, "    [truncated: %s]\n", s.End)
		}
		lines = fmt.Appendf(lines, "    %-16s %s (%s)\n        %s\n\n",
			"-", plain.Terminal(p.Tasks[s.Task].Comm), place(p, s),
			strings.TrimRight(fmt.Sprint(profile.Rounded(s.Values[o.Value], amount), " ", unit), " "))
		if _, err := out.Write(lines); err != nil {
			return fmt.Errorf("write stacks as text: %w", err)
		}
	}
	if _, err := out.WriteString(omittedLine(p, omitted, o.Value)); err != nil {
		return fmt.Errorf("write stacks as text: %w", err)
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write stacks as text: %w", err)
	}
	return nil
}

// frameIndent is in front of the names of frames.
const frameIndent = "    "

// omittedLine counts stacks that are not shown, and says how to get them. It is empty if there
// are none.
func omittedLine(p *profile.Profile, omitted []profile.Sample, value int) string {
	if len(omitted) == 0 {
		return ""
	}
	sum := int64(0)
	for _, s := range omitted {
		sum += s.Values[value]
	}
	return fmt.Sprintf("%s (%.1f %%) not shown: %s FILE writes all\n\n",
		plain.Count(uint64(len(omitted)), "smaller stack"), percent(sum, p.Total(value)), usage.Output)
}

// frameNames returns the displayed name of each frame.
func frameNames(p *profile.Profile, o Options) []string {
	names := make([]string, len(p.Frames))
	for i := 1; i < len(p.Frames); i++ {
		f := p.Frames[i]
		name := plain.Terminal(p.FrameName(profile.FrameID(i)))
		if o.Annotate {
			name += label.Suffix(f)
		}
		source, inlined := "", ""
		if file := p.Functions[f.Function].File; file != "" && f.Line != 0 {
			source = fmt.Sprintf(" %s:%d", plain.Terminal(path.Base(file)), f.Line)
		}
		if f.Inlined {
			inlined = " (inlined)"
		}
		names[i] = name + source + inlined
		if width := o.Screen.Columns - len(frameIndent); o.Screen.Columns > 0 && utf8.RuneCountInString(names[i]) > width {
			names[i] = shortname.Fit(name, max(1, width-len(inlined))) + inlined
		}
	}
	return names
}

// isCut reports whether to mention that a user stack with the given end may lack its
// root. It is not mentioned if a marker among its frames, given leaf first, already says
// so.
func isCut(p *profile.Profile, e stackend.End, frames []profile.FrameID) bool {
	marked := len(frames) > 0 && p.Frames[frames[len(frames)-1]].Kind == profile.KindMarker
	return e.Cut() && (!marked || e == stackend.NotReady)
}

// place identifies the task of s, its CPU unless that is -1, and its group if p has groups:
// "42, thread 43, CPU 1, web".
func place(p *profile.Profile, s profile.Sample) string {
	t := p.Tasks[s.Task]
	var b strings.Builder
	fmt.Fprintf(&b, "%d", t.PID)
	if t.TID != 0 {
		fmt.Fprintf(&b, ", thread %d", t.TID)
	}
	if s.CPU >= 0 {
		fmt.Fprintf(&b, ", CPU %d", s.CPU)
	}
	if group := p.Group(s.Task); group != "" {
		fmt.Fprintf(&b, ", %s", plain.Terminal(group))
	}
	return b.String()
}
