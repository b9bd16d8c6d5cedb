package compare

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
	"unicode/utf8"

	"fulgur/internal/message/plain"
	"fulgur/internal/message/shortname"
)

// WriteOptions configure a table.
type WriteOptions struct {
	// Functions is the maximum number of functions; 0 means all.
	Functions int
	// All also lists the functions within noise, and those with too few samples.
	All bool
	// Columns is the width of the terminal in characters, 0 if there is none. On a narrow one,
	// the table has no total values, and names are cut to fit.
	Columns int
}

// WriteJSON writes c as JSON.
func (c *Comparison) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(c)
}

// WriteText writes c as text.
func (c *Comparison) WriteText(w io.Writer, o WriteOptions) error {
	var out strings.Builder
	sentence := func(format string, args ...any) {
		text := fmt.Sprintf(format, args...) + "\n"
		if o.Columns > 0 {
			text = plain.Wrap(text, o.Columns)
		}
		out.WriteString(text)
	}
	c.describe(sentence)
	if rows, omitted := c.rows(o); len(rows) > 0 {
		out.WriteByte('\n')
		c.writeRows(&out, rows, o.Columns)
		if omitted > 0 {
			sentence("… and %s", plain.Count(uint64(omitted), "more function"))
		}
	}
	end := out.Len()
	out.WriteByte('\n')
	c.conclude(sentence, func(name string) string { return name })
	text := out.String()
	if len(text) == end+1 {
		text = text[:end] // nothing follows
	}
	_, err := io.WriteString(w, text)
	return err
}

// WriteMarkdown writes c as Markdown. Names are code, so that none of them is markup, a link
// or a mention.
func (c *Comparison) WriteMarkdown(w io.Writer, o WriteOptions) error {
	var out strings.Builder
	item := func(format string, args ...any) { fmt.Fprintf(&out, "- "+format+"\n", args...) }
	c.describe(item)
	if rows, omitted := c.rows(o); len(rows) > 0 {
		s := c.scale(rows)
		fmt.Fprintf(&out, "\n| self: base | new | change | total: base | new | change | function | module |\n|---:|---:|---:|---:|---:|---:|---|---|\n")
		for _, f := range rows {
			for _, v := range []Change{f.Self, f.Total} {
				fmt.Fprintf(&out, "| %s | %s | %s ", s.text(v.Base), s.text(v.New), strings.TrimSpace(s.change(v)+" "+s.reach(v)))
			}
			fmt.Fprintf(&out, "| %s | %s |\n", plain.Code(f.Name, true), plain.Code(f.Module, true))
		}
		fmt.Fprintf(&out, "\nNumbers are in %s.\n", s.unit)
		if omitted > 0 {
			fmt.Fprintf(&out, "%s more.\n", plain.Count(uint64(omitted), "function"))
		}
	}
	out.WriteByte('\n')
	c.conclude(item, func(name string) string { return plain.Code(name, false) })
	_, err := io.WriteString(w, out.String())
	return err
}

// describe says what is compared.
func (c *Comparison) describe(sentence func(string, ...any)) {
	sentence("base: %s", c.sideText(c.Base))
	sentence("new: %s", c.sideText(c.New))
	switch c.Normalized {
	case Shares:
		sentence("compared: shares of %s", c.noun())
	case ByWork:
		sentence("compared: %s by %s", c.noun(), c.Work)
	default:
		sentence("compared: %s by run", c.noun())
	}
	switch {
	case !c.Tested:
		sentence("noise is unknown: the profiles do not say how many samples they have; several runs a side would show it")
	case c.Spread:
		sentence("intervals (±) of %.0f %% are from the spread between runs", 100*c.Confidence)
	default:
		sentence("intervals (±) of %.0f %% are from the numbers of samples, a lower bound of noise: only several runs a side show how much runs differ", 100*c.Confidence)
	}
}

// noun names the value.
func (c *Comparison) noun() string {
	switch {
	case c.Value == "cpu" && c.Unit == "nanoseconds":
		return "CPU time"
	case c.Value == "":
		return c.Unit
	}
	return c.Value
}

func (c *Comparison) sideText(s Side) string {
	text := plain.Count(uint64(len(s.Runs)), "run") + ", " + amountScale(c.Unit, s.Amount).withUnit(s.Amount, c.noun())
	if s.Samples > 0 && c.Unit != "count" {
		text += ", " + plain.Count(uint64(math.Round(s.Samples)), "sample")
	}
	if s.Work > 0 {
		text += fmt.Sprintf(", %.0f %s", s.Work, c.Work)
	}
	if s.Seconds > 0 {
		text += fmt.Sprintf(", in %.1f s", s.Seconds)
	}
	return text
}

// conclude says what the comparison shows. name formats a name.
func (c *Comparison) conclude(sentence func(string, ...any), name func(string) string) {
	if c.Tested && len(c.Functions) == 0 {
		sentence("Nothing changed beyond noise.")
	}
	if !c.Tested && len(c.Functions) == 0 {
		sentence("Nothing changed.")
	}
	if c.Smallest > 0 {
		sentence("A function that takes %.0f %% of all must change by %.1f %% of all to be found in 9 of 10 comparisons.", 100*typical, 100*c.Smallest)
	}
	if c.Within+c.Few > 0 {
		sentence("Left out: %s within noise, %d with too few samples to tell.", plain.Count(uint64(c.Within), "function"), c.Few)
	}
	run := c.Run
	if c.Total != nil {
		run = *c.Total
	}
	if run.tested && run.Base > 0 {
		verdict := "within noise"
		if run.Beyond {
			verdict = "beyond noise"
		}
		by := "run"
		if c.Normalized == ByWork {
			by = c.Work
		}
		sentence("Sum by %s: %+.1f %% (%+.1f to %+.1f %%), %s.", by,
			100*run.Change/run.Base, 100**run.Low/run.Base, 100**run.High/run.Base, verdict)
	}
	for _, r := range c.Regressions {
		marked := r
		if r.Function != "" {
			marked.Function, marked.Module = name(r.Function), name(r.Module)
		}
		sentence("Regression: %s.", marked)
	}
}

// rows returns the functions to list, and how many others there are.
func (c *Comparison) rows(o WriteOptions) (list []Function, omitted int) {
	list = c.Functions
	if o.All {
		list = append(list[:len(list):len(list)], c.others...)
	}
	if o.Functions > 0 && len(list) > o.Functions {
		return list[:o.Functions], len(list) - o.Functions
	}
	return list, 0
}

// scale determines the display of amounts.
type scale struct {
	factor   float64
	unit     string
	decimals int
}

// amountScale returns the scale for amounts up to the largest.
func amountScale(unit string, largest float64) scale {
	steps := []scale{{1, unit, 0}}
	switch unit {
	case "nanoseconds":
		steps = []scale{{1e-9, "s", 2}, {1e-6, "ms", 1}, {1e-3, "µs", 1}, {1, "ns", 1}}
	case "bytes":
		steps = []scale{{1.0 / (1 << 30), "GiB", 2}, {1.0 / (1 << 20), "MiB", 1}, {1.0 / (1 << 10), "KiB", 1}, {1, "bytes", 0}}
	}
	for _, s := range steps {
		if largest*s.factor >= 1 {
			return s
		}
	}
	return steps[len(steps)-1]
}

// withUnit formats an amount with its unit, or with a noun if it is a count.
func (s scale) withUnit(v float64, noun string) string {
	if s.unit == "count" {
		return fmt.Sprintf("%.*f %s", s.decimals, v*s.factor, noun)
	}
	return fmt.Sprintf("%.*f %s of %s", s.decimals, v*s.factor, s.unit, noun)
}

// maxDecimals limits the digits that small intervals ask for.
const maxDecimals = 4

// scale returns the scale for rows.
func (c *Comparison) scale(rows []Function) scale {
	s := scale{100, "%", 1}
	if c.Normalized != Shares {
		s = amountScale(c.Unit, c.Total.Base)
		s.decimals = max(s.decimals, 1)
		if s.unit == "count" {
			s.unit = c.noun()
		}
		if c.Normalized == ByWork {
			s.unit += " by " + c.Work
		} else {
			s.unit += " by run"
		}
	}
	least := math.Inf(1)
	for _, f := range rows {
		for _, v := range []Change{f.Self, f.Total} {
			if v.Beyond {
				least = min(least, (*v.High-*v.Low)/2*s.factor)
			}
		}
	}
	for s.decimals < maxDecimals && least < 0.5*math.Pow10(-s.decimals) {
		s.decimals++
	}
	return s
}

func (s scale) text(v float64) string { return fmt.Sprintf("%.*f", s.decimals, v*s.factor) }

// change formats a change, or "~" if it is within noise.
func (s scale) change(v Change) string {
	if v.tested && !v.Beyond {
		return "~"
	}
	return fmt.Sprintf("%+.*f", s.decimals, v.Change*s.factor)
}

// reach formats half of the interval of a change.
func (s scale) reach(v Change) string {
	if !v.tested {
		return ""
	}
	return fmt.Sprintf("±%.*f", s.decimals, (*v.High-*v.Low)/2*s.factor)
}

// The widths of columns.
const (
	functionWidth = 58
	moduleWidth   = 24
	numberWidth   = 9
	groupWidth    = 4*numberWidth + gap
	gap           = 2
	readable      = 16 // width of names
)

// writeRows writes the table. columns is the width of the terminal, 0 if there is none.
func (c *Comparison) writeRows(w *strings.Builder, list []Function, columns int) {
	s := c.scale(list)
	totals, names, modules := true, functionWidth, moduleWidth
	if columns > 0 {
		totals = columns >= 2*groupWidth+readable+gap+moduleWidth
		room := columns - groupWidth - gap
		if totals {
			room -= groupWidth
		}
		modules = min(modules, room*2/5)
		names = max(min(names, room-modules), readable)
	}
	width := len("function")
	cut := make([][2]string, len(list))
	for i, f := range list {
		cut[i] = [2]string{shortname.Fit(f.Name, names), shortname.Fit(f.Module, modules)}
		width = max(width, utf8.RuneCountInString(cut[i][0]))
	}
	group := func(what string) string {
		heading := what + ", in " + s.unit
		if utf8.RuneCountInString(heading) > groupWidth-gap {
			heading = what
		}
		return fmt.Sprintf("%*s  ", groupWidth-gap, heading)
	}
	under := fmt.Sprintf("%*s%*s%*s%*s  ", numberWidth, "base", numberWidth, "new", numberWidth, "change", numberWidth, "±")
	headings := group("self")
	if totals {
		headings += group("total")
		under += under
	}
	fmt.Fprintf(w, "%s\n%s%-*s  module\n", strings.TrimRight(headings, " "), under, width, "function")
	for i, f := range list {
		values := []Change{f.Self}
		if totals {
			values = append(values, f.Total)
		}
		for _, v := range values {
			fmt.Fprintf(w, "%*s%*s%*s%*s  ", numberWidth, s.text(v.Base), numberWidth, s.text(v.New), numberWidth, s.change(v), numberWidth, s.reach(v))
		}
		fmt.Fprintf(w, "%-*s  %s\n", width, cut[i][0], cut[i][1])
	}
}
