package process

import (
	"os"
	"testing"

	"fulgur/internal/linux/perfevent"
)

// A process that maps code all the time is followed now and then, named, and costs the
// others nothing of what is known of them.
func TestStorm(t *testing.T) {
	table := NewTable(Options{})
	defer table.Close()
	told := map[int]int{}
	table.OnMapped(func(pid int) { told[pid]++ })
	self := os.Getpid()
	const windows, each = 20, 7 * maxFollowed
	now := uint64(1)
	table.Apply(exec(now, self))
	table.Apply(mmap(now, pidB, 0x1000, 0x2000, 0, "b"))
	for w := range windows {
		for i := range each {
			now += stormWindow / each
			name := []string{"//anon", "[vdso]"}[i%2] // each takes the other's place
			table.Apply(mmap(now, self, 0x1000, 0x2000, 0, name))
		}
		table.calmAll(now) // what Applied does, by the records' clock
		table.Apply(mmap(now, pidB, 0x10000*uint64(w+1), 0x10000*uint64(w+1)+0x1000, 0, "b"))
	}
	if most := windows * (maxFollowed + 1) * 3 / 2; told[self] > most {
		t.Errorf("of %d mappings %d were followed, want %d at most", windows*each, told[self], most)
	}
	if told[pidB] != windows+1 {
		t.Errorf("of the other process's %d mappings %d were followed", windows+1, told[pidB])
	}
	storms := table.Storms()
	if len(storms) != 1 {
		t.Fatalf("got %+v, want the process", storms)
	}
	comm, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		t.Fatal(err)
	}
	s := storms[0]
	if s.PID != self || s.Comm+"\n" != string(comm) || s.Skipped < windows*(each-maxFollowed)*9/10 || s.Skipped > windows*(each-maxFollowed) {
		t.Errorf("got %+v, want the name %q and %d records", s, comm, windows*(each-maxFollowed))
	}
	if wantRate := uint64(each * 10); s.PerSecond < wantRate*9/10 || s.PerSecond > wantRate*11/10 {
		t.Errorf("%d records a second, want %d", s.PerSecond, wantRate)
	}

	// When it is over, what it has mapped is what /proc says.
	table.calmAll(now + 1000*stormWindow)
	maps, err := readMaps(self)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range maps {
		if m.Name == "[vsyscall]" {
			continue
		}
		if l := table.Resolve(self, m.Start, now+1000*stormWindow); l.MapStart != m.Start {
			t.Errorf("%+v: %v", m, l)
		}
	}
	if l := table.Resolve(pidB, 0x1800, now); l.String() != "b+0x800" {
		t.Errorf("the other process has %v", l)
	}
}

// A program that maps many libraries, or whose JIT makes functions executable one by
// one, is followed.
func TestNoStorm(t *testing.T) {
	table := NewTable(Options{})
	defer table.Close()
	for i := range uint64(20 * maxFollowed) {
		table.Apply(mmap(1+i*stormWindow/maxFollowed, pidA, 0x1000*i, 0x1000*(i+1), 0, "//anon"))
		if i%100 == 0 {
			table.calmAll(1 + i*stormWindow/maxFollowed)
		}
	}
	table.Apply(perfevent.Exit{Stamp: stamp(1 << 40), PID: pidA, TID: pidA})
	if storms := table.Storms(); len(storms) > 0 {
		t.Errorf("%+v", storms)
	}
	table.calmAll(1 << 40)
	if len(table.storms) > 0 {
		t.Errorf("%d processes that were calm are remembered", len(table.storms))
	}
}
