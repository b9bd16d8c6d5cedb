package locks

import (
	"os"
	"testing"

	"fulgur/internal/capture/naming"
	"fulgur/internal/linux/procfs"
	"fulgur/internal/process"
)

// A kernel's lock has the name of the variable that contains it, never of one before
// memory that was allocated.
func TestKernelNames(t *testing.T) {
	names := kernelNames{read: true, symbols: []variable{
		{0x1000, "per_cpu_variable"},
		{0xffffffff81000000, ""}, // code
		{0xffffffff82000000, "cgroup_mutex"},
		{0xffffffff82000020, "other"},
		{0xffffffff82000040, "last"},
	}}
	for address, want := range map[uint64]string{
		0xffffffff82000000: "cgroup_mutex",
		0xffffffff82000008: "cgroup_mutex+0x8",
		0xffffffff82000020: "other",
		0xffffffff81000010: "0xffffffff81000010",
		0xffff888012345678: "0xffff888012345678",
		0xffffffff82000050: "0xffffffff82000050",
		0x10:               "0x10",
	} {
		if got := names.name(address); got != want {
			t.Errorf("%#x: got %s, want %s", address, got, want)
		}
	}
	if got := (&kernelNames{read: true}).name(1); got != "0x1" {
		t.Errorf("no symbols: got %s, want 0x1", got)
	}
}

// Only if a kernel does not list variables, that is the reason why its locks have no names.
func TestKernelNamesNote(t *testing.T) {
	for _, listed := range []bool{false, true} {
		names := kernelNames{read: true, listed: listed}
		if note := names.note(); note != "" {
			t.Errorf("got %q without a lock", note)
		}
		names.name(1)
		if note := names.note(); (note == "") != listed {
			t.Errorf("got %q if variables are listed: %t", note, listed)
		}
	}
}

func TestLocateIn(t *testing.T) {
	maps := []procfs.Map{
		{Start: 0x1000, Limit: 0x2000, Ino: 5, Name: "/usr/lib/libx.so"},
		{Start: 0x2000, Limit: 0x3000, Ino: 5, Offset: 0x1000, Name: "/usr/lib/libx.so"},
		{Start: 0x3000, Limit: 0x4000},
		{Start: 0x8000, Limit: 0x9000, Name: "[heap]"},
		{Start: 0xa000, Limit: 0xb000},
		{Start: 0xd000, Limit: 0xe000, Ino: 9, Name: "/dev/zero (deleted)"},
	}
	for address, want := range map[uint64]string{
		0x1010: "libx.so+0x10",
		0x2010: "libx.so+0x1010",
		0x3008: "libx.so+0x2008",
		0x8000: "0x8000 [heap]",
		0xa001: "0xa001 anonymous",
		0xc000: "0xc000",
		0xd038: "shared memory+0x38",
		0x10:   "0x10",
	} {
		if got := locateIn(maps, address).text; got != want {
			t.Errorf("%#x: got %s, want %s", address, got, want)
		}
	}
}

// A lock in a file's data has a place in the file, from the mapping of the file that precedes it, also if the memory
// is zero at first.
func TestLocateVariable(t *testing.T) {
	maps := []procfs.Map{
		{Start: 0x1000, Limit: 0x2000, Maj: 8, Min: 1, Ino: 5, Name: "/usr/lib/libx.so"},
		{Start: 0x5000, Limit: 0x6000, Maj: 8, Min: 1, Ino: 5, Offset: 0x3000, Name: "/usr/lib/libx.so"},
		{Start: 0x6000, Limit: 0x8000},
		{Start: 0x9000, Limit: 0xa000, Ino: 9, Name: "/dev/zero (deleted)"},
		{Start: 0xb000, Limit: 0xc000, Name: "[heap]"},
	}
	x := process.FileKey{Maj: 8, Min: 1, Ino: 5}
	for address, want := range map[uint64]naming.Variable{
		0x5010: {File: x, Offset: 0x3000, Distance: 0x10},
		0x7010: {File: x, Offset: 0x3000, Distance: 0x2010},
		0x1010: {File: x, Distance: 0x10},
		0x9010: {},
		0xb010: {},
		0x10:   {},
	} {
		if got := locateIn(maps, address).variable; got != want {
			t.Errorf("%#x: got %+v, want %+v", address, got, want)
		}
	}
}

// A process that is gone has addresses only.
func TestMappings(t *testing.T) {
	var m mappings
	if got := m.locate(0xffffffff, 0x1234).text; got != "0x1234" {
		t.Errorf("got %s, want 0x1234", got)
	}
	if len(m.found) != 1 {
		t.Error("the result is not remembered")
	}
}

// Many locks of a process do not cost as many readings of its mappings, until they may have
// changed.
func TestReadings(t *testing.T) {
	var m mappings
	pids := []uint32{uint32(os.Getpid()), uint32(os.Getppid()), 0xffffffff}
	for address := range uint64(100) {
		for _, pid := range pids {
			m.locate(pid, address)
		}
	}
	if m.readings != len(pids) {
		t.Errorf("got %d readings of the mappings of %d processes", m.readings, len(pids))
	}
	m.forget()
	if m.locate(pids[0], 100); m.readings != len(pids)+1 {
		t.Errorf("got %d readings after the mappings may have changed, want 1", m.readings-len(pids))
	}
}
