package symbolize

import (
	"errors"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

func TestPerfMap(t *testing.T) {
	const text = `1000 100 old one
1080 10 LazyCompile:~add /srv/app.js:3:12
0x0000000000002000 0x0000000000000010 void Prefixed::by(JDK)
0x 10 no number
malformed

zz 10 not hexadecimal
3000 10
7f0000000000 20 last without newline`
	m := OpenPerfMap(strings.NewReader(text), 1<<20)
	addrs := []uint64{0xfff, 0x1000, 0x1080, 0x108f, 0x1090, 0x10ff, 0x1100, 0x200f, 0x3000, 0x7f000000001f}
	want := []string{"", "old one", "LazyCompile:~add /srv/app.js:3:12", "LazyCompile:~add /srv/app.js:3:12", "old one", "old one", "", "void Prefixed::by(JDK)", "", "last without newline"}
	frames, err := m.LookupBatch(addrs)
	var problems *PerfMapError
	if !errors.As(err, &problems) || problems.Malformed != 5 || problems.Truncated != 0 {
		t.Errorf("got error %v, want 5 malformed lines", err)
	}
	for i, addr := range addrs {
		got := ""
		if len(frames[i]) == 1 {
			got = frames[i][0].Name
		}
		if got != want[i] {
			t.Errorf("%#x: got %q, want %q", addr, got, want[i])
		}
	}
	if f := frames[5][0]; f.Offset != 0xff {
		t.Errorf("got offset %#x, want 0xff", f.Offset)
	}
}

// An incomplete last line is being written, and is not malformed.
func TestPerfMapUnfinished(t *testing.T) {
	m := OpenPerfMap(strings.NewReader("1000 10 a\n2000 1"), 1<<20)
	if frames, err := m.LookupBatch([]uint64{0x1000}); err != nil || len(frames[0]) != 1 {
		t.Errorf("got %v, %v; want one frame", frames, err)
	}
}

func TestPerfMapLimit(t *testing.T) {
	m := OpenPerfMap(strings.NewReader("1000 10 a\n2000 10 b\n"), 10)
	frames, err := m.LookupBatch([]uint64{0x1000, 0x2000})
	var problems *PerfMapError
	if !errors.As(err, &problems) || problems.Truncated != 10 {
		t.Errorf("got error %v, want the limit", err)
	}
	if len(frames[0]) != 1 || len(frames[1]) != 0 {
		t.Errorf("got frames %v, want only the first function", frames)
	}
}

// Names do not depend on malformed lines, and match a simple reader that goes line by
// line.
func FuzzPerfMap(f *testing.F) {
	f.Add("1000 100 f\n1080 10 g\n", uint64(0x1080))
	f.Add("0x1000 0X100 f\n0x 1 g\nffffffffffffff00 200 top\n", uint64(0xffffffffffffff80))
	f.Add("1000 100 f\n\n1000 0 none\n10000000000000000 1 long\n0x0x10 1 twice\n", uint64(0x1080))
	f.Fuzz(func(t *testing.T, text string, addr uint64) {
		if len(text) > 1<<16 {
			return // lines beyond the limit are not read
		}
		addrs := []uint64{addr / 2, addr, max(addr, addr+1)}
		frames, err := OpenPerfMap(strings.NewReader(text), 1<<16).LookupBatch(addrs)
		var problems *PerfMapError
		if err != nil && !errors.As(err, &problems) {
			t.Fatal(err)
		}
		malformed, want := readPerfMap(text, addrs)
		if problems == nil {
			problems = &PerfMapError{}
		}
		if problems.Malformed != malformed {
			t.Errorf("got %d malformed lines, want %d", problems.Malformed, malformed)
		}
		for i, fs := range frames {
			switch {
			case want[i] == nil && len(fs) == 0:
			case want[i] == nil || len(fs) != 1:
				t.Fatalf("%#x: got %+v, want %+v", addrs[i], fs, want[i])
			case fs[0].Name != NewFrame([]byte(want[i].name), 0, Options{NoDemangle: true}).Name || fs[0].Offset != addrs[i]-want[i].start:
				t.Fatalf("%#x: got %+v, want %+v", addrs[i], fs, want[i])
			}
		}
	})
}

// perfMapLine is a line of a perf map.
type perfMapLine struct {
	start, size uint64
	name        string
}

// readPerfMap is an independent reader of perf maps. It returns the number of malformed
// lines and the last line that covers each address.
func readPerfMap(text string, addrs []uint64) (malformed int, covering []*perfMapLine) {
	covering = make([]*perfMapLine, len(addrs))
	lines := strings.Split(text, "\n")
	unfinished := lines[len(lines)-1] // empty if the last line is complete
	if unfinished == "" {
		lines = lines[:len(lines)-1]
	}
	for n, line := range lines {
		match := perfMapPattern.FindStringSubmatch(line)
		var l perfMapLine
		var err1, err2 error
		if match != nil {
			l.start, err1 = strconv.ParseUint(match[1], 16, 64)
			l.size, err2 = strconv.ParseUint(match[2], 16, 64)
			l.name = match[3]
		}
		if match == nil || err1 != nil || err2 != nil {
			if n < len(lines)-1 || unfinished == "" {
				malformed++
			}
			continue
		}
		for i, addr := range addrs {
			if addr >= l.start && addr-l.start < l.size {
				covering[i] = &l
			}
		}
	}
	return malformed, covering
}

var perfMapPattern = regexp.MustCompile(`(?s)^(?:0[xX])?([0-9a-fA-F]+) (?:0[xX])?([0-9a-fA-F]+) (.+)$`)
