// Package histogram formats power-of-two histograms like the tools of the BPF Compiler
// Collection (github.com/iovisor/bcc, libbpf-tools/trace_helpers.c).
package histogram

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// width is the length of the longest bar.
const width = 40

// Lines returns a line with the unit, and a line for each slot up to the last that is not
// empty, or none if all are empty. Slot i counts from 2^i to 2^(i+1)-1; slot 0 includes
// 0.
func Lines(unit string, slots []uint64) []string {
	last, peak := -1, uint64(0)
	for i, n := range slots {
		if n > 0 {
			last, peak = i, max(peak, n)
		}
	}
	if last < 0 {
		return nil
	}
	lines := []string{fmt.Sprintf("     %-19s : count    distribution", unit)}
	for i, n := range slots[:last+1] {
		low, high := uint64(1)<<i, uint64(1)<<(i+1)-1
		if i == 0 {
			low = 0
		}
		bar := strings.Repeat("*", int(n*width/peak))
		lines = append(lines, fmt.Sprintf("%10d -> %-10d : %-8d |%-*s|", low, high, n, width, bar))
	}
	return lines
}

// Filled returns [Lines] without the empty slots before the first that is not empty.
func Filled(unit string, slots []uint64) []string {
	lines := Lines(unit, slots)
	if first := slices.IndexFunc(slots, func(n uint64) bool { return n > 0 }); first > 0 {
		lines = slices.Delete(lines, 1, 1+first)
	}
	return lines
}

// row matches a line of a slot: the text before the bar, and the bar.
var row = regexp.MustCompile(`^( *\d+ -> \d+ *: \d+ *)\|(\**) *\|$`)

// Fit shortens the bar in a line of a slot, which may be indented, so that the line fits into
// columns. It returns other lines unchanged, and also lines without room for a bar.
func Fit(line string, columns int) string {
	m := row.FindStringSubmatch(line)
	if m == nil || len(line) <= columns {
		return line
	}
	room := columns - len(m[1]) - len("||")
	if room <= 0 {
		return line
	}
	return fmt.Sprintf("%s|%-*s|", m[1], room, m[2][:len(m[2])*room/width])
}
