// Package describe describes profiles and their losses in words. Its texts are safe to print
// in the sense of package plain.
package describe

import (
	"fmt"
	"strings"
	"time"

	"fulgur/internal/message/plain"
	"fulgur/internal/profile"
)

// Run returns a line about what was sampled, how and for how long: "whole system,
// cpu-clock at 99 Hz, 10s". It omits what m does not contain.
func Run(m profile.Meta) string {
	var parts []string
	if m.Scope != "" {
		parts = append(parts, plain.Terminal(m.Scope))
	}
	if m.Event != "" {
		event := plain.Terminal(m.Event)
		switch {
		case m.Frequency > 0:
			event += fmt.Sprintf(" at %d Hz", m.Frequency)
			if m.RequestedFrequency > 0 {
				event += fmt.Sprintf(" (lowered from %d Hz)", m.RequestedFrequency)
			}
		case m.Event == "allocations" && m.Period > 0:
			event += ", a sample every " + Quantity(int64(m.Period), "bytes")
		case m.Every.Of == space && m.Every.Amount > 0:
			event = "heap, a sample every " + Quantity(m.Every.Amount, space.Unit)
		case m.Period > 1:
			event += fmt.Sprintf(" every %d", m.Period)
		}
		parts = append(parts, event)
	}
	if m.Duration > 0 {
		parts = append(parts, roundDuration(m.Duration).String())
	}
	return strings.Join(parts, ", ")
}

// space is what the sampling interval of heap profiles of pprof counts.
var space = profile.ValueType{Type: "space", Unit: "bytes"}

// IsWhole reports whether the whole machine was measured, or all that fulgur saw of it.
func IsWhole(m profile.Meta) bool { return strings.HasPrefix(m.Scope, "whole ") }

// Machine returns a line about the profiled machine: "example, Linux 6.12.0 x86_64, 4
// CPUs". It omits what m does not contain.
func Machine(m profile.Meta) string {
	var parts []string
	if m.Host != "" {
		parts = append(parts, plain.Terminal(m.Host))
	}
	if m.Kernel != "" {
		system := "Linux " + plain.Terminal(m.Kernel)
		if m.Arch != "" {
			system += " " + plain.Terminal(m.Arch)
		}
		parts = append(parts, system)
	}
	if m.CPUs > 0 {
		parts = append(parts, counted(uint64(m.CPUs), "CPU", "CPUs"))
	}
	return strings.Join(parts, ", ")
}

// heapValues are the values of heap profiles in words.
var heapValues = map[string]string{
	"alloc_objects": "allocations", "alloc_space": "allocated",
	"inuse_objects": "allocations in use", "inuse_space": "in use",
}

// Amount returns n of value v in words: "17 samples", "1.5s off-cpu", "4096 bytes", "1.5 MiB
// allocated".
func Amount(n int64, v profile.ValueType) string {
	if words, ok := heapValues[v.Type]; ok {
		if n == 1 {
			words = strings.Replace(words, "allocations", "allocation", 1)
		}
		return Quantity(n, v.Unit) + " " + words
	}
	kind := plain.Terminal(v.Type)
	switch v.Unit {
	case "nanoseconds":
		return roundDuration(time.Duration(n)).String() + " " + kind
	case "count":
		if n == 1 {
			kind = strings.TrimSuffix(kind, "s")
		}
		return fmt.Sprintf("%d %s", n, kind)
	}
	unit := plain.Terminal(v.Unit)
	if unit == kind {
		return fmt.Sprintf("%d %s", n, kind)
	}
	return fmt.Sprintf("%d %s %s", n, unit, kind)
}
