package decode

import (
	"bytes"
	"encoding/binary"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/pprof/profile"

	model "fulgur/internal/profile"
	"fulgur/internal/testenv"
)

// The size of a profile in memory is not more than estimated, whichever element it has many
// of. All that the parser allocates counts, which the size at any time cannot exceed.
func TestPprofSize(t *testing.T) {
	testenv.Slow(t)
	const n = 1 << 17
	one := func(number int, v uint64) []byte { return binary.AppendUvarint([]byte{byte(number << 3)}, v) }
	numbered := func(table, id int, more ...[]byte) []byte {
		var b []byte
		for i := range uint64(n) {
			b = append(b, field(table, slices.Concat(append([][]byte{one(id, i+1)}, more...)...))...)
		}
		return b
	}
	many := func(parts ...[]byte) []byte { return bytes.Repeat(slices.Concat(parts...), n) }
	// Each differs from the others by its key.
	labels := func(value []byte) (b []byte) {
		for i := range uint64(n) {
			b = append(b, field(sampleLabel, one(1, i%1000), value)...)
		}
		return b
	}
	names := bytes.Repeat(field(profileString, []byte("x")), 1000)
	long := field(profileString, bytes.Repeat([]byte("x"), 4097))
	const mappingField, lineFunction = 3, 1
	for name, data := range map[string][]byte{
		"samples":             many(field(profileSample)),
		"locations":           numbered(profileLocation, 1),
		"sparse locations":    bytes.Repeat(field(profileLocation, one(1, 1<<40)), n),
		"lines":               bytes.Repeat(field(profileLocation, one(1, 1), bytes.Repeat(field(locationLine), 1<<10)), n>>10),
		"deep locations":      bytes.Repeat(field(profileLocation, one(1, 1), bytes.Repeat(field(locationLine), model.MaxDepth)), 4),
		"functions":           numbered(profileFunction, 1),
		"mappings":            numbered(mappingField, 1),
		"types of values":     many(field(1)),
		"strings":             many(field(profileString, []byte("x"))),
		"empty strings":       many(field(profileString)),
		"long strings":        bytes.Repeat(long, n>>8),
		"comments":            many(one(profileComment, 0)),
		"packed comments":     field(profileComment, make([]byte, n)),
		"values":              field(profileSample, many(one(sampleValue, 1))),
		"packed values":       field(profileSample, field(sampleValue, make([]byte, n))),
		"lists of values":     field(profileSample, many(field(sampleValue, []byte{1, 2}))),
		"places":              field(profileSample, many(one(sampleLocation, 1))),
		"packed places":       field(profileSample, field(sampleLocation, make([]byte, n))),
		"few places each":     many(field(profileSample, field(sampleLocation, []byte{0, 0, 0}), field(sampleValue, []byte{0}))),
		"few numbers each":    many(field(profileSample, one(sampleLocation, 0), one(sampleValue, 0))),
		"texts of a sample":   slices.Concat(names, field(profileSample, labels(one(2, 1)))),
		"numbers of a sample": slices.Concat(names, field(profileSample, labels(one(3, 1)))),
		"units of a sample":   slices.Concat(names, field(profileSample, labels(slices.Concat(one(3, 1), one(4, 1))))),
		"one text each":       slices.Concat(names, many(field(profileSample, field(sampleLabel, one(1, 1), one(2, 1))))),
		"one number each":     slices.Concat(names, many(field(profileSample, field(sampleLabel, one(1, 1), one(3, 1), one(4, 1))))),
		"both each":           slices.Concat(names, many(field(profileSample, field(sampleLabel, one(1, 1), one(2, 1)), field(sampleLabel, one(1, 2), one(3, 1), one(4, 1))))),
	} {
		data = slices.Concat(field(profileString), data) // the first string is empty
		limit, err := pprofSize(data)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if p, err := profile.ParseUncompressed(data); err == nil {
			_ = p.CheckValid()
		}
		runtime.ReadMemStats(&after)
		got := int64(after.TotalAlloc - before.TotalAlloc)
		t.Logf("%-20s %5.2f of %d", name, float64(got)/float64(limit), limit)
		if got > limit+1<<16 {
			t.Errorf("%s: allocated %d bytes, want at most %d", name, got, limit)
		}
	}
}

// A location with too many lines is refused before it is parsed.
func TestPprofLines(t *testing.T) {
	for lines, want := range map[int]bool{model.MaxDepth: true, model.MaxDepth + 1: false} {
		data := field(profileLocation, bytes.Repeat(field(locationLine), lines))
		if _, err := pprofSize(data); (err == nil) != want || err != nil && !strings.Contains(err.Error(), "lines") {
			t.Errorf("%d lines: got error %v", lines, err)
		}
	}
}
