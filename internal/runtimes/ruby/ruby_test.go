package ruby

import (
	"encoding/binary"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"fulgur/internal/runtimes"
	"fulgur/internal/symbols/elffile"
	"fulgur/internal/testenv"
)

// library returns the file of Debian's Ruby that has the runtime, and its version.
func library(t *testing.T) (path, version string) {
	t.Helper()
	text, err := exec.Command(testenv.Tool(t, "ruby"), "--disable-gems", "-e",
		`puts RUBY_VERSION, File.foreach("/proc/self/maps").grep(/ r-xp .*libruby/)[0].split[-1]`).Output()
	if err != nil {
		t.Fatal(err)
	}
	f := strings.Fields(string(text))
	if len(f) != 2 {
		t.Fatalf("got %q, want a version and a file", text)
	}
	return f[1], f[0]
}

func open(t testing.TB, path string) *elffile.File {
	t.Helper()
	f, err := elffile.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// onAMD64 skips the test on other machines, whose Ruby is not supported.
func onAMD64(t *testing.T) {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		testenv.Unsupported(t, "fulgur reads Ruby's frames only on amd64")
	}
}

// The version matches the interpreter's output, and rb_vm_exec is found as in stripped files.
func TestDetect(t *testing.T) {
	onAMD64(t)
	path, version := library(t)
	f := open(t, path)
	b, err := Runtime{}.Detect(f)
	if err != nil || b == nil {
		t.Fatalf("%s: %v, %v", path, b, err)
	}
	if b.Version != version || b.Unknown != "" {
		t.Errorf("%s: got version %s, %q, want %s", path, b.Version, b.Unknown, version)
	}
	entry := b.Entry
	b.Place(&entry, 0x1000, true)
	if entry.Ruby.Context.At != b.Entry.Ruby.Context.At+0x1000 || entry.Ruby.Interpreter.Start != b.Entry.Ruby.Interpreter.Start+0x1000 || entry.Ruby.Interpreter.End != b.Entry.Ruby.Interpreter.End+0x1000 {
		t.Errorf("%s: got entry %+v, want the addresses moved by 0x1000", path, entry)
	}
}

// A file without CRuby has no build.
func TestDetectNone(t *testing.T) {
	if b, err := (Runtime{}).Detect(open(t, testenv.Tool(t, "readelf"))); b != nil || err != nil {
		t.Errorf("got %+v, %v; want nil", b, err)
	}
}

// index returns the index of a table whose entries have the given ascending positions, below
// size. It has the format of succ_index_table_create in Ruby's iseq.c.
func index(positions []int, size int) []byte {
	rank := func(position int) (n int) {
		for _, p := range positions {
			if p <= position {
				n++
			}
		}
		return n
	}
	var words []uint64
	for at := 0; at < min((size+8)/9*9, 54); at += 9 {
		var w uint64
		for i := range 9 {
			w |= uint64(rank(at+i)) << (7 * i)
		}
		words = append(words, w)
	}
	for at := 54; at < size; at += 512 {
		w := make([]uint64, 10)
		w[0] = uint64(rank(at - 1))
		for i := 1; i < 8; i++ {
			w[1] |= uint64(rank(at+64*i-1)-rank(at-1)) << (9 * (i - 1))
		}
		for _, p := range positions {
			if p >= at && p < at+512 {
				w[2+(p-at)/64] |= 1 << ((p - at) % 64)
			}
		}
		words = append(words, w...)
	}
	var b []byte
	for _, w := range words {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	return b
}

// table returns a line table as the kernel side sends it.
func table(positions, lines []int, size int) string {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(lines)*12))
	for _, l := range lines {
		b = binary.LittleEndian.AppendUint32(b, uint32(l))
		b = append(b, make([]byte, 8)...)
	}
	return string(append(b, index(positions, size)...))
}

// A position has the line of the last entry at or before it.
func TestLine(t *testing.T) {
	var positions, lines []int
	for p := 0; p < 1500; p += 1 + p%17 {
		positions, lines = append(positions, p), append(lines, 10+len(lines))
	}
	c := runtimes.Code{FirstLine: 7, Lines: table(positions, lines, 1500)}
	entry := 0
	for p := range 1500 {
		if entry+1 < len(positions) && positions[entry+1] == p {
			entry++
		}
		if got := (Runtime{}).Line(&c, p); got != lines[entry] {
			t.Fatalf("got line %d at position %d, want %d", got, p, lines[entry])
		}
	}
	if got := (Runtime{}).Line(&c, -1); got != 7 {
		t.Errorf("got line %d before the first instruction, want 7", got)
	}
	one := runtimes.Code{Lines: table([]int{0}, []int{5}, 0)}
	if got := (Runtime{}).Line(&one, 99); got != 5 {
		t.Errorf("got line %d of code in one line, want 5", got)
	}
	// Positions beyond the part that the kernel side sends have no lines.
	cut := runtimes.Code{Lines: c.Lines[:len(c.Lines)-80]}
	if got := (Runtime{}).Line(&cut, 1499); got != 0 {
		t.Errorf("got line %d beyond the table, want none", got)
	}
}

// Arbitrary tables give a line or none.
func FuzzLine(f *testing.F) {
	f.Add([]byte(table([]int{0, 3, 60, 700}, []int{1, 2, 9, 4}, 800)), 61)
	f.Add([]byte(table([]int{0}, []int{1}, 3)), 2)
	f.Fuzz(func(t *testing.T, table []byte, position int) {
		c := runtimes.Code{FirstLine: 7, Lines: string(table)}
		line := Runtime{}.Line(&c, position)
		if line == 0 || position < 0 {
			return
		}
		for at := entriesAt; at+4 <= len(table); at += entrySize {
			if int(int32(binary.LittleEndian.Uint32(table[at:]))) == line {
				return
			}
		}
		t.Errorf("got line %d, which no entry has", line)
	})
}
