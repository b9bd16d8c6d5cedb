package process

import (
	"os"
	"testing"

	"fulgur/internal/linux/procfs"
)

// A process whose mappings came too late has them when it is asked for again; one
// that runs another image by then has its own.
func TestLateMaps(t *testing.T) {
	table := NewTable(Options{})
	t.Cleanup(func() { _ = table.Close() })
	self := os.Getpid()
	i := table.image(self)
	late := []procfs.Map{{Start: 1 << 20, Limit: 2 << 20, Name: "[late]"}}
	table.late.put(i.base, late)
	table.late.put(&base{pid: self}, []procfs.Map{{Start: 3 << 20, Limit: 4 << 20}})
	if !table.Unread(self) {
		t.Error("nothing was read, and all is known")
	}
	if got := table.Mappings(self); len(got) != 1 || got[0].Start != late[0].Start {
		t.Errorf("mappings %+v, want the late one", got)
	}
	if table.Unread(self) {
		t.Error("all was read, and something is unknown")
	}
	if _, ok := table.late.take(i.base); ok {
		t.Error("an answer is kept that was taken")
	}
}
