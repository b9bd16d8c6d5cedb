package process

import (
	"os"
	"slices"
	"testing"

	"fulgur/internal/linux/perfevent"
	"fulgur/internal/linux/procfs"
)

// PIDs of synthetic processes, above the limit for PIDs.
const (
	pidA = 1<<23 + iota
	pidB
	pidC
)

func stamp(time uint64) perfevent.Stamp { return perfevent.Stamp{Time: time} }

// mmap returns a record that maps file (its inode and name) at [start, limit).
func mmap(time uint64, pid int, start, limit, off uint64, file string) perfevent.Mmap2 {
	m := perfevent.Mmap2{Stamp: stamp(time), PID: pid, TID: pid, Addr: start, Len: limit - start, Pgoff: off, Filename: file}
	if file != "//anon" && file != "[vdso]" {
		for _, c := range file {
			m.Ino = m.Ino*31 + uint64(c)
		}
		m.Maj, m.InoGen = 250, 1
	}
	return m
}

func fork(time uint64, parent, child int) perfevent.Fork {
	return perfevent.Fork{Stamp: stamp(time), PID: child, PPID: parent, TID: child, PTID: parent}
}

func thread(time uint64, pid, tid int) perfevent.Fork {
	return perfevent.Fork{Stamp: stamp(time), PID: pid, PPID: pid, TID: tid, PTID: pid}
}

func exec(time uint64, pid int) perfevent.Comm {
	return perfevent.Comm{Stamp: stamp(time), PID: pid, TID: pid, Exec: true}
}

func exit(time uint64, pid, tid int) perfevent.Exit {
	return perfevent.Exit{Stamp: stamp(time), PID: pid, TID: tid}
}

// where is an address to resolve and the expected [Location.String].
type where struct {
	pid        int
	addr, time uint64
	want       string
}

func TestTable(t *testing.T) {
	for _, tc := range []struct {
		name     string
		records  []perfevent.Record
		forget   uint64
		want     []where
		replaced []int
	}{
		{
			name:    "offsets and ends",
			records: []perfevent.Record{exec(1, pidA), mmap(2, pidA, 0x1000, 0x3000, 0x500, "/a"), mmap(3, pidA, 0x5000, 0x6000, 0, "[vdso]")},
			want: []where{
				{pidA, 0xfff, 9, "unknown 0xfff"},
				{pidA, 0x1000, 9, "/a+0x500"},
				{pidA, 0x2fff, 9, "/a+0x24ff"},
				{pidA, 0x3000, 9, "unknown 0x3000"},
				{pidA, 0x5010, 9, "vdso 0x5010"},
				{pidA, 0xffffffffff600010, 9, "vsyscall 0xffffffffff600010"},
				{pidA, 0x1000, 1, "unknown 0x1000"},
				{0, 0x1000, 9, "unknown 0x1000"},
			},
		},
		{
			name: "exec drops all earlier mappings, from then on",
			records: []perfevent.Record{
				exec(1, pidA), mmap(2, pidA, 0x1000, 0x2000, 0, "/old"), mmap(2, pidA, 0x8000, 0x9000, 0, "/lib"),
				exec(10, pidA), mmap(11, pidA, 0x1000, 0x2000, 0, "/new"),
			},
			want: []where{
				{pidA, 0x1000, 9, "/old+0x0"},
				{pidA, 0x1000, 12, "/new+0x0"},
				{pidA, 0x8000, 9, "/lib+0x0"},
				{pidA, 0x8000, 12, "unknown 0x8000"},
			},
		},
		{
			name: "a reused pid starts without mappings",
			records: []perfevent.Record{
				exec(1, pidA), mmap(2, pidA, 0x1000, 0x2000, 0, "/a"),
				exec(3, pidB), mmap(4, pidB, 0x1000, 0x2000, 0, "/b"),
				exit(10, pidB, pidB), fork(20, pidA, pidB),
			},
			want: []where{
				{pidB, 0x1000, 9, "/b+0x0"},
				{pidB, 0x1000, 21, "/a+0x0"},
			},
		},
		{
			name: "a partly replaced mapping",
			records: []perfevent.Record{
				exec(1, pidA), mmap(2, pidA, 0x1000, 0x5000, 0, "/a"),
				mmap(10, pidA, 0x2000, 0x3000, 0x100, "/b"),
			},
			want: []where{
				{pidA, 0x2000, 9, "/a+0x1000"},
				{pidA, 0x2000, 10, "/b+0x100"},
				{pidA, 0x1fff, 10, "/a+0xfff"},
				{pidA, 0x3000, 10, "/a+0x2000"},
			},
			replaced: []int{pidA},
		},
		{
			name: "one mapping over several",
			records: []perfevent.Record{
				exec(1, pidA), mmap(2, pidA, 0x1000, 0x2000, 0, "/a"), mmap(3, pidA, 0x3000, 0x5000, 0, "/b"),
				mmap(10, pidA, 0x1800, 0x4000, 0, "//anon"),
			},
			want: []where{
				{pidA, 0x17ff, 10, "/a+0x7ff"},
				{pidA, 0x1800, 10, "anon 0x1800"},
				{pidA, 0x2800, 10, "anon 0x2800"},
				{pidA, 0x2800, 9, "unknown 0x2800"},
				{pidA, 0x3800, 9, "/b+0x800"},
				{pidA, 0x4000, 10, "/b+0x1000"},
			},
			replaced: []int{pidA},
		},
		{
			name: "mapping the same bytes again is no replacement",
			records: []perfevent.Record{
				exec(1, pidA), mmap(2, pidA, 0x1000, 0x5000, 0, "/a"), mmap(3, pidA, 0x2000, 0x3000, 0x1000, "/a"),
				mmap(4, pidA, 0x8000, 0x9000, 0, "//anon"), mmap(5, pidA, 0x8000, 0xa000, 0, "//anon"),
			},
			want: []where{
				{pidA, 0x2000, 2, "/a+0x1000"},
				{pidA, 0x2000, 9, "/a+0x1000"},
				{pidA, 0x8000, 4, "anon 0x8000"},
				{pidA, 0x9000, 4, "unknown 0x9000"},
				{pidA, 0x9000, 9, "anon 0x9000"},
			},
		},
		{
			name: "repeated mprotect is one replacement of memory that was never read",
			records: []perfevent.Record{
				mmap(4, pidA, 0x8000, 0x9000, 0, "//anon"), mmap(5, pidA, 0x8000, 0x9000, 0, "//anon"),
				mmap(6, pidA, 0x8000, 0x9000, 0, "//anon"),
			},
			want:     []where{{pidA, 0x8000, 4, "anon 0x8000"}},
			replaced: []int{pidA},
		},
		{
			name: "the same file at another offset is a replacement",
			records: []perfevent.Record{
				exec(1, pidA), mmap(2, pidA, 0x1000, 0x2000, 0, "/a"), mmap(3, pidA, 0x1000, 0x2000, 0x1000, "/a"),
			},
			want:     []where{{pidA, 0x1000, 2, "/a+0x0"}, {pidA, 0x1000, 3, "/a+0x1000"}},
			replaced: []int{pidA},
		},
		{
			name: "a late record does not hide a newer one",
			records: []perfevent.Record{
				exec(1, pidA), mmap(10, pidA, 0x2000, 0x3000, 0, "/new"), mmap(5, pidA, 0x1000, 0x4000, 0, "/old"),
			},
			want: []where{
				{pidA, 0x2000, 12, "/new+0x0"},
				{pidA, 0x2000, 7, "/old+0x1000"},
				{pidA, 0x1000, 12, "/old+0x0"},
				{pidA, 0x3000, 12, "/old+0x2000"},
			},
		},
		{
			name: "a child has its parent's mappings from the fork, and changes its own",
			records: []perfevent.Record{
				exec(1, pidA), mmap(2, pidA, 0x1000, 0x2000, 0, "/a"),
				fork(5, pidA, pidB), fork(6, pidB, pidC),
				mmap(10, pidA, 0x1000, 0x2000, 0, "/parent"),
				mmap(11, pidB, 0x3000, 0x4000, 0, "/child"),
				exec(12, pidC),
			},
			want: []where{
				{pidA, 0x1000, 12, "/parent+0x0"},
				{pidA, 0x3000, 12, "unknown 0x3000"},
				{pidB, 0x1000, 12, "/a+0x0"},
				{pidB, 0x3000, 12, "/child+0x0"},
				{pidC, 0x1000, 11, "/a+0x0"},
				{pidC, 0x1000, 12, "unknown 0x1000"},
			},
			replaced: []int{pidA},
		},
		{
			name: "a thread's start and exit are not a process's",
			records: []perfevent.Record{
				exec(1, pidA), mmap(2, pidA, 0x1000, 0x2000, 0, "/a"),
				thread(3, pidA, pidB),
				exit(4, pidA, pidB),
			},
			forget: 100,
			want:   []where{{pidA, 0x1000, 101, "/a+0x0"}},
		},
		{
			name: "a process is forgotten after its last possible stack",
			records: []perfevent.Record{
				exec(1, pidA), mmap(2, pidA, 0x1000, 0x2000, 0, "/a"), exit(10, pidA, pidA),
				exec(1, pidB), mmap(2, pidB, 0x1000, 0x2000, 0, "/b"), exit(20, pidB, pidB),
			},
			forget: 15,
			want:   []where{{pidA, 0x1000, 9, "unknown 0x1000"}, {pidB, 0x1000, 18, "/b+0x0"}},
		},
		{
			name: "the last thread's end is the process's",
			records: []perfevent.Record{
				exec(1, pidA), mmap(2, pidA, 0x1000, 0x2000, 0, "/a"), thread(3, pidA, pidB),
				exit(10, pidA, pidA), mmap(11, pidA, 0x3000, 0x4000, 0, "/b"), exit(20, pidA, pidB),
			},
			forget: 15,
			want:   []where{{pidA, 0x1000, 19, "/a+0x0"}, {pidA, 0x3000, 19, "/b+0x0"}},
		},
		{
			name: "replaced mappings are forgotten after a time",
			records: []perfevent.Record{
				exec(1, pidA), mmap(2, pidA, 0x1000, 0x2000, 0, "/a"), mmap(5, pidA, 0x1000, 0x2000, 0, "/b"),
				exec(10, pidA), mmap(11, pidA, 0x1000, 0x2000, 0, "/c"),
			},
			forget:   7,
			want:     []where{{pidA, 0x1000, 4, "unknown 0x1000"}, {pidA, 0x1000, 8, "/b+0x0"}, {pidA, 0x1000, 12, "/c+0x0"}},
			replaced: []int{pidA},
		},
		{
			name: "after a loss, a process that has exited keeps its mappings",
			records: []perfevent.Record{
				exec(1, pidA), mmap(2, pidA, 0x1000, 0x2000, 0, "/a"),
				perfevent.Lost{Stamp: stamp(10), N: 1},
				mmap(11, pidA, 0x3000, 0x4000, 0, "/b"),
				perfevent.Lost{Stamp: stamp(20), N: 1},
				mmap(21, pidA, 0x5000, 0x6000, 0, "/c"),
			},
			forget: 15,
			want: []where{
				{pidA, 0x1000, 18, "/a+0x0"},
				{pidA, 0x1000, 30, "/a+0x0"},
				{pidA, 0x3000, 30, "/b+0x0"},
				{pidA, 0x5000, 30, "/c+0x0"},
			},
			// Memory that was not read since may contain anything.
			replaced: []int{pidA, pidA},
		},
		{
			name:    "invalid mappings",
			records: []perfevent.Record{exec(1, pidA), mmap(2, pidA, 0x1000, 0x1000, 0, "/a"), mmap(2, pidA, ^uint64(0)-10, 20, 0, "/a"), mmap(2, -1, 0x1000, 0x2000, 0, "/a")},
			want:    []where{{pidA, 0x1000, 9, "unknown 0x1000"}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			table := NewTable(Options{})
			var replaced []int
			table.OnReplaced(func(pid int) { replaced = append(replaced, pid) })
			for _, r := range tc.records {
				table.Apply(r)
			}
			if tc.forget != 0 {
				table.Forget(tc.forget)
			}
			for _, w := range tc.want {
				if got := table.Resolve(w.pid, w.addr, w.time).String(); got != w.want {
					t.Errorf("pid A+%d, %#x at %d: got %s, want %s", w.pid-pidA, w.addr, w.time, got, w.want)
				}
			}
			if !slices.Equal(replaced, tc.replaced) {
				t.Errorf("got replaced %v, want %v", replaced, tc.replaced)
			}
		})
	}
}

// codeAddress returns the first mapping of this process, which is of its executable.
func codeAddress(t *testing.T) procfs.Map {
	t.Helper()
	maps := mapsOf(t, os.Getpid())
	return maps[0]
}

// TestReadLate resolves addresses of a process that ran before the sideband was opened.
// It is read at the first request, also for its children, but not after it executed
// another program.
func TestReadLate(t *testing.T) {
	self, code := os.Getpid(), codeAddress(t)
	for _, tc := range []struct {
		name    string
		records []perfevent.Record
		sync    perfevent.Record
		pid     int
		known   bool
		gone    uint64
	}{
		{"itself", nil, nil, self, true, 0},
		{"a child that has exited", []perfevent.Record{fork(5, self, pidA), exit(6, pidA, pidA)}, nil, pidA, true, 0},
		{"a child's child", []perfevent.Record{fork(5, self, pidA), fork(6, pidA, pidB), exec(7, pidA)}, nil, pidB, true, 0},
		{"exited", nil, nil, pidA, false, 1},
		{"exited, and its parent too", []perfevent.Record{fork(5, pidA, pidB)}, nil, pidB, false, 1},
		{"an exec before it was read", []perfevent.Record{fork(1, self, pidA), exec(20, self), exit(20, pidA, pidA)}, nil, self, false, 1},
		{"an exec while it was read", nil, exec(20, self), self, false, 1},
		{"its fork while it was read", nil, fork(5, pidA, self), self, true, 0},
		{"after a loss", []perfevent.Record{exec(1, self), perfevent.Lost{Stamp: stamp(5), N: 1}}, nil, self, true, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var table *Table
			table = NewTable(Options{Sync: func() {
				if tc.sync != nil {
					table.Apply(tc.sync)
				}
			}})
			for _, r := range tc.records {
				table.Apply(r)
			}
			got := table.Resolve(tc.pid, code.Start+1, 10)
			if known := got.Kind == KindFile; known != tc.known {
				t.Errorf("got %v, want known: %v", got, tc.known)
			}
			if tc.known && got.Offset != code.Offset+1 {
				t.Errorf("got offset %#x, want %#x", got.Offset, code.Offset+1)
			}
			if table.Gone() != tc.gone {
				t.Errorf("got %d processes gone, want %d", table.Gone(), tc.gone)
			}
		})
	}
}

// TestForkReadsNothing checks the cost of a fork and of the child's exit: no file in
// /proc is read, and the child shares its parent's table.
func TestForkReadsNothing(t *testing.T) {
	table := NewTable(Options{})
	table.Apply(exec(1, pidA))
	for i := range uint64(100) {
		table.Apply(mmap(2, pidA, i<<16, i<<16+0x1000, 0, "//anon"))
	}
	forked, ended := perfevent.Record(fork(5, pidA, pidB)), perfevent.Record(exit(6, pidB, pidB))
	if n := testing.AllocsPerRun(100, func() { table.Apply(forked); table.Apply(ended); table.Forget(7) }); n > 1 {
		t.Errorf("got %v allocations for a fork, want at most 1", n)
	}
	if table.images[pidB] != nil {
		t.Error("the child is still in the table")
	}
	table.Apply(forked)
	if a, b := table.images[pidA].live, table.images[pidB].live; a != b || a.Len() == 0 {
		t.Error("the child has its own table")
	}
}

func TestResolveAllocatesNothing(t *testing.T) {
	table := NewTable(Options{})
	table.Apply(exec(1, pidA))
	table.Apply(mmap(2, pidA, 0x1000, 0x2000, 0, "/a"))
	if n := testing.AllocsPerRun(100, func() { table.Resolve(pidA, 0x1500, 5); table.Resolve(pidA, 0x9000, 5) }); n != 0 {
		t.Errorf("got %v allocations, want 0", n)
	}
}

func BenchmarkResolve(b *testing.B) {
	table := NewTable(Options{})
	table.Apply(exec(1, pidA))
	for i := range uint64(100) {
		table.Apply(mmap(2, pidA, i<<16, i<<16+0x1000, 0, "/a"))
	}
	for b.Loop() {
		table.Resolve(pidA, 0x42_0500, 5)
	}
}
