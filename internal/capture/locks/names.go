package locks

import (
	"cmp"
	"fmt"
	"path"
	"slices"

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
	names map[place]string
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

// name returns the address with its mapping. In a file, the address is relative to where the
// file is mapped, so that it is the same in all processes.
func (m *mappings) name(pid uint32, address uint64) string {
	key := place{pid, address}
	name, known := m.names[key]
	if known {
		return name
	}
	name = nameIn(m.of(pid), address)
	if m.names == nil {
		m.names = map[place]string{}
	}
	if len(m.names) < maxPlaces {
		m.names[key] = name
	}
	return name
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

// nameIn returns the name of an address in a process with the given mappings.
func nameIn(maps []procfs.Map, address uint64) string {
	for i, at := range maps {
		if address < at.Start || address >= at.Limit {
			continue
		}
		file := at
		if file.Name == "" && i > 0 && maps[i-1].Limit == at.Start {
			file = maps[i-1] // zero-initialized data follows the rest
		}
		if file.Ino != 0 {
			first := slices.IndexFunc(maps, func(m procfs.Map) bool { return m.Name == file.Name })
			name := path.Base(file.Name)
			if file.Name == sharedMemory {
				name = "shared memory"
			}
			return fmt.Sprintf("%s+%#x", name, address-maps[first].Start)
		}
		if at.Name == "" {
			return fmt.Sprintf("%#x anonymous", address)
		}
		return fmt.Sprintf("%#x %s", address, at.Name)
	}
	return fmt.Sprintf("%#x", address)
}
