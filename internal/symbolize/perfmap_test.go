package symbolize

import (
	"errors"
	"strings"
	"testing"
)

func TestPerfMap(t *testing.T) {
	const text = `1000 100 old one
1080 10 LazyCompile:~add /srv/app.js:3:12
0x2000 0x10 prefixed
malformed

zz 10 not hexadecimal
3000 10
7f0000000000 20 last without newline`
	m := OpenPerfMap(strings.NewReader(text), 1<<20)
	addrs := []uint64{0xfff, 0x1000, 0x1080, 0x108f, 0x1090, 0x10ff, 0x1100, 0x3000, 0x7f000000001f}
	want := []string{"", "old one", "LazyCompile:~add /srv/app.js:3:12", "LazyCompile:~add /srv/app.js:3:12", "old one", "old one", "", "", "last without newline"}
	frames, err := m.LookupBatch(addrs)
	var problems *PerfMapError
	if !errors.As(err, &problems) || problems.Malformed != 5 || problems.Truncated != 0 {
		t.Errorf("error %v, want 5 malformed lines", err)
	}
	for i, addr := range addrs {
		got := ""
		if len(frames[i]) == 1 {
			got = frames[i][0].Name
		}
		if got != want[i] {
			t.Errorf("%#x: %q, want %q", addr, got, want[i])
		}
	}
	if f := frames[5][0]; f.Offset != 0xff {
		t.Errorf("offset %#x, want 0xff", f.Offset)
	}
}

// A line that is being written is no mistake of who writes it.
func TestPerfMapUnfinished(t *testing.T) {
	m := OpenPerfMap(strings.NewReader("1000 10 a\n2000 1"), 1<<20)
	if frames, err := m.LookupBatch([]uint64{0x1000}); err != nil || len(frames[0]) != 1 {
		t.Errorf("%v, %v", frames, err)
	}
}

func TestPerfMapLimit(t *testing.T) {
	m := OpenPerfMap(strings.NewReader("1000 10 a\n2000 10 b\n"), 10)
	frames, err := m.LookupBatch([]uint64{0x1000, 0x2000})
	var problems *PerfMapError
	if !errors.As(err, &problems) || problems.Truncated != 10 {
		t.Errorf("error %v, want the limit", err)
	}
	if len(frames[0]) != 1 || len(frames[1]) != 0 {
		t.Errorf("frames %v, want the first function only", frames)
	}
}

func FuzzPerfMap(f *testing.F) {
	f.Add("1000 100 f\n1080 10 g\n", uint64(0x1080))
	f.Fuzz(func(t *testing.T, text string, addr uint64) {
		addrs := []uint64{addr / 2, addr, max(addr, addr+1)}
		frames, _ := OpenPerfMap(strings.NewReader(text), 1<<16).LookupBatch(addrs)
		for i, fs := range frames {
			if len(fs) > 0 && (fs[0].Offset > addrs[i] || fs[0].Name == "") {
				t.Fatalf("%#x: %+v", addrs[i], fs[0])
			}
		}
	})
}
