package unwindmap

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"fulgur/internal/process"
	"fulgur/internal/testenv"
	"fulgur/internal/unwind"
)

// open returns a loader with the kernel's maps.
func open(t testing.TB, o Options) *Loader {
	t.Helper()
	testenv.Root(t)
	l, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(l.Close(), l.Close()); err != nil {
			t.Error(err)
		}
	})
	return l
}

// request loads the tables of process pid.
func request(t testing.TB, l *Loader, table *process.Table, pid int) {
	t.Helper()
	found := false
	if err := l.Tasks(func(p int, image uint64) {
		if p == pid {
			found = true
			l.Prepare(table.Mappings(pid), math.MaxUint64)
			l.Request(pid, image, table.Mappings(pid))
		}
	}); err != nil {
		t.Fatal(err)
	}
	if !found {
		t.Fatalf("got no task of process %d", pid)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testenv.TimeLimit())
	defer cancel()
	l.Wait(ctx)
}

// The kernel's maps contain the loader's data.
func TestMaps(t *testing.T) {
	testenv.EveryKernel(t)
	l := open(t, Options{Few: true})
	table := process.NewTable(process.Options{})
	defer table.Close()
	pid := sleeper(t)
	request(t, l, table, pid)
	stats := l.Stats()
	if stats.Tables < 2 || stats.Failure != nil {
		t.Fatalf("got %+v, want 2 tables and no failure", stats)
	}
	t.Logf("%+v, %d bytes of maps", stats, l.MapMemory())

	e, ok, err := l.maps.process(pid)
	if err != nil || !ok {
		t.Fatalf("the process's entry: got %v, %v; want one", ok, err)
	}
	tables := 0
	for _, m := range l.maps.mappings(layoutSpan(e.Layout)) {
		if m.Rows == noTable {
			continue
		}
		tables++
		// The first block begins with a row for its first byte.
		block := m.Blocks + uint32((m.Start-m.Bias)>>unwind.BlockShift)
		row := l.maps.word(t, m.Rows+l.maps.word(t, block))
		if low := unwind.Row(row).Low(); low != 0 {
			t.Errorf("%#x: got byte %d as the first row of its block, want 0", m.Start, low)
		}
		if rule := unwind.Row(row).Rule(); rule >= l.rules.next {
			t.Errorf("%#x: got rule %d in the first row, want less than %d", m.Start, rule, l.rules.next)
		}
	}
	if tables < 2 {
		t.Errorf("got %d mappings with tables, want 2", tables)
	}
	l.Ended(pid)
	if _, ok, err := l.maps.process(pid); ok || err != nil {
		t.Errorf("the entry of a process that has exited: got %v, %v; want none", ok, err)
	}
}

// If forks may have been missed, all layouts are removed, even those of unknown processes.
func TestMapsReset(t *testing.T) {
	l := open(t, Options{Few: true})
	table := process.NewTable(process.Options{})
	defer table.Close()
	pid := sleeper(t)
	request(t, l, table, pid)
	const unknown = 1 << 30 // above the limit for PIDs
	if err := l.maps.putProcess(unknown, entry{Image: 1}); err != nil {
		t.Fatal(err)
	}
	l.Reset()
	for _, pid := range []int{pid, unknown} {
		if e, ok, err := l.maps.process(pid); ok || err != nil {
			t.Errorf("process %d: got %+v, %v; want no entry", pid, e, err)
		}
	}
	if stats := l.Stats(); stats.Failure != nil {
		t.Error(stats.Failure)
	}
}

// Entries are deleted in batches, in which some may be missing.
func TestMapsDelete(t *testing.T) {
	testenv.EveryKernel(t)
	l := open(t, Options{Few: true})
	const first = 1 << 30 // above the limit for PIDs
	for pid := first; pid < first+4; pid++ {
		if err := l.maps.putProcess(pid, entry{Image: 1}); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.maps.deleteProcesses([]int{first + 9, first, first + 8, first + 7, first + 2, first + 1, first + 6}); err != nil {
		t.Fatal(err)
	}
	for pid, want := range map[int]bool{first: false, first + 1: false, first + 2: false, first + 3: true} {
		if e, ok, err := l.maps.process(pid); ok != want || err != nil {
			t.Errorf("process %d: got %+v, %v, %v; want present: %v", pid, e, ok, err, want)
		}
	}
}

// word reads a word through the map of maps.
func (k *kernelMaps) word(t *testing.T, w uint32) uint32 {
	t.Helper()
	var page *ebpf.Map
	if err := k.objects.UnwindPages.Lookup(w>>pageShift, &page); err != nil {
		t.Fatalf("page of word %#x: %v", w, err)
	}
	defer page.Close()
	content := make([]byte, pageBytes)
	if err := page.Lookup(uint32(0), content); err != nil {
		t.Fatal(err)
	}
	return binary.NativeEndian.Uint32(content[4*(w%pageWords):])
}

// Pages are attached and detached like in the fake kernel.
func TestMapsPages(t *testing.T) {
	l := open(t, Options{Few: true})
	var pages []uint32
	var contents [][]byte
	for i := range uint32(70) { // more than can be attached
		content := make([]byte, pageBytes)
		binary.NativeEndian.PutUint32(content[8:], 1000+i)
		pages, contents = append(pages, 100+i), append(contents, content)
	}
	if err := l.maps.attach(pages, contents); err != nil {
		t.Fatal(err)
	}
	for i, page := range pages {
		if got := l.maps.word(t, page<<pageShift+2); got != 1000+uint32(i) {
			t.Fatalf("page %d: got word %d, want %d", page, got, 1000+uint32(i))
		}
	}
	l.maps.states[105] = pageState{Used: 1, Asked: 1}
	used := []uint32{}
	if err := l.maps.takeUsed(func(page uint32) { used = append(used, page) }); err != nil {
		t.Fatal(err)
	}
	if len(used) != 1 || used[0] != 105 || l.maps.states[105].Used != 0 {
		t.Errorf("got %v in use, then %v; want page 105, then none", used, l.maps.states[105])
	}
	if err := l.maps.detach(pages); err != nil {
		t.Fatal(err)
	}
	if l.maps.states[105].Asked != 0 {
		t.Error("a detached page counts as requested")
	}
	var page *ebpf.Map
	if err := l.maps.objects.UnwindPages.Lookup(pages[0], &page); !errors.Is(err, ebpf.ErrKeyNotExist) {
		t.Errorf("a detached page is still there: %v", err)
	}
}

// BenchmarkSystem compiles the tables of all processes, as at the start of a system-wide
// measurement.
func BenchmarkSystem(b *testing.B) {
	l := open(b, Options{})
	table := process.NewTable(process.Options{})
	defer table.Close()
	start := time.Now()
	processes := 0
	if err := l.Tasks(func(pid int, image uint64) {
		if maps := table.Mappings(pid); len(maps) > 0 {
			l.Prepare(maps, math.MaxUint64)
			l.Request(pid, image, maps)
			processes++
		}
	}); err != nil {
		b.Fatal(err)
	}
	laidOut := time.Since(start)
	l.Wait(b.Context())
	took := time.Since(start)
	stats := l.Stats()
	b.Logf("%+v", stats)
	b.ReportMetric(float64(processes), "processes")
	b.ReportMetric(laidOut.Seconds()*1e3, "ms-to-lay-out")
	b.ReportMetric(took.Seconds()*1e3, "ms")
	b.ReportMetric(float64(stats.Tables), "tables")
	b.ReportMetric(float64(stats.Bytes)/1e6, "MB-of-tables")
	b.ReportMetric(float64(l.MapMemory())/1e6, "MB-of-maps")
	b.ReportMetric(0, "ns/op")
}
