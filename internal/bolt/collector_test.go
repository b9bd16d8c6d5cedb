package bolt

import (
	"bytes"
	"flag"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fulgur/internal/symbols/elffile"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// testBinary returns a binary with code at link-time addresses 0x1000 to 0x2000, from
// page 0 of the file.
func testBinary(name string) *Binary {
	return &Binary{
		Name: name, ExecutableBytes: 100, base: 0x1000,
		code: []elffile.Segment{{Addr: 0x1000, FileSize: 0x1000}},
	}
}

// testLayout maps app at 0x401000 and lib at 0x801000.
func testLayout(t testing.TB, app, lib *Binary) Layout {
	t.Helper()
	var l Layout
	for _, m := range []struct {
		b     *Binary
		start uint64
	}{{lib, 0x801000}, {app, 0x401000}} {
		r, ok := m.b.Region(m.start, 0x1000, 0)
		if !ok {
			t.Fatal("got no code in the mapping")
		}
		l = l.With(r)
	}
	return l
}

func profiles(t testing.TB, c *Collector) map[string]string {
	t.Helper()
	all := make(map[string]string)
	err := c.Each(func(b *Binary, traces iter.Seq2[Trace, error]) error {
		var out strings.Builder
		err := WriteTraces(&out, traces)
		all[b.Name] = out.String()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestRules splits one sample into traces. The newest entry is first.
func TestRules(t *testing.T) {
	const kernel = 0xffffffff81000000
	for _, tc := range []struct {
		name     string
		opts     Options
		stack    []Entry
		app, lib string
	}{
		{
			name:  "newest has no fall-through",
			stack: []Entry{{From: 0x401020, To: 0x401040}, {From: 0x401010, To: 0x401018, Flags: FlagMispredicted}},
			app:   "T 1010 1018 1020 1\nB 1010 1018 0 1\nB 1020 1040 1 0\n",
		},
		{
			name:  "foreign code",
			stack: []Entry{{From: 0x7f0000, To: 0x401040}, {From: 0x401030, To: 0x7f0010}, {From: 0x7f0008, To: 0x7f0000}, {From: 0x401010, To: 0x401018}},
			app:   "B 0 1040 1 0\nB 1010 1018 1 0\nB 1030 0 1 0\n",
		},
		{
			name:  "foreign code entered and left",
			stack: []Entry{{From: 0x401050, To: 0x7f0000}, {From: 0x7f0000, To: 0x401040}},
			app:   "T 0 1040 1050 1\nB 1050 0 1 0\n",
		},
		{
			name:  "another binary",
			stack: []Entry{{From: 0x801020, To: 0x401018}, {From: 0x401010, To: 0x801008}},
			app:   "B 0 1018 1 0\nB 1010 0 1 0\n",
			lib:   "T 0 1008 1020 1\nB 1020 0 1 0\n",
		},
		{
			name:  "kernel stitched",
			stack: []Entry{{From: 0x401030, To: 0x401040}, {From: kernel, To: 0x401024}, {From: 0x401024, To: kernel}, {From: 0x401010, To: 0x401020}},
			app:   "T 1010 1020 1030 1\nB 1030 1040 1 0\n",
		},
		{
			name:  "kernel strict",
			opts:  Options{Strict: true},
			stack: []Entry{{From: 0x401030, To: 0x401040}, {From: kernel, To: 0x401024}, {From: 0x401024, To: kernel}, {From: 0x401010, To: 0x401020}},
			app:   "B 1010 1020 1 0\nB 1030 1040 1 0\n",
		},
		{
			name:  "kernel foreign",
			opts:  Options{ForeignKernel: true},
			stack: []Entry{{From: 0x401030, To: 0x401040}, {From: kernel, To: 0x401024}, {From: 0x401024, To: kernel}, {From: 0x401010, To: 0x401020}},
			app:   "T 0 1024 1030 1\nT 1010 1020 1024 1\nB 1024 0 1 0\nB 1030 1040 1 0\n",
		},
		{
			name:  "empty entries",
			stack: []Entry{{From: 0x401030, To: 0x401040}, {}, {From: 0x401010, To: 0x401020}, {}},
			app:   "B 1010 1020 1 0\nB 1030 1040 1 0\n",
		},
		{
			name:  "wrong path",
			opts:  Options{Strict: true},
			stack: []Entry{{From: 0x401030, To: 0x401040}, {From: 0x401024, To: 0x401100, Flags: FlagWrongPath}, {From: 0x401010, To: 0x401020, Flags: 2 << specShift}},
			app:   "T 1010 1020 1030 1\nB 1030 1040 1 0\n",
		},
		{
			name:  "aborted",
			stack: []Entry{{From: 0x401030, To: 0x401040}, {From: 0x401024, To: 0x401028, Flags: FlagAbort}, {From: 0x401010, To: 0x401020}},
			app:   "B 1010 1020 1 0\nB 1030 1040 1 0\n",
		},
		{
			name:  "duplicate kept",
			opts:  Options{Duplicates: KeepDuplicates},
			stack: []Entry{{From: 0x401030, To: 0x401020}, {From: 0x401030, To: 0x401020}, {From: 0x401010, To: 0x401028}},
			app:   "T 1010 1028 1030 1\nT 1030 1020 1030 1\nB 1030 1020 1 0\n",
		},
		{
			name:  "duplicate dropped",
			opts:  Options{Duplicates: DropDuplicates},
			stack: []Entry{{From: 0x401030, To: 0x401020}, {From: 0x401030, To: 0x401020}, {From: 0x401010, To: 0x401028}},
			app:   "T 1010 1028 1030 1\nB 1030 1020 1 0\n",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			app, lib := testBinary("app"), testBinary("lib")
			c := NewCollector(tc.opts)
			defer c.Close()
			c.Register(app)
			c.Register(lib)
			if err := c.Add(testLayout(t, app, lib), tc.stack); err != nil {
				t.Fatal(err)
			}
			want := map[string]string{"app": tc.app, "lib": tc.lib}
			if diff := cmp.Diff(want, profiles(t, c)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestUnregistered checks that other binaries count as foreign code.
func TestUnregistered(t *testing.T) {
	app, lib := testBinary("app"), testBinary("lib")
	c := NewCollector(Options{})
	defer c.Close()
	c.Register(app)
	c.Add(testLayout(t, app, lib), []Entry{{From: 0x801020, To: 0x801018}, {From: 0x401010, To: 0x801008}})
	if diff := cmp.Diff(map[string]string{"app": "B 1010 0 1 0\n"}, profiles(t, c)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if s := c.Stats(); s.Foreign != 1 || s.Inside != 1 || s.InsideShare() != 0.5 {
		t.Errorf("got stats %+v, want one foreign and one inside", s)
	}
}

// TestDetectDuplicates checks that repeated entries are dropped only if the processor
// duplicates them.
func TestDetectDuplicates(t *testing.T) {
	loop := []Entry{{From: 0x401030, To: 0x401030}, {From: 0x401030, To: 0x401030}, {From: 0x401030, To: 0x401030}, {From: 0x401010, To: 0x401028}}
	plain := []Entry{{From: 0x401030, To: 0x401020}, {From: 0x401018, To: 0x401028}, {From: 0x401010, To: 0x401014}}
	duplicate := append([]Entry{plain[0]}, plain...)
	for _, tc := range []struct {
		name   string
		stacks [][]Entry
		drop   bool
	}{
		{"Skylake server", [][]Entry{plain, plain, plain, duplicate}, true},
		{"hot loops", [][]Entry{plain, loop, loop, plain}, false},
		{"none", [][]Entry{plain}, false},
		{"nothing", nil, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			app, lib := testBinary("app"), testBinary("lib")
			c := NewCollector(Options{})
			defer c.Close()
			c.Register(app)
			for _, s := range tc.stacks {
				c.Add(testLayout(t, app, lib), s)
			}
			if got := c.Stats().Duplicate > 0; got != tc.drop {
				t.Errorf("duplicates dropped: got %t, want %t (%+v)", got, tc.drop, c.Stats())
			}
		})
	}
}

// randomStacks returns n samples of a small program. Each call returns the same ones.
func randomStacks(n int) [][]Entry {
	rng := rand.New(rand.NewPCG(3, 4))
	addr := func() uint64 { return 0x401000 + uint64(rng.IntN(256))*16 }
	stacks := make([][]Entry, n)
	for i := range stacks {
		for range 32 {
			e := Entry{From: addr(), To: addr()}
			if rng.IntN(8) == 0 {
				e.Flags = FlagMispredicted
			}
			stacks[i] = append(stacks[i], e)
		}
	}
	return stacks
}

// TestSpill checks that the profile is the same with little memory and many temporary files.
func TestSpill(t *testing.T) {
	run := func(memory int) (string, int) {
		app, lib := testBinary("app"), testBinary("lib")
		c := NewCollector(Options{Memory: memory})
		defer c.Close()
		c.Register(app)
		l := testLayout(t, app, lib)
		for _, s := range randomStacks(3000) {
			if err := c.Add(l, s); err != nil {
				t.Fatal(err)
			}
		}
		runs := len(c.counter.runs)
		return profiles(t, c)["app"], runs
	}
	want, runs := run(64 << 20)
	if runs != 0 {
		t.Errorf("got %d runs with much memory, want 0", runs)
	}
	got, runs := run(1)
	if runs == 0 || runs > maxFanIn {
		t.Errorf("got %d runs with little memory, want 1 to maxFanIn", runs)
	}
	if got != want {
		t.Error("got another profile with little memory")
	}
}

// TestCountOverflow counts beyond 32 bits.
func TestCountOverflow(t *testing.T) {
	c := newCounter(1 << 20)
	defer c.close()
	k := key{binary: 2, from: 1, to: 2, end: 3}
	const many = 10_000_000_000
	if err := c.addMany(k, many); err != nil {
		t.Fatal(err)
	}
	var got uint64
	for r, err := range c.records() {
		if err != nil {
			t.Fatal(err)
		}
		got += uint64(r.count)
	}
	if got != many {
		t.Errorf("got count %d, want %d", got, uint64(many))
	}
}

// TestFormats writes the same traces in all formats.
func TestFormats(t *testing.T) {
	traces := func(yield func(Trace, error) bool) {
		for _, tr := range []Trace{
			{From: 0, To: 0x1100, End: 0x1104, Count: 1},
			{From: 0x1010, To: 0x1100, End: 0, Count: 3, Mispredicted: 1},
			{From: 0x1010, To: 0x1100, End: 0x1104, Count: 4, Mispredicted: 2},
			{From: 0x1018, To: 0x1014, End: 0x1018, Count: 6},
			{From: 0x1018, To: 0x1200, End: 0x1204, Count: 2},
			{From: 0x1104, To: 0x1014, End: 0x1018, Count: 4},
			{From: 0x1204, To: 0x0, Count: 5},
		} {
			if !yield(tr, nil) {
				return
			}
		}
	}
	b := testBinary("app")
	functions := &Functions{ranges: []span{{0x1000, 0x1020}, {0x1100, 0x1110}}}
	for name, write := range map[string]func(*bytes.Buffer) error{
		"traces":   func(w *bytes.Buffer) error { return WriteTraces(w, traces) },
		"branches": func(w *bytes.Buffer) error { return WriteBranches(w, b, functions, traces, 0) },
		"basic":    func(w *bytes.Buffer) error { return WriteBasic(w, "cycles:u", traces) },
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			if err := write(&out); err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join("testdata", name+".preagg")
			if *update {
				if err := os.WriteFile(golden, out.Bytes(), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), out.String()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if err := WriteBasic(&bytes.Buffer{}, "two words", traces); err == nil {
		t.Error("got no error for an event name of two words")
	}
}

// TestBasic counts addresses.
func TestBasic(t *testing.T) {
	app, lib := testBinary("app"), testBinary("lib")
	c := NewCollector(Options{})
	defer c.Close()
	c.Register(app)
	for _, addr := range []uint64{0x401010, 0x401020, 0x401010, 0x801000, 5} {
		if err := c.AddAddress(testLayout(t, app, lib), addr, 1); err != nil {
			t.Fatal(err)
		}
	}
	var out strings.Builder
	if err := c.Each(func(_ *Binary, traces iter.Seq2[Trace, error]) error { return WriteBasic(&out, "cpu-clock", traces) }); err != nil {
		t.Fatal(err)
	}
	if got, want := out.String(), "E cpu-clock\nS 1010 2\nS 1020 1\n"; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if s := c.Stats(); s.Samples != 5 || s.Inside != 3 || s.Foreign != 2 {
		t.Errorf("got stats %+v, want 5 samples, 3 inside, 2 foreign", s)
	}
}

// A mapping that covers a part of an older one leaves the rest of it.
func TestLayout(t *testing.T) {
	app, lib := testBinary("app"), testBinary("lib")
	of := func(b *Binary, start, size, offset uint64) Region {
		r, ok := b.Region(start, size, offset)
		if !ok {
			t.Fatal("got no region")
		}
		return r
	}
	l := Layout{}.With(of(app, 0x10000, 0x1000, 0)).With(of(lib, 0x10400, 0x100, 0))
	for addr, want := range map[uint64]*Binary{0x10000: app, 0x103ff: app, 0x10400: lib, 0x104ff: lib, 0x10500: app, 0x10fff: app, 0x11000: nil} {
		r, ok := l.Find(addr)
		if ok != (want != nil) || r.Binary != want {
			t.Errorf("at %#x: got %v, want %v", addr, r, want)
		}
		if whole := of(app, 0x10000, 0x1000, 0); want == app && r.Address(addr) != whole.Address(addr) {
			t.Errorf("at %#x: got address %#x, want %#x", addr, r.Address(addr), whole.Address(addr))
		}
	}
}

func BenchmarkAdd(b *testing.B) {
	app, lib := testBinary("app"), testBinary("lib")
	c := NewCollector(Options{})
	defer c.Close()
	c.Register(app)
	l := testLayout(b, app, lib)
	stacks := randomStacks(1000)
	n := 0
	for b.Loop() {
		c.Add(l, stacks[n%len(stacks)])
		n++
	}
	b.ReportMetric(32*float64(n)/b.Elapsed().Seconds(), "records/s")
}

// BenchmarkAddDistinct adds a million different traces, as from a large program.
func BenchmarkAddDistinct(b *testing.B) {
	rng := rand.New(rand.NewPCG(5, 6))
	keys := make([]key, 1<<20)
	for i := range keys {
		keys[i] = key{binary: 2, from: rng.Uint32() >> 4, to: rng.Uint32() >> 4, end: rng.Uint32() >> 4}
	}
	c := newCounter(DefaultMemory)
	defer c.close()
	n := 0
	for b.Loop() {
		if err := c.add(keys[n&(len(keys)-1)], 1, 0); err != nil {
			b.Fatal(err)
		}
		n++
	}
	b.ReportMetric(float64(len(c.table.slots))*recordSize, "table-bytes")
	b.ReportMetric(float64(len(c.runs)), "runs")
}
