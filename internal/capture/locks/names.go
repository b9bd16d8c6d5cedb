package locks

import (
	"cmp"
	"fmt"
	"path"
	"slices"

	"fulgur/internal/capture/naming"
	"fulgur/internal/files/safeopen"
	"fulgur/internal/linux/procfs"
	"fulgur/internal/process"
	"fulgur/internal/symbols/symbolize"
)

// maxVariable is the maximum size of a variable of the kernel, in bytes. An
// address at a greater distance from a symbol is somewhere else, such as in allocated memory.
const maxVariable = 1 << 20

// kernelNames finds the names of locks of the kernel. The zero value reads the kernel's
// symbols when it is first used.
type kernelNames struct {
	read    bool
	symbols []variable // by address
	// listed is set if the kernel lists its variables, and unnamed if a lock has no name.
	listed, unnamed bool
}

// listedVariable is a variable of every kernel that lists variables.
const listedVariable = "init_task"

// note says why no lock has a name, "" if that has another reason.
func (k *kernelNames) note() string {
	if k.listed || !k.unnamed {
		return ""
	}
	return "locks of the kernel have only addresses: it does not list its variables (CONFIG_KALLSYMS_ALL)"
}

// variable is a variable of the kernel; its name is empty where it is code.
type variable struct {
	address uint64
	name    string
}

// name returns the name of the variable at an address with an offset, or the address.
func (k *kernelNames) name(address uint64) string {
	if !k.read {
		k.read = true
		// Without the symbols, locks have addresses.
		_ = symbolize.KernelVariables(func(name []byte, at uint64) {
			if at > 0 {
				k.listed = k.listed || string(name) == listedVariable
				k.symbols = append(k.symbols, variable{at, string(name)})
			}
		})
		slices.SortStableFunc(k.symbols, func(a, b variable) int { return cmp.Compare(a.address, b.address) })
	}
	after, _ := slices.BinarySearchFunc(k.symbols, address, func(v variable, at uint64) int {
		if v.address <= at {
			return -1
		}
		return 1
	})
	if after == 0 || after == len(k.symbols) || k.symbols[after-1].name == "" || k.symbols[after].address-k.symbols[after-1].address > maxVariable {
		k.unnamed = true
		return fmt.Sprintf("%#x", address)
	}
	v := k.symbols[after-1]
	if offset := address - v.address; offset > 0 {
		return fmt.Sprintf("%s+%#x", v.name, offset)
	}
	return v.name
}

const (
	// maxPlaces is the maximum number of places in mappings, which takes some MB.
	maxPlaces = 1 << 15
	// maxMaps is the number of mappings of processes beyond which none are kept.
	maxMaps = 1 << 16
)

// mappings finds the mapping of an address in a process. It remembers its findings,
// including that a process is gone.
type mappings struct {
	found map[place]location
	// maps are the mappings of processes, so that many locks of a process do not cost as
	// many readings, since each locks its address space.
	maps map[uint32][]procfs.Map
	kept int // mappings in maps
	// readings counts how often the mappings of a process were read.
	readings int
	budget   *safeopen.Budget // for reading
}

type place struct {
	pid     uint32
	address uint64
}

// location is an address with its mapping.
type location struct {
	// text is its name if there is no better one. In a file, the address is relative to where the
	// file is mapped, so that it is the same in all processes.
	text string
	// variable is the place in the file, the zero value if there is none.
	variable naming.Variable
}

// locate returns an address of a process with its mapping.
func (m *mappings) locate(pid uint32, address uint64) location {
	key := place{pid, address}
	at, known := m.found[key]
	if known {
		return at
	}
	at = locateIn(m.of(pid), address)
	if m.found == nil {
		m.found = map[place]location{}
	}
	if len(m.found) < maxPlaces {
		m.found[key] = at
	}
	return at
}

// of returns the mappings of a process, none if it is gone or does not respond.
func (m *mappings) of(pid uint32) []procfs.Map {
	maps, known := m.maps[pid]
	if known {
		return maps
	}
	m.readings++
	if m.budget == nil {
		m.budget = safeopen.NewBudget()
	}
	maps, err := process.Read(m.budget, int(pid), procfs.Task.AllMaps)
	if err != nil {
		maps = nil
	}
	if m.maps == nil || m.kept > maxMaps {
		m.forget()
	}
	m.maps[pid] = maps
	m.kept += 1 + len(maps)
	return maps
}

// forget makes m read mappings again, which may have changed.
func (m *mappings) forget() { m.maps, m.kept = map[uint32][]procfs.Map{}, 0 }

// sharedMemory is the kernel's name of memory that processes share without a file.
const sharedMemory = "/dev/zero (deleted)"

// locateIn returns an address in a process with the given mappings.
func locateIn(maps []procfs.Map, address uint64) location {
	for i, at := range maps {
		if address < at.Start || address >= at.Limit {
			continue
		}
		file := at
		if file.Name == "" && i > 0 && maps[i-1].Limit == at.Start {
			file = maps[i-1] // zero-initialized data follows the rest
		}
		switch {
		case file.Ino != 0 && file.Name == sharedMemory:
			return location{text: fmt.Sprintf("shared memory+%#x", address-firstOf(maps, file).Start)}
		case file.Ino != 0:
			return location{
				text: fmt.Sprintf("%s+%#x", path.Base(file.Name), address-firstOf(maps, file).Start),
				variable: naming.Variable{
					File:   process.FileKey{Maj: file.Maj, Min: file.Min, Ino: file.Ino},
					Offset: file.Offset, Distance: address - file.Start,
				},
			}
		case at.Name == "":
			return location{text: fmt.Sprintf("%#x anonymous", address)}
		}
		return location{text: fmt.Sprintf("%#x %s", address, at.Name)}
	}
	return location{text: fmt.Sprintf("%#x", address)}
}

// firstOf returns the first mapping of the file of a mapping.
func firstOf(maps []procfs.Map, of procfs.Map) procfs.Map {
	return maps[slices.IndexFunc(maps, func(m procfs.Map) bool { return m.Name == of.Name })]
}
