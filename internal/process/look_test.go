package process

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	osexec "os/exec"
	"slices"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"fulgur/internal/files/safeopen"
	"fulgur/internal/linux/monotonic"
	"fulgur/internal/linux/procfs"
	"fulgur/internal/symbols/elffile"
	"fulgur/internal/testenv"
)

// Code is that of its file even if no record says so: moved code, code that another process with the
// same memory mapped, and copies in other memory. Memory in the place of a file's code with other
// bytes, or with bytes that may change, is not the file's.
func TestLooks(t *testing.T) {
	testenv.EveryKernel(t)
	program := testenv.Compile(t, "moves", "gcc", "-O1", "-Wall", "-Wextra", "-Werror", "testdata/moves.c", "-ldl", "-pthread")
	library := testenv.Compile(t, "libmoved.so", "gcc", "-O2", "-shared", "-fPIC", "testdata/moved.c")
	want := uint64(0)
	for _, s := range testenv.Symbols(t, library) {
		if s.Name == "moved_outer" {
			want = s.Value
		}
	}
	for _, before := range []bool{true, false} { // whether the table knows the process before
		for way, kind := range map[string]Kind{
			"moved": KindFile, "ended": KindFile, "clone": KindFile, "anonymous": KindFile, "shared": KindFile, "memfd": KindFile,
			"deleted": KindFile, "elsewhere": KindFile, "elsewhere, other code": KindAnon, "shifted": KindAnon, "writable": KindAnon,
		} {
			t.Run(fmt.Sprintf("%s, known before: %t", way, before), func(t *testing.T) {
				table, drain := listen(t)
				replaced, mapped := 0, 0
				cmd := osexec.Command(program, library, way)
				in, out := start(t, cmd)
				awaitReady(t, out)
				if way == "ended" {
					testenv.Await(t, func() bool {
						stat, err := procfs.Process(cmd.Process.Pid).Stat()
						return err == nil && stat.Exited()
					}, func() string { return "the first thread still runs" })
				}
				if before {
					drain()
					table.Mappings(cmd.Process.Pid)
				}
				if _, err := io.WriteString(in, "go\n"); err != nil {
					t.Fatal(err)
				}
				pid, addr := 0, uint64(0)
				if _, err := fmt.Fscanf(out, "%d %x\n", &pid, &addr); err != nil {
					t.Fatal(err)
				}
				drain()
				table.OnReplaced(func(int) { replaced++ })
				table.OnMapped(func(int) { mapped++ })
				l := table.Resolve(pid, addr, monotonic.Now())
				if l.Kind != kind {
					t.Fatalf("got %v, want %v", l, kind)
				}
				if kind != KindFile {
					return
				}
				// The library's segments have equal addresses and offsets.
				if l.File.Path != library || l.Offset != want {
					t.Errorf("got %v, want %s+%#x", l, library, want)
				}
				if before && (replaced == 0 || mapped == 0) {
					t.Errorf("stacks from before: %d notes of replaced and %d of mapped code, want some", replaced, mapped)
				}
				maps := table.Mappings(pid)
				at := slices.IndexFunc(maps, func(m Mapping) bool { return m.Start <= addr && addr < m.Limit })
				if at < 0 || maps[at].File == nil || maps[at].File.Path != library {
					t.Errorf("got %+v for the unwind tables, want %s among them", maps, library)
				}
			})
		}
	}
}

// A copy at another address is found if all of its pages, except for the end of the last one, are those of a
// file in their order.
func TestFindPages(t *testing.T) {
	page := os.Getpagesize()
	file := make([]byte, 70*page)
	for i := range file {
		file[i] = byte(i*7 ^ i>>8*31)
	}
	for k := range 70 {
		binary.LittleEndian.PutUint64(file[k*page:], uint64(k+1))
	}
	copy(file[3*page:4*page], file[20*page:]) // begins like the copy
	mem, err := unix.Mmap(-1, 0, 30*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(mem) }()
	start := uint64(uintptr(unsafe.Pointer(&mem[0])))
	for name, test := range map[string]struct {
		from, pages int // of the copy
		changed     int // offset of another byte, or -1
		off, want   int // in pages
	}{
		"whole":               {20, 30, -1, 20, 30},
		"one page":            {21, 1, -1, 21, 1},
		"other end":           {21, 30, 30*page - 1, 21, 29},
		"other code":          {21, 30, 28 * page, 0, 0},
		"beyond the end":      {45, 30, -1, 0, 0},
		"up to the end":       {40, 30, -1, 40, 30},
		"the first one alike": {3, 30, 2 * page, 0, 0},
	} {
		clear(mem)
		copy(mem, file[test.from*page:min(len(file), (test.from+test.pages)*page)])
		if test.changed >= 0 {
			mem[test.changed] ^= 1
		}
		hole := mapping{start: start, limit: start + uint64(test.pages*page)}
		off, length := findPages(bytes.NewReader(file), 0, uint64(len(file)), mem[:page], hole, NewMemory(os.Getpid(), safeopen.NewBudget()))
		if want := uint64(test.want * page); length != want || length > 0 && off != uint64(test.off*page) {
			t.Errorf("%s: got %#x bytes from %#x, want %d pages from %d", name, length, off, test.want, test.off)
		}
	}
}

// The table looks at a process rarely, and less and less often if there is nothing to find.
func TestLookRest(t *testing.T) {
	table, drain := listen(t)
	cmd := osexec.Command(testenv.Tool(t, "cat"))
	start(t, cmd)
	pid := cmd.Process.Pid
	testenv.Await(t, func() bool { return len(table.Mappings(pid)) > 0 }, func() string { return "no mappings" })
	drain()
	i := table.image(pid)
	const nowhere = 0x123456789000
	testenv.Await(t, func() bool { // on a busy machine, a look may fail
		i.looks.next, table.looks.free = 0, 0
		if l := table.Resolve(pid, nowhere, monotonic.Now()); l.Kind != KindUnknown {
			t.Fatalf("got %v", l)
		}
		return i.looks.last != 0
	}, func() string { return "no look succeeds" })
	first := i.looks
	table.Resolve(pid, nowhere, monotonic.Now())
	if first.next < first.last+uint64(lookRest) || i.looks != first {
		t.Fatalf("got %+v after a look, and %+v after another one, want a rest of %s at least", first, i.looks, lookRest)
	}
	for range 10 {
		i.looks.next, table.looks.free = 0, 0
		table.Resolve(pid, nowhere, monotonic.Now())
	}
	if i.looks.rest != maxLookRest {
		t.Errorf("got a rest of %s after looks without a result, want %s", i.looks.rest, maxLookRest)
	}
	last := i.looks.last
	i.looks.next, table.looks.free = 0, monotonic.Now()+uint64(time.Hour)
	table.Resolve(pid, nowhere, monotonic.Now())
	table.looks.free = 0
	table.Resolve(pid, 8, monotonic.Now())             // the first page
	table.Resolve(pid, 1<<63+8, monotonic.Now())       // the kernel's half
	table.Resolve(pid, nowhere, i.from-min(i.from, 1)) // another image, if there was one
	if i.looks.last != last && i.from != 0 {
		t.Error("looked too early, or for an address that no process has")
	}
}

// All processes together have a limit, too.
func TestLimiter(t *testing.T) {
	var l limiter
	now, n := uint64(time.Hour), 0
	for ; l.admits(now); n++ {
		l.took(now, now+1000)
	}
	if n < 5 || n > 20 {
		t.Errorf("got %d looks at once, want about %d", n, looksBurst/looksPause)
	}
	spent, n := uint64(0), 0
	for end := now + uint64(time.Minute); now < end; now += uint64(time.Millisecond) {
		if l.admits(now) {
			took := uint64(10 * time.Millisecond)
			l.took(now, now+took)
			spent, n = spent+took, n+1
		}
	}
	if share := float64(spent) / float64(time.Minute); n < 100 || share > 1.1/looksShare {
		t.Errorf("%d looks took %.3f of the time, want at most 1/%d", n, share, looksShare)
	}
}

// A look adds mappings where none were known, and replaces others from its own time on. It keeps
// mappings of which records arrived later than /proc was read.
func TestLearn(t *testing.T) {
	a, b := &File{Key: FileKey{Ino: 1}}, &File{Key: FileKey{Ino: 2}}
	at := func(start, limit, from uint64, f *File) mapping {
		return mapping{start: start, limit: limit, off: start, from: from, file: f, kind: KindFile}
	}
	for name, test := range map[string]struct {
		known []mapping
		shown mapping
		new   bool
		want  []where // by time
	}{
		"nothing known":      {nil, at(10, 20, 0, a), true, []where{{addr: 10, time: 4, want: ""}, {addr: 10, time: 5, want: "a"}, {addr: 19, time: 99, want: "a"}}},
		"known":              {[]mapping{at(10, 20, 1, a)}, at(10, 20, 0, a), false, []where{{addr: 10, time: 1, want: "a"}}},
		"same inode":         {[]mapping{at(10, 20, 1, a)}, at(10, 20, 0, &File{Key: FileKey{Ino: 1, Gen: 7}}), false, []where{{addr: 10, time: 1, want: "a"}}},
		"partly known":       {[]mapping{at(12, 14, 1, a), at(16, 18, 1, a)}, at(10, 20, 0, a), true, []where{{addr: 10, time: 5, want: "a"}, {addr: 15, time: 5, want: "a"}, {addr: 19, time: 5, want: "a"}, {addr: 13, time: 1, want: "a"}}},
		"another file":       {[]mapping{at(10, 20, 1, b)}, at(12, 16, 0, a), true, []where{{addr: 12, time: 9, want: "b"}, {addr: 12, time: 10, want: "a"}, {addr: 16, time: 10, want: "b"}}},
		"a record from then": {[]mapping{at(10, 20, 11, b)}, at(10, 20, 0, a), false, []where{{addr: 12, time: 10, want: ""}, {addr: 12, time: 11, want: "b"}}},
		"a copy":             {[]mapping{{start: 10, limit: 20, off: 10, from: 1, file: a, kind: KindFile, copied: true}}, mapping{start: 10, limit: 20, kind: KindAnon}, false, []where{{addr: 12, time: 9, want: "a"}}},
	} {
		i := &image{}
		for _, m := range test.known {
			i.live = i.live.With(m)
		}
		if got := i.learn(test.shown, i.mappings(), 5, 10); got != test.new {
			t.Errorf("%s: got %v, want %v", name, got, test.new)
		}
		for _, w := range test.want {
			m, ok := i.lookup(w.addr, w.time)
			got := map[bool]string{ok && m.file != b: "a", ok && m.file == b: "b"}[true]
			if got != w.want {
				t.Errorf("%s: %d at %d: got %q, want %q", name, w.addr, w.time, got, w.want)
			}
		}
	}
}

// A copy may have a few other bytes: breakpoints, patched calls.
func TestSamePages(t *testing.T) {
	code := make([]byte, 3*comparedPage/2)
	for n := range code {
		code[n] = byte(n*n>>3 + n)
	}
	patched := slices.Clone(code)
	for n := 0; n < len(patched); n += 16 {
		patched[n]++
	}
	other := slices.Clone(code)
	copy(other[comparedPage:], bytes.Repeat([]byte{0xcc}, 1000))
	short, shifted := make([]byte, comparedPage), make([]byte, comparedPage)
	copy(short, code[:300])
	copy(shifted[16:], code[:300])
	for name, test := range map[string]struct {
		want, got []byte
		same      bool
	}{
		"equal": {code, code, true}, "patched": {code, patched, true}, "another page": {code, other, false},
		"short": {short, short, true}, "short, other": {short, shifted, false}, "zeros": {short, make([]byte, comparedPage), false},
		"other than zeros": {make([]byte, comparedPage), short, false},
	} {
		if got := samePages(test.want, test.got); got != test.same {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

// Whatever a file's segments are, the code that belongs in a hole is in it, and in the file.
func FuzzPlace(f *testing.F) {
	add := func(size, start, off uint64, segments ...uint64) {
		var b []byte
		for _, n := range segments {
			b = binary.LittleEndian.AppendUint64(b, n)
		}
		f.Add(b, size, start, off, uint64(0x7f0000001000), uint64(0x7f0000003000))
	}
	add(0x4000, 0x7f0000000000, 0, 4, 0, 0, 0x500, 5, 0x1000, 0x1000, 0x1fff, 4, 0x3000, 0x3000, 0x100)
	add(0x4000, 0x7f0000003000, 0x3000, 5, 0x1010, 0x1010, 0x1f00, 4, 0x3000, 0x3000, 0x100)
	add(1<<63, 0x7f0000000000, 0, 5, 0, 1<<63, 1<<63, 5, 1<<62, 1<<63-1, 1<<62)
	f.Fuzz(func(t *testing.T, b []byte, size, start, off, from, until uint64) {
		var segments []elffile.Segment
		for ; len(b) >= 32; b = b[32:] {
			n := func(k int) uint64 { return binary.LittleEndian.Uint64(b[8*k:]) }
			segments = append(segments, elffile.Segment{Type: elf.PT_LOAD, Flags: elf.ProgFlag(n(0)), Offset: n(1), Addr: n(2), FileSize: n(3)})
		}
		m := mapping{start: start, limit: start + 1, off: off, file: &File{}, kind: KindFile}
		for _, c := range m.place(segments, size, mapping{start: from, limit: until, kind: KindAnon}) {
			first, last := c.from-c.start+c.off, c.until-1-c.start+c.off
			if c.start < from || c.limit > until || c.from < c.start || c.until > c.limit || c.from >= c.until || first > last || last >= size {
				t.Errorf("%+v for a hole from %#x to %#x and a file of %#x bytes", c, from, until, size)
			}
		}
	})
}

// The code belongs where the file's segments say, according to the mapping next to the hole.
func TestPlace(t *testing.T) {
	segments := []elffile.Segment{
		{Type: elf.PT_LOAD, Flags: elf.PF_R, FileSize: 0x500},
		{Type: elf.PT_LOAD, Flags: elf.PF_R | elf.PF_X, Offset: 0x1010, Addr: 0x2010, FileSize: 0x1ff0},
		{Type: elf.PT_LOAD, Flags: elf.PF_R | elf.PF_W, Offset: 0x3000, Addr: 0x5000, FileSize: 0x100},
	}
	const base = 0x7f0000000000
	hole := mapping{start: base + 0x1000, limit: base + 0x5000, kind: KindAnon, from: 7}
	f := &File{}
	text := code{
		mapping{start: base + 0x2000, limit: base + 0x4000, off: 0x1000, from: 7, file: f, kind: KindFile, copied: true},
		base + 0x2010, base + 0x4000,
	}
	for _, m := range []mapping{{start: base, file: f}, {start: base + 0x5000, off: 0x3000, file: f}, {start: base + 0x2000, off: 0x1000, file: f}} {
		if got := m.place(segments, 0x4000, hole); !slices.Equal(got, []code{text}) {
			t.Errorf("next to %#x: got %+v, want %+v", m.start, got, text)
		}
	}
	for name, m := range map[string]mapping{
		"another place": {start: base + 0x100000, file: f}, "beyond the file": {start: base, off: 0x4000, file: f}, "not at a page": {start: base + 8, file: f},
	} {
		if got := m.place(segments, 0x4000, hole); len(got) > 0 {
			t.Errorf("%s: got %+v, want none", name, got)
		}
	}
}
