package jitdump

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"fulgur/internal/symbols/jitdump/jitdumptest"
	"fulgur/internal/symbols/symbolize"
)

// tableOf returns a scanner's copy of a whole file.
func tableOf(t testing.TB, file []byte) (Table, *Scanner) {
	t.Helper()
	s := &Scanner{}
	kept, more, err := s.Scan(bytes.NewReader(file), int64(len(file)), 1<<30)
	if err != nil || more {
		t.Fatalf("scan: more %v, error %v", more, err)
	}
	table := s.table(kept)
	return table, s
}

func (s *Scanner) table(kept []byte) Table {
	return Table{Reader: bytes.NewReader(kept), Size: int64(len(kept)), Order: s.Order(), LineBias: s.LineBias()}
}

// at looks up an address at a time, and returns the function with its offset, file and line.
func at(t testing.TB, tables []Table, address, time uint64) string {
	t.Helper()
	frames, err := Lookup(tables, []Query{{address, time}}, symbolize.Options{})
	if err != nil {
		t.Error(err)
	}
	if len(frames[0]) == 0 {
		return ""
	}
	f := frames[0][0]
	s := fmt.Sprintf("%s+%d", f.Name, f.Offset)
	if f.Line != 0 {
		s += fmt.Sprintf(" %s:%d", f.File, f.Line)
	}
	return s
}

// Lookup returns the function that was at an address at a time.
func TestLookup(t *testing.T) {
	for _, order := range []jitdumptest.Order{binary.LittleEndian, binary.BigEndian} {
		w := &jitdumptest.Writer{Order: order, PID: 42}
		w.Header(1, 0)
		w.Unwinding(5, 10)
		w.Lines(10, 0x1000,
			jitdumptest.Line{Address: 0x1000, Line: 3, File: "a.x"},
			jitdumptest.Line{Address: 0x1010, Line: 4, File: "\xff"},
			jitdumptest.Line{Address: 0x1018, Line: 9, File: "b.x"})
		w.Load(10, 0x1000, 0x20, 1, "old")
		w.Load(10, 0x3000, 0x10, 2, "_ZN5space4nameEi")
		w.Load(20, 0x1000, 0x10, 3, "new")
		w.Move(30, 0x1000, 0x2000, 0x20, 1)
		w.Load(40, 0x2000, 0x20, 1, "index used again")
		w.Record(77, 41, []byte("unknown"))
		w.PID = 43
		w.Load(50, 0x3000, 0x10, 4, "of a child")
		w.PID = 42
		w.Close(60)
		table, s := tableOf(t, w.B)
		if s.Malformed != 0 || s.MalformedLines != 0 || s.PID() != 42 || s.Offset() != int64(len(w.B)) {
			t.Errorf("got %d and %d malformed, pid %d, offset %d", s.Malformed, s.MalformedLines, s.PID(), s.Offset())
		}
		if table.Size > 600 { // without code
			t.Errorf("kept %d bytes", table.Size)
		}
		for _, tc := range []struct {
			address, time uint64
			want          string
		}{
			{0xfff, 15, ""},
			{0x1000, 15, "old+0 a.x:3"},
			{0x100f, 10, "old+15 a.x:3"},
			{0x1010, 19, "old+16 a.x:4"},
			{0x101f, 15, "old+31 b.x:9"},
			{0x1020, 15, ""},
			{0x1000, 5, "old+0 a.x:3"}, // described later
			{0x1000, 20, "new+0"},
			{0x1010, 20, "old+16 a.x:4"}, // not replaced
			{0x2011, 30, "old+17 a.x:4"},
			{0x2011, 40, "index used again+17"},
			{0x3000, 99, "space::name+0"},
		} {
			if got := at(t, []Table{table}, tc.address, tc.time); got != tc.want {
				t.Errorf("%v, %#x at %d: got %q, want %q", order, tc.address, tc.time, got, tc.want)
			}
		}
		table.Until = 20
		if got := at(t, []Table{table}, 0x2011, 40); got != "" {
			t.Errorf("code after a fork: got %q", got)
		}
	}
}

// Among several files, the newest function applies.
func TestLookupFiles(t *testing.T) {
	var tables []Table
	for i, times := range [][2]uint64{{10, 30}, {20, 40}} {
		w := jitdumptest.New(1)
		for _, time := range times {
			w.Load(time, 0x1000, 0x10, 0, fmt.Sprintf("file %d at %d", i, time))
		}
		table, _ := tableOf(t, w.B)
		tables = append(tables, table)
	}
	for time, want := range map[uint64]string{5: "file 0 at 10+0", 10: "file 0 at 10+0", 25: "file 1 at 20+0", 39: "file 0 at 30+0", 99: "file 1 at 40+0"} {
		if got := at(t, tables, 0x1000, time); got != want {
			t.Errorf("at %d: got %q, want %q", time, got, want)
		}
	}
}

// V8 adds the size of an ELF header to the addresses of lines.
func TestLineBias(t *testing.T) {
	w := jitdumptest.New(1)
	w.Lines(1, 0x1000, jitdumptest.Line{Address: 0x1040, Line: 1, File: "a"}, jitdumptest.Line{Address: 0x1110, Line: 2, File: "a"})
	w.Load(1, 0x1000, 0x100, 0, "f")
	raised := slices.Clone(w.B)
	w.Lines(1, 0x2000, jitdumptest.Line{Address: 0x2000, Line: 7, File: "a"})
	w.Load(1, 0x2000, 0x100, 0, "g")

	table, _ := tableOf(t, raised)
	if got := []string{at(t, []Table{table}, 0x1000, 1), at(t, []Table{table}, 0x10d0, 1)}; !slices.Equal(got, []string{"f+0 a:1", "f+208 a:2"}) {
		t.Errorf("with bias: got %q", got)
	}
	table, _ = tableOf(t, w.B)
	if got := []string{at(t, []Table{table}, 0x1000, 1), at(t, []Table{table}, 0x1040, 1)}; !slices.Equal(got, []string{"f+0", "f+64 a:1"}) {
		t.Errorf("without bias: got %q", got)
	}
}

// Lines elsewhere than their function do not affect the others. Erlang describes the code before the
// entry of a function, too, and the end of the function.
func TestStrayLines(t *testing.T) {
	w := jitdumptest.New(1)
	w.Lines(1, 0x1000,
		jitdumptest.Line{Address: 0x1000 - 50, Line: 1053, File: "a"}, jitdumptest.Line{Address: 0x1080, Line: 1069, File: "a"},
		jitdumptest.Line{Address: 0x1100, File: ""})
	w.Load(1, 0x1000, 0x100, 0, "erlang")
	table, s := tableOf(t, w.B)
	if s.MalformedLines != 0 || s.StrayLines != 0 {
		t.Errorf("Erlang: got %d malformed tables, %d stray lines, want none", s.MalformedLines, s.StrayLines)
	}
	for address, want := range map[uint64]string{0x1000: "erlang+0 a:1053", 0x107f: "erlang+127 a:1053", 0x10ff: "erlang+255 a:1069"} {
		if got := at(t, []Table{table}, address, 1); got != want {
			t.Errorf("Erlang: got %q, want %q", got, want)
		}
	}

	w = jitdumptest.New(1)
	w.Lines(1, 0x1000,
		jitdumptest.Line{Address: 0x1000 - maxBefore - 1, Line: 1, File: "a"}, jitdumptest.Line{Address: 0x9000, Line: 2, File: "a"},
		jitdumptest.Line{Address: 0x1010, Line: 3, File: "a"}, jitdumptest.Line{Address: 0, Line: 4, File: "a"})
	w.Load(1, 0x1000, 0x100, 0, "f")
	table, s = tableOf(t, w.B)
	if s.MalformedLines != 0 || s.StrayLines != 3 {
		t.Errorf("got %d malformed tables, %d stray lines, want 0 and 3", s.MalformedLines, s.StrayLines)
	}
	for address, want := range map[uint64]string{0x1000: "f+0", 0x1010: "f+16 a:3", 0x10ff: "f+255 a:3"} {
		if got := at(t, []Table{table}, address, 1); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// Malformed records are counted, and later records are read.
func TestMalformed(t *testing.T) {
	w := jitdumptest.New(1)
	w.Record(recordLoad, 1, make([]byte, 20))
	w.Load(1, ^uint64(0), 0x10, 0, "overflow")
	code := len(w.B)
	w.Load(1, 0x1000, 0x10, 0, "more code than bytes")
	binary.LittleEndian.PutUint64(w.B[code+40:], 0x1000)
	name := len(w.B)
	w.Load(1, 0x1000, 0, 0, "no end")
	w.B[name+len("no end")+loadSize] = 'x'
	w.Record(recordMove, 1, make([]byte, 10))
	w.Move(1, 0x1000, ^uint64(0), 0x10, 0)
	w.Record(recordDebugInfo, 1, make([]byte, 3))
	w.Lines(1, 0x2000, jitdumptest.Line{Address: 0x2000, Line: 1, File: "\xab\x81"}) // not UTF-8
	w.Load(1, 0x2000, 0x10, 0, "freed file name")
	w.Lines(1, 0x3000, jitdumptest.Line{Address: 0x3100, Line: 1, File: "a"})
	w.Load(1, 0x3000, 0x10, 0, "line elsewhere")
	w.Record(recordDebugInfo, 1, append(binary.LittleEndian.AppendUint64(nil, 0x4000), 9, 0, 0, 0, 0, 0, 0, 0))
	w.Load(1, 0x4000, 0x10, 0, "fewer lines")
	w.Lines(1, 0x9000, jitdumptest.Line{Address: 0x5000, Line: 1, File: "a"})
	w.Load(1, 0x5000, 0x10, 0, "another function's lines")
	w.Load(1, 0x6000, 0x10, 0, strings.Repeat("long", maxName))
	table, s := tableOf(t, w.B)
	if s.Malformed != 6 || s.MalformedLines != 4 {
		t.Errorf("got %d malformed records and %d line tables, want 6 and 4", s.Malformed, s.MalformedLines)
	}
	for address, want := range map[uint64]string{0x1000: "", 0x2000: "freed file name+0", 0x3000: "line elsewhere+0", 0x4000: "fewer lines+0", 0x5000: "another function's lines+0"} {
		if got := at(t, []Table{table}, address, 1); got != want {
			t.Errorf("%#x: got %q, want %q", address, got, want)
		}
	}
	if got := at(t, []Table{table}, 0x6000, 1); len(got) != maxName+len("+0") {
		t.Errorf("long name: got %d bytes", len(got))
	}
}

// Files of unknown formats are refused.
func TestFormatErrors(t *testing.T) {
	header := func(version uint32, flags uint64) []byte {
		w := &jitdumptest.Writer{Order: binary.LittleEndian}
		w.Header(version, flags)
		return w.B
	}
	short := header(1, 0)
	short[8] = 39
	for name, tc := range map[string]struct {
		file []byte
		want string
	}{
		"other":      {bytes.Repeat([]byte("x"), 100), "not a jitdump file"},
		"version":    {header(2, 0), "version 2"},
		"clock":      {header(1, 1), "processor's counter"},
		"flags":      {header(1, 2), "flags 0x2"},
		"header":     {short, "header of 39 bytes"},
		"record":     {append(header(1, 0), make([]byte, 16)...), "record of 0 bytes at offset 40"},
		"incomplete": {header(1, 0)[:39], ""},
	} {
		s := &Scanner{}
		for range 2 { // the error stays
			_, _, err := s.Scan(bytes.NewReader(tc.file), int64(len(tc.file)), 1<<20)
			var format *FormatError
			if tc.want == "" && err != nil || tc.want != "" && (!errors.As(err, &format) || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("%s: got error %v, want %q", name, err, tc.want)
			}
		}
	}
}

// A rewritten file is not read as a continuation.
func TestRewritten(t *testing.T) {
	w := jitdumptest.New(1)
	w.Load(1, 0x1000, 0x10, 0, "f")
	other := jitdumptest.New(2)
	other.Load(1, 0x1000, 0x100, 0, "g")
	for name, tc := range map[string]struct {
		file []byte
		want error
	}{"other": {other.B, ErrRewritten}, "shorter": {w.B[:50], ErrTruncated}, "empty": {nil, ErrTruncated}} {
		_, s := tableOf(t, w.B)
		if _, _, err := s.Scan(bytes.NewReader(tc.file), int64(len(tc.file)), 1<<20); !errors.Is(err, tc.want) {
			t.Errorf("%s: got error %v, want %v", name, err, tc.want)
		}
	}
}

// Scan reads little more than its budget, and skips large code.
func TestBudget(t *testing.T) {
	w := jitdumptest.New(1)
	const functions = 40
	for i := range uint64(functions) {
		w.Load(1, i<<20, 3*chunk, 0, fmt.Sprint("f", i))
	}
	r := &counter{r: bytes.NewReader(w.B)}
	s := &Scanner{}
	var all []byte
	calls := 0
	for more := true; more; calls++ {
		kept, again, err := s.Scan(r, int64(len(w.B)), 10*chunk)
		if err != nil {
			t.Fatal(err)
		}
		all, more = append(all, kept...), again
	}
	if calls < 3 || calls > functions/5 || r.n > (functions+2*calls)*chunk {
		t.Errorf("%d calls read %d bytes of %d", calls, r.n, len(w.B))
	}
	if got := at(t, []Table{s.table(all)}, 39<<20, 1); got != "f39+0" {
		t.Errorf("last function: got %q", got)
	}
}

type counter struct {
	r *bytes.Reader
	n int
}

func (c *counter) ReadAt(b []byte, off int64) (int, error) {
	n, err := c.r.ReadAt(b, off)
	c.n += n
	return n, err
}

// Lookups end soon even if all code is at the same address.
func TestWork(t *testing.T) {
	w := jitdumptest.New(1)
	w.Lines(1, 0, jitdumptest.Line{Address: 0, Line: 1, File: "a"})
	w.Load(1, 0, 100, 0, "f")
	table, _ := tableOf(t, w.B)
	queries := make([]Query, 100)
	for i := range queries {
		queries[i] = Query{uint64(i), 1}
	}
	for work, want := range map[int]bool{99: false, 100: false, 10_000: true} {
		frames, err := lookUp([]Table{table}, queries, symbolize.Options{}, work)
		if ok := err == nil; ok != want || !ok && !errors.Is(err, ErrWork) {
			t.Errorf("%d: got error %v", work, err)
		}
		if named := len(frames[0]) > 0; named != (work >= 1) { // without its line
			t.Errorf("%d: first function has a name: %v", work, named)
		}
	}
}

// naive is an independent reader of the format. It returns the function at an address and
// time.
func naive(file []byte, order binary.ByteOrder, address, time uint64) (name string, ok bool) {
	pid := order.Uint32(file[20:])
	names := map[uint64]string{}
	var best, first uint64
	var early bool
	for rest := file[min(order.Uint32(file[8:]), uint32(len(file))):]; len(rest) >= 16; {
		id, size, when := order.Uint32(rest), uint64(order.Uint32(rest[4:])), order.Uint64(rest[8:])
		if size < 16 || size > uint64(len(rest)) {
			break
		}
		r := rest[:size]
		rest = rest[size:]
		var start, length uint64
		var called string
		switch {
		case id == 0 && size > 56:
			start, length = order.Uint64(r[32:]), order.Uint64(r[40:])
			if length > size-56 {
				continue
			}
			before, _, found := bytes.Cut(r[56:size-length], []byte{0})
			if !found && len(before) <= 4097 {
				continue
			}
			called = string(before[:min(len(before), 4096)])
			if start+length >= start && order.Uint32(r[16:]) == pid {
				names[order.Uint64(r[48:])] = called
			}
		case id == 1 && size >= 64:
			start, length = order.Uint64(r[40:]), order.Uint64(r[48:])
			called = names[order.Uint64(r[56:])]
		default:
			continue
		}
		if start+length < start || order.Uint32(r[16:]) != pid || address < start || address >= start+length {
			continue
		}
		switch {
		case when <= time && (!ok || early || when >= best):
			name, ok, early, best = called, true, false, when
		case when > time && (!ok || early && when < first):
			name, ok, early, first = called, true, true, when
		}
	}
	return name, ok
}

// FuzzScan checks that reading a file in two parts gives the same copy as reading it at once,
// and compares functions with [naive].
func FuzzScan(f *testing.F) {
	w := jitdumptest.New(1)
	w.Lines(2, 0x1000, jitdumptest.Line{Address: 0x1001, Line: 3, File: "a"}, jitdumptest.Line{Address: 0x1003, Line: 4, File: "\xff"})
	w.Load(2, 0x1000, 8, 1, "f")
	w.Move(4, 0x1000, 0x1004, 8, 1)
	w.Load(6, 0x1002, 8, 2, "g")
	w.Close(7)
	f.Add(w.B, uint16(60), uint64(5))
	f.Add(w.B, uint16(200), uint64(1))
	f.Fuzz(func(t *testing.T, file []byte, cut uint16, time uint64) {
		whole := &Scanner{}
		kept, _, err := whole.Scan(bytes.NewReader(file), int64(len(file)), 1<<30)
		parts := &Scanner{}
		part := min(int64(cut), int64(len(file)))
		a, _, erra := parts.Scan(bytes.NewReader(file[:part]), part, 1)
		b := []byte(nil)
		errb := erra
		for more := true; more && errb == nil; {
			var next []byte
			next, more, errb = parts.Scan(bytes.NewReader(file), int64(len(file)), 1)
			b = append(b, next...)
		}
		if (err == nil) != (errb == nil) || !bytes.Equal(kept, append(a, b...)) || whole.Malformed != parts.Malformed || whole.LineBias() != parts.LineBias() {
			t.Fatalf("whole: %d bytes, %v; in parts: %d bytes, %v", len(kept), err, len(a)+len(b), errb)
		}
		// Arbitrary bytes instead of a copy: Lookup may fail, but must not hang or panic.
		for _, order := range []binary.ByteOrder{binary.LittleEndian, binary.BigEndian} {
			garbage := Table{Reader: bytes.NewReader(file), Size: int64(len(file)), Order: order}
			_, _ = Lookup([]Table{garbage}, []Query{{0, time}, {0x1000, time}}, symbolize.Options{})
		}
		if whole.Order() == nil {
			return
		}
		var queries []Query
		for address := range uint64(20) {
			queries = append(queries, Query{0x0ffa + address, time})
		}
		frames, err := Lookup([]Table{whole.table(kept)}, queries, symbolize.Options{NoDemangle: true})
		if err != nil {
			t.Fatal(err)
		}
		for i, q := range queries {
			want, _ := naive(file, whole.Order(), q.Address, q.Time)
			got := ""
			if len(frames[i]) > 0 {
				got = frames[i][0].Name
			}
			if want = symbolize.NewFrame([]byte(want), 0, symbolize.Options{NoDemangle: true}).Name; got != want {
				t.Errorf("%#x at %d: got %q, want %q", q.Address, q.Time, got, want)
			}
		}
	})
}
