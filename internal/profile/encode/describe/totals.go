package describe

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"fulgur/internal/message/plain"
	"fulgur/internal/profile"
)

// IsMixed reports whether a profile has values of events that differ in kind: samples and
// waits, for example. Its number of samples then says nothing.
func IsMixed(types []profile.ValueType) bool {
	return slices.Contains(types, onCPU) && slices.Contains(types, offCPU)
}

// The values of profiles with several kinds of events.
var (
	onCPU  = profile.ValueType{Type: "cpu", Unit: "nanoseconds"}
	offCPU = profile.OffCPUTime
)

// phrases are the values of recordings in words, in the order of the text.
var phrases = []struct {
	profile.ValueType
	phrase string
}{
	{onCPU, "on CPU"},
	{offCPU, "waiting"},
	{profile.ValueType{Type: "block-io", Unit: "bytes"}, "of disk requests"},
	{profile.ValueType{Type: "block-io-time", Unit: "nanoseconds"}, "in disk requests"},
	{profile.ValueType{Type: "faults", Unit: "count"}, "page fault"},
}

// Totals returns the totals of a recording's values in words, each in its own unit: "14.7 s:
// 11.3 s on CPU, 3.6 s waiting, 9.4 MiB of disk requests, 151 page faults". It leaves out
// those that are 0, except hits of events.
func Totals(p *profile.Profile) string {
	var parts []string
	for _, known := range phrases {
		v := slices.Index(p.ValueTypes, known.ValueType)
		if v < 0 {
			continue
		}
		n := p.Total(v)
		switch {
		case n == 0:
		case known.Unit == "count":
			parts = append(parts, plain.Count(uint64(max(n, 0)), known.phrase))
		default:
			parts = append(parts, Quantity(n, known.Unit)+" "+known.phrase)
		}
	}
	for v, t := range p.ValueTypes {
		if isEvent(t) {
			parts = append(parts, plain.Count(uint64(max(p.Total(v), 0)), "hit")+" of "+plain.Terminal(t.Type))
		}
	}
	text := strings.Join(parts, ", ")
	if text == "" {
		text = "nothing"
	}
	if p.Meta.Duration > 0 {
		text = Quantity(int64(p.Meta.Duration), "nanoseconds") + ": " + text
	}
	return text
}

// isEvent reports whether a value of a recording is the hits of an event: their names have a
// colon.
func isEvent(t profile.ValueType) bool { return t.Unit == "count" && strings.Contains(t.Type, ":") }

// Quantity returns n of a unit of [profile.ValueType] as a person would write it: "11.3 s",
// "9.4 MiB", "151".
func Quantity(n int64, unit string) string {
	switch unit {
	case "nanoseconds":
		switch d := time.Duration(n); {
		case d.Abs() >= time.Second:
			return fmt.Sprintf("%.1f s", d.Seconds())
		case d.Abs() >= time.Millisecond:
			return fmt.Sprintf("%.1f ms", float64(d)/1e6)
		default:
			return fmt.Sprintf("%.1f µs", float64(d)/1e3)
		}
	case "bytes":
		size, names := float64(n), []string{"bytes", "KiB", "MiB", "GiB", "TiB"}
		for len(names) > 1 && (size >= 1024 || size <= -1024) {
			size, names = size/1024, names[1:]
		}
		if names[0] == "bytes" {
			return fmt.Sprintf("%d bytes", n)
		}
		return fmt.Sprintf("%.1f %s", size, names[0])
	case "count":
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%d %s", n, plain.Terminal(unit))
}
