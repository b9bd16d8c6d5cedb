package doctor

import (
	"cmp"
	"fmt"
	"slices"
)

// MemoryNeed returns the memory in bytes that a command needs at least: what the kernel charges to the cgroup of
// fulgur, which includes the BPF maps. It returns 0 if that is not known.
func MemoryNeed(c Command) uint64 {
	i := slices.IndexFunc(commands, func(known command) bool { return known.name == c })
	if i < 0 {
		return 0
	}
	return commands[i].memory << 20
}

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
		known := slices.DeleteFunc(slices.Clone(commands), func(c command) bool { return c.memory == 0 })
		byMemory := func(a, b command) int { return cmp.Compare(a.memory, b.memory) }
		return fmt.Sprintf("no limit; commands need %d to %d MiB", slices.MinFunc(known, byMemory).memory, slices.MaxFunc(known, byMemory).memory)
	}
	return "at most " + mebibytes(f.Memory.Bytes)
}

// memoryNeeds describes what starved commands need, the least first.
func memoryNeeds(f *Facts) string {
	all := starved(f)
	slices.SortStableFunc(all, func(a, b Command) int { return cmp.Compare(MemoryNeed(a), MemoryNeed(b)) })
	text := memoryFile(f) + ", but commands need more: "
	for i, c := range all {
		text += string(c)
		switch {
		case i == len(all)-1:
			text += fmt.Sprintf(" %d MiB", MemoryNeed(c)>>20)
		case MemoryNeed(c) == MemoryNeed(all[i+1]):
			text += ", "
		default:
			text += fmt.Sprintf(" %d MiB; ", MemoryNeed(c)>>20)
		}
	}
	return text
}

// memoryNeed is like [memoryNeeds] for one command.
func memoryNeed(f *Facts, c Command) string {
	return fmt.Sprintf("fulgur %s needs %d MiB of memory, but %s", c, MemoryNeed(c)>>20, memoryFile(f))
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
