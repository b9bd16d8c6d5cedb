package process

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// TestSpool grows two files alternately.
func TestSpool(t *testing.T) {
	s := &spool{limit: 1 << 20}
	t.Cleanup(func() { _ = s.close() })
	a, b := spooled{in: s}, spooled{in: s}
	text := []byte(strings.Repeat("0123456789abcdef", 100))
	for i, step := range []struct {
		f *spooled
		n int64
	}{{&a, 5}, {&a, 10}, {&b, 100}, {&a, 0}, {&a, 1000}, {&b, 7}, {&b, 20}, {&a, 1}} {
		if err := step.f.append(bytes.NewReader(text[step.f.size:]), step.n); err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
	}
	for _, f := range []*spooled{&a, &b} {
		if err := iotest.TestReader(io.NewSectionReader(f, 0, f.size), text[:f.size]); err != nil {
			t.Error(err)
		}
	}
	if a.size != 1016 || b.size != 127 || len(a.chunks) > 3 {
		t.Errorf("got %d and %d bytes, %d chunks; want 1016, 127, at most 3", a.size, b.size, len(a.chunks))
	}
}

func TestSpoolLimit(t *testing.T) {
	s := &spool{limit: 10}
	t.Cleanup(func() { _ = s.close() })
	f := spooled{in: s}
	text := []byte("0123456789abcdef")
	if err := f.append(bytes.NewReader(text[f.size:]), 8); err != nil {
		t.Fatal(err)
	}
	if err := f.append(bytes.NewReader(text[f.size:]), 8); err == nil {
		t.Error("got no error beyond the limit")
	}
	if err := iotest.TestReader(io.NewSectionReader(&f, 0, f.size), text[:10]); err != nil {
		t.Error(err)
	}
}
