package runtimes

import (
	"fulgur/internal/bpf"
	"fulgur/internal/unwind/stackend"
)

// Stack has the frames of an interpreter in the stack of a thread, leaf first, as user space reads them without the kernel
// side. The zero value has none.
type Stack struct {
	// Interpreter is the native function that runs the frames.
	Interpreter bpf.RuntimeRange
	// Words are the frames, two words each, see bpf/record.h.
	Words []uint64
	// Groups divide the frames: one native frame runs each group.
	Groups []Group
	// End is why frames are missing, or [stackend.None].
	End stackend.End
}

// Group is the part of a [Stack] that one native frame runs.
type Group struct {
	// Entry is an address in the native frame's part of the stack, or 0 if the next frame of the interpreter's function runs
	// the group.
	Entry uint64
	// End is the number of words of the stack up to the end of the group.
	End int
}

// Add adds a frame of a kind of runtime: the address of its code, a check of the code, and the position in it plus 1, or 0
// if that is unknown.
func (s *Stack) Add(kind Kind, address uint64, check, position uint32) {
	first := 1<<bpf.FrameRuntimeShift | uint64(kind)<<bpf.FrameKindShift | address&(1<<bpf.FrameKindShift-1)
	s.Words = append(s.Words, first, uint64(check)<<32|uint64(position))
}

// Group ends a group with the given entry.
func (s *Stack) Group(entry uint64) { s.Groups = append(s.Groups, Group{entry, len(s.Words)}) }

// Frames returns the number of frames.
func (s *Stack) Frames() int { return len(s.Words) / 2 }

// Empty reports whether s has neither frames nor groups.
func (s *Stack) Empty() bool { return len(s.Words) == 0 && len(s.Groups) == 0 }

// Merge inserts the groups of stacks into a stack of native frames, after the frames that run them, as runtime_merge() of
// bpf/runtime.h does. native has a word for each frame, leaf first, and sps the stack pointers in them, as far as
// they are known; the stack pointer after the last frame follows if that is known. Frames that no native frame runs come
// last. Merge appends the result to words.
func Merge(words, native, sps []uint64, stacks []Stack) []uint64 {
	merged := make([]merge, len(stacks))
	for i, word := range native {
		at := len(words)
		words = append(words, word)
		if i+1 >= len(sps) {
			continue
		}
		for n := range stacks {
			more, ok := merged[n].next(&stacks[n], word&^bpf.FrameExact, sps[i], sps[i+1])
			if !ok {
				continue
			}
			// The instruction in the interpreter is of no use, and would make more distinct stacks.
			words[at] = stacks[n].Interpreter.Start
			if i > 0 {
				words[at] |= bpf.FrameExact
			}
			if words = append(words, more...); len(more) > 0 {
				words[at+2] |= bpf.FrameEntered
			}
			break
		}
	}
	for n := range stacks {
		words = append(words, stacks[n].Words[merged[n].words:]...)
	}
	return words
}

// merge is the progress of a [Merge]: the numbers of groups and words of a stack that are merged.
type merge struct{ groups, words int }

// next returns the words of the groups that the native frame at pc runs, whose part of the stack is from low up to high. ok is
// false if it runs none.
func (m *merge) next(s *Stack, pc, low, high uint64) (words []uint64, ok bool) {
	n, from := 0, m.words
	for ; m.groups < len(s.Groups) && s.runs(s.Groups[m.groups], n, pc, low, high); n++ {
		m.words = s.Groups[m.groups].End
		m.groups++
	}
	return s.Words[from:m.words], n > 0
}

// runs reports whether the native frame at pc, whose part of the stack is from low up to high, runs group g, after n
// others.
func (s *Stack) runs(g Group, n int, pc, low, high uint64) bool {
	if g.Entry == 0 {
		return n == 0 && pc >= s.Interpreter.Start && pc <= s.Interpreter.End
	}
	return g.Entry >= low && g.Entry < high
}
