// Package histogram describes distributions of times: percentiles, and histograms like those of the
// tools of the BPF Compiler Collection (github.com/iovisor/bcc).
package histogram

import (
	"fmt"
	"math/bits"
	"regexp"
	"strings"
	"unicode/utf8"
)

// Slot counts the times of Low to High ns.
type Slot struct{ Low, High, Count uint64 }

// Times is a distribution of times.
type Times struct {
	// Slots are those that are not empty, in ascending order. None has times of several octaves.
	Slots []Slot
	// Sum is the total, in ns.
	Sum uint64
	// Max is the longest time in ns, if known: it is in the last slot. Otherwise, the last slot
	// limits the longest time.
	Max uint64
}

// Count returns the number of times.
func (t Times) Count() (n uint64) {
	for _, s := range t.Slots {
		n += s.Count
	}
	return n
}

// Percentile returns the limits of a percentile, in ns: of the least time such that the given share
// of all times, in thousandths, is not longer. Their difference is at most the width of a slot. They
// are equal if it is the longest time. There must be times.
func (t Times) Percentile(thousandths uint64) (low, high uint64) {
	// The product may exceed 64 bits.
	above, below := bits.Mul64(t.Count(), thousandths)
	rank, rest := bits.Div64(above, below, 1000)
	if rest > 0 {
		rank++
	}
	rank = max(rank, 1)
	for i, s := range t.Slots {
		switch last := i == len(t.Slots)-1; {
		case rank > s.Count:
			rank -= s.Count
		case !last || !t.knowsMax():
			return s.Low, s.High
		case rank == s.Count:
			return t.Max, t.Max
		default:
			return s.Low, t.Max
		}
	}
	return 0, 0
}

// knowsMax reports whether Max is the longest time.
func (t Times) knowsMax() bool {
	last := t.Slots[len(t.Slots)-1]
	return t.Max >= last.Low && t.Max <= last.High
}

// percentiles are those in a summary.
var percentiles = []struct {
	name        string
	thousandths uint64
}{{"p50", 500}, {"p90", 900}, {"p99", 990}, {"p99.9", 999}, {"max", 1000}}

// Lines returns a line with the number, average and total of the times, one with percentiles and
// the longest time, and a histogram from the first slot that is not empty to the last. It returns
// nothing if there are no times.
func (t Times) Lines() []string { return append(t.Summary(), t.Draw()...) }

// Summary returns the lines of [Times.Lines] before the histogram.
func (t Times) Summary() []string {
	n := t.Count()
	if n == 0 {
		return nil
	}
	var p []string
	for _, percentile := range percentiles {
		low, high := t.Percentile(percentile.thousandths)
		p = append(p, percentile.name+" "+span(low, high, 3))
	}
	return []string{
		fmt.Sprintf("count %d, average %s, total %s", n, span(t.Sum/n, t.Sum/n, 3), span(t.Sum, t.Sum, 3)),
		strings.Join(p, ", "),
	}
}

const (
	width   = 40 // the longest bar
	maxRows = 20 // of a histogram, unless even octaves need more
)

// Draw returns a line for each row of the histogram, each with the times of an octave or, if this
// gives few rows, of a half, a quarter or an eighth of one.
func (t Times) Draw() (lines []string) {
	if t.Count() == 0 {
		return nil
	}
	var rows []Slot
	for parts := uint64(8); parts >= 1; parts /= 2 {
		if rows = t.rows(parts); len(rows) <= maxRows {
			break
		}
	}
	labels := make([]string, len(rows))
	counts := make([]string, len(rows))
	var peak uint64
	var labelWidth, countWidth int
	for i, r := range rows {
		labels[i], counts[i] = span(r.Low, r.High, 2), fmt.Sprint(r.Count)
		peak = max(peak, r.Count)
		labelWidth, countWidth = max(labelWidth, utf8.RuneCountInString(labels[i])), max(countWidth, len(counts[i]))
	}
	for i, r := range rows {
		above, below := bits.Mul64(r.Count, width)
		bar, _ := bits.Div64(above, below, peak)
		lines = append(lines, fmt.Sprintf("  %*s  %*s |%s", labelWidth, labels[i], countWidth, counts[i], strings.Repeat("*", int(bar))))
	}
	return lines
}

// rows divides each octave into parts, a power of two, and returns the parts from the first to the last
// that is not empty. Times that are shorter than parts have rows of their own.
func (t Times) rows(parts uint64) (rows []Slot) {
	next := func(low uint64) Slot {
		w := uint64(1)
		if low >= parts {
			w = uint64(1) << (bits.Len64(low) - bits.Len64(parts))
		}
		low &^= w - 1
		return Slot{Low: low, High: low + w - 1}
	}
	row := next(t.Slots[0].Low)
	for _, s := range t.Slots {
		for s.Low > row.High {
			rows = append(rows, row)
			row = next(row.High + 1)
		}
		row.Count += s.Count
	}
	return append(rows, row)
}

// units are units of times, in ns.
var units = []struct {
	name string
	ns   float64
}{{"s", 1e9}, {"ms", 1e6}, {"µs", 1e3}, {"ns", 1}}

// span returns the times from low to high ns in a unit that fits, with at least the given number of digits:
// "1.0–2.1 ms", or "1.5 ms" if they are equal.
func span(low, high uint64, digits int) string {
	unit := units[len(units)-1]
	for _, u := range units {
		if float64(high) >= u.ns {
			unit = u
			break
		}
	}
	number := func(ns uint64) string {
		value := float64(ns) / unit.ns
		decimals := 0
		for limit := value; limit > 0 && limit < pow10(digits-1) && decimals < 3; limit *= 10 {
			decimals++
		}
		if unit.ns == 1 {
			decimals = 0
		}
		return fmt.Sprintf("%.*f", decimals, value)
	}
	a, b := number(low), number(high)
	if low == high || a == b {
		return b + " " + unit.name
	}
	return a + "–" + b + " " + unit.name
}

func pow10(n int) float64 {
	p := 1.0
	for range n {
		p *= 10
	}
	return p
}

// row matches a line of a histogram: the text before the bar, and the bar.
var row = regexp.MustCompile(`^( +[\d.]+(?:–[\d.]+)? (?:s|ms|µs|ns) +\d+ )\|(\*+)$`)

// Fit shortens the bar in a line of a histogram, which may be indented, so that the line fits into
// columns. It returns other lines unchanged, and also lines without room for a bar.
func Fit(line string, columns int) string {
	m := row.FindStringSubmatch(line)
	if m == nil {
		return line
	}
	room := columns - utf8.RuneCountInString(m[1]) - len("|")
	if room <= 0 || room >= width {
		return line
	}
	return m[1] + "|" + m[2][:len(m[2])*room/width]
}
