package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// memoryByCommand holds the memory that each command needs at least, in MiB: what the kernel charges to the cgroup of
// fulgur, which includes the BPF maps. They were measured with Linux 6.18 on 2 CPUs, each command for one
// second on an idle machine: the lowest limit under which the kernel killed nothing, to 2 MiB, and then about
// an eighth more, to multiples of 8 MiB. More programs, CPUs and stacks need more. TestMemoryNeeds in test/e2e runs
// the commands with these limits, except softirq and the last two. Branch records are not in the table: few
// machines have them, so they were not measured.
var memoryByCommand = map[Command]uint64{
	Profile: 64,  // 55
	OffCPU:  72,  // 65
	BlockIO: 72,  // 65
	Faults:  64,  // 58
	SoftIRQ: 64,  // 55
	RunQ:    72,  // 65
	Count:   64,  // 57
	Latency: 72,  // 60
	Locks:   112, // 98
	Alloc:   88,  // 79
	Record:  112, // 98

	BoltCounting: 40, // 33
	BoltStepping: 24, // 10
}

// MemoryNeed returns the memory in bytes that a command needs at least, with its BPF maps. It returns 0 if
// that is not known.
func MemoryNeed(c Command) uint64 { return memoryByCommand[c] << 20 }

// starved returns the commands that need more memory than they may use.
func starved(f *Facts) []Command {
	if f.Memory.Bytes == 0 {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(Commands), func(c Command) bool { return MemoryNeed(c) <= f.Memory.Bytes })
}

// memoryLimit describes the limit, and what commands need.
func memoryLimit(f *Facts) string {
	if f.Memory.Bytes == 0 {
		least, most := slices.Min(slices.Collect(maps.Values(memoryByCommand))), slices.Max(slices.Collect(maps.Values(memoryByCommand)))
		return fmt.Sprintf("no limit; commands need %d to %d MiB", least, most)
	}
	return "at most " + mebibytes(f.Memory.Bytes)
}

// memoryNeeds describes what starved commands need, the least first.
func memoryNeeds(f *Facts) string {
	commands := starved(f)
	slices.SortStableFunc(commands, func(a, b Command) int { return cmp.Compare(memoryByCommand[a], memoryByCommand[b]) })
	text := memoryFile(f) + ", but commands need more: "
	for i, c := range commands {
		text += string(c)
		switch {
		case i == len(commands)-1:
			text += fmt.Sprintf(" %d MiB", memoryByCommand[c])
		case memoryByCommand[c] == memoryByCommand[commands[i+1]]:
			text += ", "
		default:
			text += fmt.Sprintf(" %d MiB; ", memoryByCommand[c])
		}
	}
	return text
}

// memoryNeed is like [memoryNeeds] for one command.
func memoryNeed(f *Facts, c Command) string {
	return fmt.Sprintf("fulgur %s needs %d MiB of memory, but %s", c, memoryByCommand[c], memoryFile(f))
}

func memoryFile(f *Facts) string {
	return fmt.Sprintf("%s limits memory to %s", f.Memory.File, mebibytes(f.Memory.Bytes))
}

// mebibytes formats a number of bytes, rounded down.
func mebibytes(n uint64) string {
	if n < 1<<20 {
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d MiB", n>>20)
}
