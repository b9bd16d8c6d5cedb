package sides

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"fulgur/internal/message/plain"
	"fulgur/internal/profile"
)

// Columns is the number of columns that each [Table] has. The last of them is ThreadColumn, the first one with
// untrusted texts.
const (
	Columns      = 6
	ThreadColumn = Columns - 1
)

// slowestHeading names the columns of every table of the slowest intervals.
var slowestHeading = [Columns]string{"slowest began", "length", "running", "runnable", "waiting", "thread"}

// Table returns a table of the slowest intervals: its heading, and a row for each. Fields of intervals have columns
// of their own. All cells are safe to print in the sense of package plain.
func Table(intervals []profile.SlowInterval) (heading []string, rows [][]string) {
	var fields []string
	for _, i := range intervals {
		for _, f := range i.Fields {
			if !slices.Contains(fields, f.Key) {
				fields = append(fields, f.Key)
			}
		}
	}
	heading = slices.Clone(slowestHeading[:])
	for _, f := range fields {
		heading = append(heading, plain.Terminal(f))
	}
	for _, i := range intervals {
		row := []string{
			i.Begin.Local().Format("15:04:05.000000"), milliseconds(i.Length), milliseconds(i.Running), milliseconds(i.Runnable),
			milliseconds(i.Waiting()), Thread(i),
		}
		for _, f := range fields {
			cell := ""
			if value, ok := profile.Labels(i.Fields).Value(f); ok {
				cell = plain.Terminal(value)
			}
			row = append(row, cell)
		}
		rows = append(rows, row)
	}
	return heading, rows
}

// Thread names the thread of an interval, such as "postgres-23194/23194", by its process and thread IDs if these are
// known.
func Thread(i profile.SlowInterval) string {
	name := plain.Terminal(i.Comm)
	if i.PID == 0 && i.TID == 0 {
		return name
	}
	return fmt.Sprintf("%s-%d/%d", name, i.PID, i.TID)
}

// Lines returns the lines of a [Table], in columns; nil if there are no intervals.
func Lines(intervals []profile.SlowInterval) (lines []string) {
	if len(intervals) == 0 {
		return nil
	}
	heading, rows := Table(intervals)
	rows = append([][]string{heading}, rows...)
	widths := make([]int, len(heading))
	for _, row := range rows {
		for c, cell := range row {
			widths[c] = max(widths[c], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range rows {
		var b strings.Builder
		for c, cell := range row {
			space := strings.Repeat(" ", widths[c]-utf8.RuneCountInString(cell))
			switch {
			case c == 0:
				b.WriteString(cell + space)
			case IsAmount(c):
				b.WriteString("  " + space + cell)
			default:
				b.WriteString("  " + cell + space)
			}
		}
		lines = append(lines, strings.TrimRight(b.String(), " "))
	}
	return lines
}

// IsAmount reports whether a column of a [Table] has amounts.
func IsAmount(column int) bool { return column >= 1 && column <= 4 }

// milliseconds returns a time in milliseconds.
func milliseconds(d time.Duration) string { return fmt.Sprintf("%.3f ms", float64(d)/1e6) }
