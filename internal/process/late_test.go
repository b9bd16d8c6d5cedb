package process

import (
	"os"
	"testing"

	"fulgur/internal/linux/procfs"
)

// Mappings that were read too late are used at the next request, unless the process runs
// another image by then.
func TestLateMaps(t *testing.T) {
	table := NewTable(Options{})
	t.Cleanup(func() { _ = table.Close() })
	self := os.Getpid()
	i := table.image(self)
	late := []procfs.Map{{Start: 1 << 20, Limit: 2 << 20, Name: "[late]"}}
	table.late.put(i.base, late)
	table.late.put(&base{pid: self}, []procfs.Map{{Start: 3 << 20, Limit: 4 << 20}})
	if !table.Unread(self) {
		t.Error("Unread is false before the first read")
	}
	if got := table.Mappings(self); len(got) != 1 || got[0].Start != late[0].Start {
		t.Errorf("got mappings %+v, want the late one", got)
	}
	if table.Unread(self) {
		t.Error("Unread is true after the read")
	}
	if _, ok := table.late.take(i.base); ok {
		t.Error("a late answer can be taken twice")
	}
}
