package process

import (
	"os"
	"testing"

	"fulgur/internal/linux/perfevent"
)

// The program of a process is the first file that it maps after an exec. A child runs its parent's.
func TestProgram(t *testing.T) {
	table := NewTable(Options{})
	t.Cleanup(func() { _ = table.Close() })
	for _, r := range []perfevent.Record{
		exec(10, pidA), mmap(11, pidA, 0x1000, 0x2000, 0, "/usr/bin/a (deleted)"), mmap(12, pidA, 0x3000, 0x4000, 0, "/lib/ld.so"),
		fork(20, pidA, pidB), fork(21, pidB, pidC),
		exec(30, pidB), mmap(31, pidB, 0x1000, 0x2000, 0, "[vdso]"), mmap(32, pidB, 0x1000, 0x2000, 0, "/usr/bin/b"),
		exit(40, pidA, pidA),
	} {
		table.Apply(r)
	}
	for _, c := range []struct {
		pid  int
		at   uint64
		want string
	}{
		{pidA, 5, ""}, {pidA, 15, "/usr/bin/a"}, {pidA, 50, "/usr/bin/a"},
		{pidB, 25, "/usr/bin/a"}, {pidB, 35, "/usr/bin/b"},
		{pidC, 25, "/usr/bin/a"}, {pidC, 35, "/usr/bin/a"},
	} {
		if got := table.Program(c.pid, c.at); got != c.want {
			t.Errorf("process %d at %d: got %q, want %q", c.pid, c.at, got, c.want)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if got := table.Program(os.Getpid(), 50); got != self {
		t.Errorf("this process, which ran before: got %q, want %q", got, self)
	}
}

// While /proc is read, the process may execute another program.
func TestProgramChanges(t *testing.T) {
	var table *Table
	table = NewTable(Options{Sync: func() { table.Apply(exec(60, os.Getpid())) }})
	t.Cleanup(func() { _ = table.Close() })
	if got := table.Program(os.Getpid(), 50); got != "" {
		t.Errorf("got %q, although the process has another program", got)
	}
}
