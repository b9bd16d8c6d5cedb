package doctor

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"

	"fulgur/internal/message/plain"
)

// Widths of columns.
const (
	stateWidth = 6
	titleWidth = 26
	nameWidth  = 34 // of a command
)

// unknown begins the value of a check that could not look.
const unknown = "unknown"

// Colors of a terminal, as SGR parameters of ECMA-48.
const (
	green  = "32"
	yellow = "33"
	red    = "31"
	bold   = "1"
)

// text writes a report for people.
type text struct {
	*bufio.Writer
	checks []Result
	color  bool
	width  int // in characters
}

// maxWidth is the maximum width of the text. Longer lines are hard to read.
const maxWidth = 100

// WriteText writes r as text, colored if color is set. columns is the width of the terminal, 0 if
// there is none. Shell commands are on lines of their own, and are not wrapped.
func (r *Report) WriteText(w io.Writer, color bool, columns int) error {
	t := text{bufio.NewWriter(w), r.Checks, color, maxWidth}
	if columns > 0 {
		t.width = min(columns, maxWidth)
	}
	fmt.Fprintf(t, "fulgur %s on Linux %s %s\n", r.Version, r.Release, r.Machine)
	group := ""
	for _, result := range r.Checks {
		if result.Group != group {
			group = result.Group
			t.heading(group)
		}
		t.result(result)
	}
	t.heading("Commands")
	for _, v := range r.Commands {
		t.verdict(v)
	}
	t.remedies()
	return t.Flush()
}

// titles returns the titles of the checks with the given IDs.
func (t *text) titles(ids []string) []string {
	var titles []string
	for _, c := range t.checks {
		if slices.Contains(ids, c.ID) {
			titles = append(titles, c.Title)
		}
	}
	return titles
}

// in returns s in a color.
func (t *text) in(color, s string) string {
	if !t.color {
		return s
	}
	return "\x1b[" + color + "m" + s + "\x1b[m"
}

// heading writes a group's heading.
func (t *text) heading(s string) { fmt.Fprintf(t, "\n%s\n", t.in(bold, s)) }

// result writes a check's line, and its problem below.
func (t *text) result(r Result) {
	state, color := "ok", green
	if strings.HasPrefix(r.Value, unknown) {
		state, color = "?", yellow
	}
	if p := r.Problem; p != nil {
		switch {
		case len(p.Stops) > 0:
			state, color = "bad", red
		case len(p.Costs) > 0:
			state, color = "loss", yellow
		default:
			state, color = "note", yellow
		}
	}
	value := r.Value
	if p := r.Problem; p != nil && p.FollowsFrom != nil {
		value += ", see " + strings.Join(t.titles(p.FollowsFrom), ", ")
	}
	t.line(state, color, r.Title, value)
	if p := r.Problem; p != nil && p.about() != "" {
		t.wrapped(p.about())
	}
}

// about returns what the check's line does not show: the problem and the loss. It
// returns "" if the problem follows from another one, which describes it.
func (p *Problem) about() string {
	switch {
	case p.FollowsFrom != nil:
		return ""
	case p.plain:
		return p.Lost
	case p.Lost == "":
		return p.What
	}
	return p.What + "; " + p.Lost
}

// line writes a line of three columns.
func (t *text) line(state, color, title, value string) {
	begin := fmt.Sprintf("  %s%-*s ", t.state(color, state, stateWidth), titleWidth, title)
	t.hanging(begin, 2+stateWidth+titleWidth+1, value)
}

// wrapped writes a sentence below the second column.
func (t *text) wrapped(s string) { t.hanging(strings.Repeat(" ", 2+stateWidth+2), 2+stateWidth+2, s) }

// hanging writes line followed by s, wrapped with continuation lines indented to a
// column.
func (t *text) hanging(line string, column int, s string) {
	used := column
	for word := range strings.FieldsSeq(s) {
		word = plain.Terminal(word)
		if used+len(word) > t.width && used > column {
			fmt.Fprintln(t, strings.TrimRight(line, " "))
			line, used = strings.Repeat(" ", column), column
		}
		line += word + " "
		used += len(word) + 1
	}
	fmt.Fprintln(t, strings.TrimRight(line, " "))
}

// verdict writes how well a command works, and the checks that limit it.
func (t *text) verdict(v Verdict) {
	state, color := string(v.Works), green
	switch v.Works {
	case Partly:
		color = yellow
	case No:
		color = red
	}
	reason := ""
	if len(v.Because) > 0 {
		reason = map[Works]string{Partly: "with losses: ", No: "stopped by: "}[v.Works] + strings.Join(t.titles(v.Because), ", ")
	}
	begin := fmt.Sprintf("  %s%-*s", t.state(color, state, stateWidth+2), nameWidth+2, "fulgur "+v.Command)
	t.hanging(begin, 2+stateWidth+2+nameWidth+2, reason)
}

// state returns a word in a color, padded to a width.
func (t *text) state(color, word string, width int) string {
	return t.in(color, word) + strings.Repeat(" ", width-len(word))
}

// remedies writes each remedy once, with the checks that it is for. It leaves out
// harmless problems.
func (t *text) remedies() {
	type cure struct {
		Remedy
		titles []string
	}
	var cures []cure
	for _, r := range t.checks {
		if r.Problem == nil || r.Problem.Remedy == (Remedy{}) || r.Problem.harmless() {
			continue
		}
		i := slices.IndexFunc(cures, func(c cure) bool { return c.Remedy == r.Problem.Remedy })
		if i < 0 {
			i = len(cures)
			cures = append(cures, cure{Remedy: r.Problem.Remedy})
		}
		cures[i].titles = append(cures[i].titles, r.Title)
	}
	if len(cures) == 0 {
		return
	}
	t.heading("To do")
	for _, c := range cures {
		fmt.Fprintf(t, "  %s\n", strings.Join(c.titles, ", "))
		if c.Do != "" {
			t.wrapped(c.Do)
		}
		if c.Paste != "" {
			fmt.Fprintf(t, "            %s\n", t.in(bold, plain.Terminal(c.Paste)))
		}
	}
}
