package main

import (
	"encoding"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"fulgur/internal/linux/perfevent"
)

// longest is the maximum duration. Longer ones are probably typos: without a
// duration, a measurement runs until Ctrl-C.
const longest = 365 * 24 * time.Hour

// seconds is a duration, given as a number of seconds, such as 10 or 0.5, or in Go's
// format, such as 1m30s.
type seconds time.Duration

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *seconds) UnmarshalText(text []byte) error {
	t := string(text)
	if _, err := strconv.ParseFloat(t, 64); err == nil {
		t += "s" // makes ParseDuration reject hexadecimal, exponents, inf and nan
	}
	d, err := time.ParseDuration(t)
	switch {
	case err != nil:
		return fmt.Errorf("%q is not a duration: give seconds like 10 or 0.5, or 1m30s; a command comes after \"--\"", text)
	case d < 0:
		return fmt.Errorf("%s is negative", text)
	case d > longest:
		return fmt.Errorf("%s is longer than a year: leave it out to measure until Ctrl-C", text)
	}
	*s = seconds(d)
	return nil
}

// frequency is a sampling rate in Hz, or "max".
type frequency uint64

// UnmarshalText implements encoding.TextUnmarshaler.
func (f *frequency) UnmarshalText(text []byte) error {
	if string(text) == "max" {
		highest, err := perfevent.MaxSampleRate()
		*f = frequency(highest)
		return err
	}
	n, err := strconv.ParseUint(string(text), 10, 64)
	if err != nil || n == 0 {
		highest := "sysctl kernel.perf_event_max_sample_rate"
		if n, err := perfevent.MaxSampleRate(); err == nil {
			highest = fmt.Sprintf("%d (%s)", n, highest)
		}
		return fmt.Errorf("%q is not a frequency: give samples per second, from 1 to %s, or max", text, highest)
	}
	*f = frequency(n)
	return nil
}

// count is a number of events or entries, at least 1.
type count uint32

// UnmarshalText implements encoding.TextUnmarshaler.
func (c *count) UnmarshalText(text []byte) error {
	n, err := strconv.ParseUint(string(text), 10, 32)
	if err != nil || n == 0 {
		return fmt.Errorf("%q is not a number from 1 to %d", text, uint32(math.MaxUint32))
	}
	*c = count(n)
	return nil
}

// port is a TCP port.
type port uint16

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *port) UnmarshalText(text []byte) error {
	n, err := strconv.ParseUint(string(text), 10, 16)
	if err != nil || n == 0 {
		return fmt.Errorf("%q is not a port: give a number from 1 to %d", text, math.MaxUint16)
	}
	*p = port(n)
	return nil
}

// Limits of the width of pictures in pixels.
const minPixels, maxPixels = 300, 30_000

// pixels is the width of a picture.
type pixels int

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *pixels) UnmarshalText(text []byte) error {
	n, err := strconv.Atoi(string(text))
	if err != nil || n < minPixels || n > maxPixels {
		return fmt.Errorf("%q is not a width in pixels: give a number from %d to %d", text, minPixels, maxPixels)
	}
	*p = pixels(n)
	return nil
}

// size is a number of bytes, with an optional suffix K, M or G, also in lower case.
type size uint32

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *size) UnmarshalText(text []byte) error {
	digits, shift := string(text), 0
	if n := len(digits); n > 0 {
		if i := strings.Index("KMG", strings.ToUpper(digits[n-1:])); i >= 0 {
			digits, shift = digits[:n-1], 10*(i+1)
		}
	}
	n, err := strconv.ParseUint(digits, 10, 32)
	if err != nil || n == 0 || n<<shift > math.MaxUint32 {
		return fmt.Errorf("%q is not a size: give bytes, less than 4G, like 65536, 64K or 1M", text)
	}
	*s = size(n << shift)
	return nil
}

// percent is a share, written in percent with or without the sign.
type percent float64

// maxPercent is the maximum percentage. Larger ones are probably typos.
const maxPercent = 1000

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *percent) UnmarshalText(text []byte) error {
	n, err := strconv.ParseFloat(strings.TrimSuffix(string(text), "%"), 64)
	if err != nil || !(n > 0 && n <= maxPercent) {
		return fmt.Errorf("%q is not a percentage: give a number above 0 and up to %d, like 10 or 2.5%%", text, maxPercent)
	}
	*p = percent(n / 100)
	return nil
}

// limit is a value, or "off" for none, which leaves 0.
type limit[V any] struct{ value V }

// UnmarshalText implements encoding.TextUnmarshaler.
func (l *limit[V]) UnmarshalText(text []byte) error {
	if string(text) == "off" {
		*l = limit[V]{}
		return nil
	}
	if err := any(&l.value).(encoding.TextUnmarshaler).UnmarshalText(text); err != nil {
		return fmt.Errorf("%w, or off", err)
	}
	return nil
}

// hold is how long stepping may hold a thread, some milliseconds.
type hold time.Duration

// The limits of hold: within less than a millisecond, a thread takes few branches,
// and after a second it seems to hang.
const minHold, maxHold = time.Millisecond, time.Second

// UnmarshalText implements encoding.TextUnmarshaler.
func (h *hold) UnmarshalText(text []byte) error {
	d, err := time.ParseDuration(string(text))
	if err != nil || d < minHold || d > maxHold {
		return fmt.Errorf("%q is not a time from %v to %v: give it with a unit, like 20ms", text, minHold, maxHold)
	}
	*h = hold(d)
	return nil
}

// cpus is a list of CPUs in the kernel's format, such as "0,2-3".
type cpus []int

// UnmarshalText implements encoding.TextUnmarshaler.
func (c *cpus) UnmarshalText(text []byte) error {
	list, err := perfevent.ParseCPUList(string(text))
	if err != nil || len(list) == 0 {
		return fmt.Errorf("%q is not a list of CPUs: give numbers and ranges, like 0,2-3", text)
	}
	*c = unique(append(*c, list...))
	return nil
}

// ids is a list of process or thread IDs, such as "17,42", or the lines that pgrep(1)
// writes.
type ids []int

// UnmarshalText implements encoding.TextUnmarshaler.
func (i *ids) UnmarshalText(text []byte) error {
	list := strings.Fields(string(text))
	if len(list) == 0 {
		return errors.New("no ID: perhaps nothing matched")
	}
	for field := range strings.SplitSeq(strings.Join(list, ","), ",") {
		id, err := strconv.ParseInt(field, 10, 32)
		if err != nil || id <= 0 {
			return fmt.Errorf("%q is not an ID: give positive numbers, like 17,42, or \"$(pgrep NAME)\"", field)
		}
		*i = append(*i, int(id))
	}
	*i = unique(*i)
	return nil
}

// unique sorts numbers and removes duplicates, which must not be sampled twice.
func unique[S ~[]int](numbers S) S {
	slices.Sort(numbers)
	return slices.Compact(numbers)
}
