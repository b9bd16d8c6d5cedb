package process

import (
	"os"
	"testing"
	"time"

	"fulgur/internal/linux/perfevent"
)

// A storm that goes on at the end has a rate.
func TestStormAtEnd(t *testing.T) {
	table := NewTable(Options{})
	defer table.Close()
	table.Apply(exec(1, os.Getpid()))
	for i := range uint64(2 * maxFollowed) {
		table.Apply(mmap(2+i, os.Getpid(), 0x1000*(i+1), 0x1000*(i+2), 0, "//anon"))
	}
	storms := table.Storms()
	if least := uint64(2*maxFollowed) * 10; len(storms) != 1 || storms[0].PerSecond != least {
		t.Errorf("got %+v, want a storm of %d records per second", storms, least)
	}
}

// A process that keeps mapping code is updated at a limited rate and reported. Other
// processes are not affected.
func TestStorm(t *testing.T) {
	table := NewTable(Options{})
	defer table.Close()
	followed := map[int]int{}
	table.OnMapped(func(pid int) { followed[pid]++ })
	self := os.Getpid()
	const windows, each = 20, 7 * maxFollowed
	now := uint64(1)
	table.Apply(exec(now, self))
	table.Apply(mmap(now, pidB, 0x1000, 0x2000, 0, "b"))
	for w := range windows {
		for i := range each {
			now += stormWindow / (each + 1)
			name := []string{"//anon", "[vdso]"}[i%2] // they alternate at one place
			table.Apply(mmap(now, self, 0x1000, 0x2000, 0, name))
		}
		now = table.storms[self].from + table.storms[self].length
		table.calmAll(now) // like Applied, by the records' clock
		table.Apply(mmap(now, pidB, 0x10000*uint64(w+1), 0x10000*uint64(w+1)+0x1000, 0, "b"))
	}
	if want := windows * (maxFollowed + 1); followed[self] != want {
		t.Errorf("got %d of %d mappings followed, want %d", followed[self], windows*each, want)
	}
	if followed[pidB] != windows+1 {
		t.Errorf("other process: got %[2]d of %[1]d mappings followed, want all", windows+1, followed[pidB])
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
	if s.PID != self || s.Comm+"\n" != string(comm) || s.Skipped != windows*(each-maxFollowed) {
		t.Errorf("got %+v, want the name %q and %d records", s, comm, windows*(each-maxFollowed))
	}
	if want := uint64(time.Second) * each / stormWindow; s.PerSecond != want {
		t.Errorf("got %d records per second, want %d", s.PerSecond, want)
	}

	// After the storm, the table matches /proc.
	table.calmAll(now + 1000*stormWindow)
	maps := mapsOf(t, self)
	for _, m := range maps {
		if m.Name == "[vsyscall]" {
			continue
		}
		if l := table.Resolve(self, m.Start, now+1000*stormWindow); l.MapStart != m.Start {
			t.Errorf("%+v: got %v, want it from %#x", m, l, m.Start)
		}
	}
	if l := table.Resolve(pidB, 0x1800, now); l.String() != "b+0x800" {
		t.Errorf("other process: got %v, want %v", l, "b+0x800")
	}
}

// A program that maps many libraries, or whose JIT makes single functions executable, is
// followed.
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
		t.Errorf("got %+v, want none", storms)
	}
	table.calmAll(1 << 40)
	if len(table.storms) > 0 {
		t.Errorf("got %d calm processes left, want none", len(table.storms))
	}
}
