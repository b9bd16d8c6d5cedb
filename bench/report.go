package main

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// write writes the comparison as Markdown.
func (c *comparison) write(w io.Writer) error {
	out := bufio.NewWriter(w) // keeps its first error until Flush
	fmt.Fprintf(out, "%s; runs of %d s, medians (of losses the maximum).\n", c.Machine, c.Seconds)
	for _, n := range c.Notes {
		fmt.Fprintf(out, "Note: %s.\n", strings.TrimSpace(n))
	}
	fmt.Fprintln(out)
	c.writeCosts(out)
	fmt.Fprint(out, "\nfulgur's figures divided by each peer's: the median ratio of the rounds, and the range:\n\n")
	c.writeRatios(out)
	fmt.Fprint(out, "\nAims:\n\n")
	c.writeAims(out)
	return out.Flush()
}

// writeCosts writes the table of measured costs.
func (c *comparison) writeCosts(w io.Writer) {
	writeRow(w, "scenario", "tool", "samples", "lost", "no stack", "CPU s", "CPU s to the first sample", "CPU s after the last sample", "steady %", "start s", "end to result s", "peak RSS MB", "peak anonymous MB", "BPF maps MB", "BPF ns per sample")
	writeRule(w, 2, 13)
	for _, r := range c.Results {
		if len(r.Runs) == 0 {
			continue
		}
		m := median(r.Runs)
		cpu := fmt.Sprintf("%.2f", m.CPU)
		if m.CPUAfter > 0 {
			cpu += fmt.Sprintf(" + %.2f", m.CPUAfter)
		}
		maps, perSample, startCPU, endCPU := "–", "–", "–", "–"
		if m.Runs > 0 {
			startCPU, endCPU = fmt.Sprintf("%.2f", m.StartCPU), fmt.Sprintf("%.2f", m.EndCPU)
			maps, perSample = megabytes(m.Maps), fmt.Sprintf("%.0f", m.perSample(r.Scenario))
		}
		writeRow(w, r.Scenario.title(), r.Tool, fmt.Sprint(m.Samples), fmt.Sprint(m.Lost), fmt.Sprint(m.Stackless),
			cpu, startCPU, endCPU, fmt.Sprintf("%.1f", 100*m.Steady), fmt.Sprintf("%.3f", m.Start), fmt.Sprintf("%.3f", m.Result),
			megabytes(m.RSS), megabytes(m.Anonymous), maps, perSample)
	}
}

// writeRatios writes the table of fulgur's figures divided by its peers'.
func (c *comparison) writeRatios(w io.Writer) {
	writeRow(w, "scenario", "against", "samples", "CPU", "CPU to the result", "start", "end to result", "peak RSS", "BPF maps", "BPF time per sample")
	writeRule(w, 2, 8)
	for _, r := range c.Results {
		if r.Tool == nameFulgur || len(r.Runs) == 0 {
			continue
		}
		runs := c.outcomes(r.Scenario)
		row := []string{r.Scenario.title(), r.Tool}
		for _, figure := range []func(cost) float64{
			func(c cost) float64 { return float64(c.Samples) },
			func(c cost) float64 { return c.CPU },
			func(c cost) float64 { return c.CPU + c.CPUAfter },
			func(c cost) float64 { return c.Start },
			func(c cost) float64 { return c.Result },
			func(c cost) float64 { return float64(c.RSS) },
			func(c cost) float64 { return float64(c.Maps) },
			func(c cost) float64 { return c.perSample(r.Scenario) },
		} {
			cell := "–"
			if of, known := ratio(runs, nameFulgur, r.Tool, figure); known {
				cell = of.String()
			}
			row = append(row, cell)
		}
		writeRow(w, row...)
	}
}

// writeAims writes the table of aims, which shows whether they are met.
func (c *comparison) writeAims(w io.Writer) {
	scenarios := c.scenarios()
	row := []string{"aim"}
	for _, s := range scenarios {
		row = append(row, s.title())
	}
	writeRow(w, row...)
	writeRule(w, 1+len(scenarios), 0)
	for _, a := range aims {
		row, judged := []string{a.what}, false
		for _, s := range scenarios {
			v := a.judge(c.outcomes(s), s)
			row, judged = append(row, v.String()), judged || v.known
		}
		if judged {
			writeRow(w, row...)
		}
	}
	if c.Long == nil {
		return
	}
	row = []string{fmt.Sprintf("no growth from %d s to %d s", c.Seconds, c.Growth)}
	for _, s := range scenarios {
		v := verdict{}
		if short, ok := c.outcomes(s).median(nameFulgur); ok && s == c.LongScenario {
			v = growth(short, *c.Long)
		}
		row = append(row, v.String())
	}
	writeRow(w, row...)
}

// scenarios returns the measured scenarios, in order.
func (c *comparison) scenarios() []scenario {
	var all []scenario
	for _, r := range c.Results {
		if len(all) == 0 || all[len(all)-1] != r.Scenario {
			all = append(all, r.Scenario)
		}
	}
	return all
}

// outcomes returns the runs of all tools in s.
func (c *comparison) outcomes(s scenario) outcomes {
	o := outcomes{}
	for _, r := range c.Results {
		if r.Scenario == s {
			o[r.Tool] = r.Runs
		}
	}
	return o
}

func writeRow(w io.Writer, cells ...string) {
	fmt.Fprintf(w, "| %s |\n", strings.Join(cells, " | "))
}

// writeRule writes the line below a table's head, for the given numbers of columns of
// text and of numbers.
func writeRule(w io.Writer, text, numbers int) {
	fmt.Fprintf(w, "|%s%s\n", strings.Repeat("---|", text), strings.Repeat("---:|", numbers))
}

func megabytes(bytes uint64) string { return fmt.Sprintf("%.1f", float64(bytes)/(1<<20)) }
