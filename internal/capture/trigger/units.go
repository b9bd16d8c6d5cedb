package trigger

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// duration parses a time above 0, such as "50ms" or "2s", into ns.
func duration(text string) (int64, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("%q is not a time: give it with a unit, like 50ms or 2s", text)
	}
	return int64(d), nil
}

// perMille is the unit of shares: a tenth of a percent.
const perMille = 10

// maxPercent is the largest share: of all CPUs of a large machine.
const maxPercent = 1_000_000

// percent parses a share above 0, such as "90%", into tenths of a percent.
func percent(text string) (int64, error) {
	n, err := strconv.ParseFloat(strings.TrimSuffix(text, "%"), 64)
	if err != nil || !(n*perMille >= 1 && n <= maxPercent) {
		return 0, fmt.Errorf("%q is not a percentage: give a number above 0, like 90%%", text)
	}
	return int64(n * perMille), nil
}

// bytes parses a size above 0, such as "2G" or "512M".
func bytes(text string) (int64, error) {
	digits, shift := text, 0
	if n := len(digits); n > 0 {
		if i := strings.Index("KMGT", strings.ToUpper(digits[n-1:])); i >= 0 {
			digits, shift = digits[:n-1], 10*(i+1)
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n <= 0 || n > 1<<62>>shift {
		return 0, fmt.Errorf("%q is not a size: give bytes, like 512M or 2G", text)
	}
	return n << shift, nil
}

// share returns a part in tenths of a percent of a whole.
func share(part, whole time.Duration) int64 {
	if whole <= 0 {
		return 0
	}
	return int64(float64(part) / float64(whole) * 100 * perMille)
}

// shareText describes a share in tenths of a percent.
func shareText(n int64) string { return strconv.FormatFloat(float64(n)/perMille, 'f', -1, 64) + " %" }

// timeText describes a time in ns.
func timeText(ns int64) string {
	d := time.Duration(ns)
	switch {
	case d >= time.Second:
		d = d.Round(time.Millisecond)
	case d >= time.Millisecond:
		d = d.Round(time.Microsecond)
	}
	return d.String()
}
