package folded

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"

	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/encodetest"
)

func TestWrite(t *testing.T) {
	for _, c := range []struct {
		golden string
		p      *profile.Profile
		o      Options
	}{
		{"typical.folded", encodetest.Typical(), Options{}},
		{"typical-annotate.folded", encodetest.Typical(), Options{Annotate: true}},
		{"typical-delimited.folded", encodetest.Typical(), Options{Delimited: true}},
		{"typical-annotate-delimited.folded", encodetest.Typical(), Options{Annotate: true, Delimited: true}},
		{"typical-value1.folded", encodetest.Typical(), Options{Value: 1}},
		{"threads.folded", encodetest.Threads(), Options{}},
		{"owners.folded", encodetest.Owners(), Options{}},
		{"symbols.folded", encodetest.Symbols(), Options{}},
		{"compared.folded", encodetest.Compared(), Options{Compare: true}},
		{"symbols-annotate.folded", encodetest.Symbols(), Options{Annotate: true}},
		{"hostile.folded", encodetest.Hostile(), Options{}},
		{"empty.folded", encodetest.Empty(), Options{}},
	} {
		t.Run(c.golden, func(t *testing.T) {
			var out bytes.Buffer
			if err := Write(&out, c.p, c.o); err != nil {
				t.Fatal(err)
			}
			encodetest.Golden(t, c.golden, out.Bytes())
			values := c.o.values()
			value := values[len(values)-1]
			_, amount := profile.PrintedUnit(c.p.ValueTypes[value].Unit)
			want := c.p.Total(value) / amount
			if got := sum(t, out.String()); got < want-int64(len(c.p.Samples)) || got > want+int64(len(c.p.Samples)) || amount == 1 && got != want {
				t.Errorf("got a sum of %d, want %d", got, want)
			}
		})
	}
}

// TestWriteLarge compares with lines that are computed separately for each sample.
func TestWriteLarge(t *testing.T) {
	p := encodetest.Large(2000)
	var out bytes.Buffer
	if err := Write(&out, p, Options{}); err != nil {
		t.Fatal(err)
	}
	want := map[string]int64{}
	for _, s := range p.Samples {
		frames := p.AppendFrames(nil, s.Stack)
		line := p.Tasks[s.Task].Comm
		for _, f := range slices.Backward(frames) {
			line += ";" + p.FrameName(f)
		}
		want[line] += s.Values[0]
	}
	var last []string
	for line := range strings.Lines(out.String()) {
		if _, ok := ParseHeader(strings.TrimSpace(line)); ok {
			continue
		}
		stack, value := parse(t, line)
		if want[stack] != value {
			t.Errorf("%s: got %d, want %d", stack, value, want[stack])
		}
		delete(want, stack)
		frames := strings.Split(stack, ";")
		if slices.Compare(last, frames) >= 0 {
			t.Errorf("%q is not sorted after %q", frames, last)
		}
		last = frames
	}
	if len(want) > 0 {
		t.Errorf("got %d stacks too few", len(want))
	}
}

func TestErrors(t *testing.T) {
	p := encodetest.Typical()
	for _, v := range []int{-1, 2} {
		if err := Write(io.Discard, p, Options{Value: v}); err == nil {
			t.Errorf("got no error for value %d of 2", v)
		}
	}
	if err := Write(io.Discard, p.Only(0), Options{Compare: true}); err == nil {
		t.Error("got no error for a comparison with one value")
	}
	if err := Write(encodetest.FullDisk{}, p, Options{}); !errors.Is(err, encodetest.ErrFullDisk) {
		t.Errorf("got error %v, want the writer's", err)
	}
}

// sum returns the sum of all lines' values.
func sum(t *testing.T, s string) int64 {
	t.Helper()
	var total int64
	for line := range strings.Lines(s) {
		if strings.HasPrefix(line, "# ") {
			continue
		}
		_, value := parse(t, line)
		total += value
	}
	return total
}

// parse splits a line at its last space, as readers of the format do.
func parse(t *testing.T, line string) (stack string, value int64) {
	t.Helper()
	line = strings.TrimSuffix(line, "\n")
	i := strings.LastIndexByte(line, ' ')
	value, err := strconv.ParseInt(line[i+1:], 10, 64)
	if err != nil {
		t.Fatalf("got line %q without a value: %v", line, err)
	}
	return line[:i], value
}

func BenchmarkWrite(b *testing.B) {
	p := encodetest.Large(20_000)
	for b.Loop() {
		if err := Write(io.Discard, p, Options{}); err != nil {
			b.Fatal(err)
		}
	}
}

func TestWriteIsLinear(t *testing.T) {
	encodetest.Linear(t, func(w io.Writer, p *profile.Profile) error { return Write(w, p, Options{}) })
}
