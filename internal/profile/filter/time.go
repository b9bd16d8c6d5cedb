package filter

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"fulgur/internal/profile/recording"
)

// maxTime is the longest time of a filter: longer than any recording.
const maxTime = time.Duration(1 << 60)

// parseSpan parses FROM,TO.
func parseSpan(argument string) (s recording.Span, err error) {
	from, to, ok := strings.Cut(argument, ",")
	if !ok {
		return s, fmt.Errorf("%q is not FROM,TO: give seconds like 2,4.5 or durations like 1m,1m30s since the beginning", argument)
	}
	s = recording.Span{To: math.MaxInt64}
	if from = strings.TrimSpace(from); from != "" {
		if s.From, err = parseTime(from); err != nil {
			return s, err
		}
	}
	if to = strings.TrimSpace(to); to != "" {
		if s.To, err = parseTime(to); err != nil {
			return s, err
		}
	}
	if s.From >= s.To {
		return s, fmt.Errorf("%q ends before it begins", argument)
	}
	return s, nil
}

// parseTime parses seconds or a duration.
func parseTime(text string) (ns int64, err error) {
	duration := text
	if _, err := strconv.ParseFloat(text, 64); err == nil {
		duration += "s"
	}
	d, err := time.ParseDuration(duration)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%q is not a time: give seconds like 2 or 0.5, or a duration like 1m30s", text)
	case d < 0:
		return 0, fmt.Errorf("%s is negative, but times are since the beginning", text)
	case d > maxTime:
		return 0, fmt.Errorf("%s is later than any recording", text)
	}
	return int64(d), nil
}

// spanText returns a span as parseSpan reads it.
func spanText(s recording.Span) string {
	text := time.Duration(s.From).String() + ","
	if s.To < math.MaxInt64 {
		text += time.Duration(s.To).String()
	}
	return text
}

// maxPageTime is the largest time in nanoseconds that is exact as a number of milliseconds: 52 days.
const maxPageTime = 1 << 52

// isPageTime reports whether a filter can be the range of time in the address of a page, which has an end.
func (f Filter) isPageTime() bool { return f.kind == Time && f.span.To <= maxPageTime }

// parsePageSpan parses a range of time in the address of a page: FROM-TO, in milliseconds.
func parsePageSpan(text string) (s recording.Span, err error) {
	from, to, ok := strings.Cut(text, "-")
	a, errFrom := strconv.ParseFloat(from, 64)
	b, errTo := strconv.ParseFloat(to, 64)
	most := float64(maxTime) / 1e6
	if !ok || errFrom != nil || errTo != nil || !(0 <= a && a < b && b <= most) {
		return s, fmt.Errorf("the range of time %q is not FROM-TO in milliseconds", text)
	}
	return recording.Span{From: int64(math.Round(a * 1e6)), To: int64(math.Round(b * 1e6))}, nil
}

// pageSpanText returns a span as parsePageSpan reads it.
func pageSpanText(s recording.Span) string {
	ms := func(ns int64) string { return strconv.FormatFloat(float64(ns)/1e6, 'f', -1, 64) }
	return ms(s.From) + "-" + ms(s.To)
}

// spans returns the parts of a recording of a length that the filters of time leave, and false if there are no such
// filters. A part up to the end also has the events at and after the end.
func (l List) spans(length int64) (left []recording.Span, ok bool) {
	left = []recording.Span{recording.Whole}
	for _, f := range l {
		if !f.isTime() {
			continue
		}
		ok = true
		span := f.span
		if span.From == 0 {
			span.From = math.MinInt64
		}
		if span.To >= length {
			span.To = math.MaxInt64
		}
		allowed := []recording.Span{span}
		if f.kind == IgnoreTime {
			allowed = []recording.Span{{From: math.MinInt64, To: span.From}, {From: span.To, To: math.MaxInt64}}
		}
		left = common(left, allowed)
	}
	return left, ok
}

// common returns what is in both lists of spans, sorted.
func common(a, b []recording.Span) (both []recording.Span) {
	for _, x := range a {
		for _, y := range b {
			if s := (recording.Span{From: max(x.From, y.From), To: min(x.To, y.To)}); s.From < s.To {
				both = append(both, s)
			}
		}
	}
	slices.SortFunc(both, func(x, y recording.Span) int { return cmp.Compare(x.From, y.From) })
	return both
}
