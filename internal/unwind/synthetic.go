package unwind

import (
	"bytes"
	"slices"
)

// synthetic creates spans for code without call frame information.
type synthetic struct {
	chunk chunk
}

// add appends a span of rules at the given offsets.
func (s *synthetic) add(start, end uint64, offs []uint32, rules ...Rule) {
	first := uint32(len(s.chunk.rows))
	for i, off := range offs {
		s.chunk.rows = append(s.chunk.rows, localRow{off, s.chunk.rules.add(rules[i])})
	}
	s.chunk.spans = append(s.chunk.spans, span{
		start: start, end: end, origin: start, chunk: &s.chunk, first: first, n: uint32(len(offs)),
	})
}

// addSynthetic adds rules for undescribed code with a fixed form. lld does not describe
// procedure linkage tables, and on arm64 no linker does; musl and arm64's vDSO do not
// describe signal trampolines. addSynthetic reports whether it found signal trampolines.
func (b *builder) addSynthetic() (trampolines bool) {
	s := &synthetic{chunk{rules: newRuleSet()}}
	if IsGo(b.file) || !b.needsLibc() {
		trampolines = b.addSigreturn(s)
	}
	b.addPLT(s)
	b.addEntry(s)
	b.addStartContext(s)
	b.addContextEnd(s)
	b.spans = fill(b.spans, layer([]*chunk{&s.chunk}))
	return trampolines
}

// addPLT describes the stubs of the procedure linkage table. None has a frame. For lazy
// binding on amd64, stubs push a number and jump to the first one, which pushes another
// word. On arm64 the first one pushes two registers.
func (b *builder) addPLT(s *synthetic) {
	sections, err := b.file.Sections()
	if err != nil {
		return
	}
	leaf := Rule{Kind: KindSP, CFA: 8, RASlot: SlotCFA, RA: -8}
	if b.arch.link {
		leaf = Rule{Kind: KindSP}
	}
	for _, sec := range sections {
		if !sec.IsPLT() || sec.Size == 0 {
			continue
		}
		start, end := sec.Addr, sec.Addr+sec.Size
		if end < start {
			continue
		}
		switch {
		case sec.Name != ".plt" || sec.Size < 32:
			s.add(start, end, []uint32{0}, leaf)
		case b.arch == arm64:
			saved := Rule{Kind: KindSP, CFA: 16, RASlot: SlotCFA, RA: -8}
			push := uint32(4)
			if b.has(start, []byte{0x5f, 0x24, 0x03, 0xd5}) { // bti c
				push = 8
			}
			s.add(start, end, []uint32{0, push, 32}, leaf, saved, leaf)
		default:
			pushed := func(n int32) Rule { return Rule{Kind: KindSP, CFA: n, RASlot: SlotCFA, RA: -8} }
			stub := Rule{Kind: KindPLT, CFA: 8, Arg: 11, RASlot: SlotCFA, RA: -8} // jmp, push, jmp
			if b.has(start+16, []byte{0xf3, 0x0f, 0x1e, 0xfa}) {
				stub.Arg = 9 // endbr64, push, jmp
			}
			s.add(start, end, []uint32{0, 6, 16}, pushed(16), pushed(24), stub)
		}
	}
}

// has reports whether the file has the bytes want at a link-time address.
func (b *builder) has(addr uint64, want []byte) bool {
	return bytes.Equal(b.bytes(addr, addr+uint64(len(want))), want)
}

// maxScan bounds the bytes of code that are searched for trampolines, so that a program
// with little unwind information costs no time.
const maxScan = 4 << 20

// needsLibc reports whether the file needs a C library. If it does, the C library has the signal
// trampolines of the process, and only Go programs have their own as well.
func (b *builder) needsLibc() bool {
	needs, err := b.file.Needs("libc.")
	return err == nil && needs
}

// search calls yield for each place of a pattern in code without rows, with the start of that code.
func (b *builder) search(pattern []byte, yield func(gap, at uint64)) {
	left := uint64(maxScan)
	window := newCodeWindow(b.file, b.code)
	defer window.close()
	b.code.gaps(b.spans, func(start, end uint64) {
		if end-start < uint64(len(pattern)) || left < end-start {
			return
		}
		left -= end - start
		window.find(start, end, pattern, func(at uint64) { yield(start, at) })
	})
}

// addSigreturn finds signal trampolines by their code, as debuggers and compiler runtimes
// do. It reports whether there are any.
func (b *builder) addSigreturn(s *synthetic) (found bool) {
	b.search(b.arch.sigreturn, func(gap, at uint64) {
		// The return address of a handler is the trampoline's first byte, and the
		// lookup uses the byte before it.
		s.add(max(at-1, gap), at+uint64(len(b.arch.sigreturn)), []uint32{0}, Rule{Kind: KindSignal})
		found = true
	})
	return found
}

// addContextEnd marks the end of the stacks of Boost's contexts and of their copies in PHP and brpc.
// The function of a context returns to code that follows make_fcontext and calls _exit.
func (b *builder) addContextEnd(s *synthetic) {
	end := &b.arch.contextEnd
	b.search(end.code[:end.fixed], func(gap, at uint64) {
		code := b.bytes(at, at+uint64(len(end.code)))
		if len(code) < len(end.code) {
			return
		}
		for i := range code {
			if code[i]&end.mask[i] != end.code[i] {
				return
			}
		}
		first, n := at+uint64(end.first), uint64(len(end.landing))
		if n > 0 && first >= gap+n && b.has(first-n, end.landing) {
			first -= n
		}
		// The lookup uses the byte before a return address.
		s.add(max(first-1, gap), at+uint64(len(code)), []uint32{0}, Rule{Kind: KindEnd})
	})
}

// maxEntryCode bounds the code after the entry point that belongs to it, in bytes.
const maxEntryCode = 64

// addStartContext marks the end of coroutine stacks. Their return address, which is not
// from a call, is the first byte of a function, and the lookup uses the byte before it.
func (b *builder) addStartContext(s *synthetic) {
	if b.arch.startContext == nil {
		return
	}
	for i, f := range b.spans {
		if f.end-f.start != b.arch.startContextSize || i > 0 && b.spans[i-1].end == f.start {
			continue
		}
		if _, ok := b.code.end(f.start - 1); ok && b.has(f.start, b.arch.startContext) {
			s.add(f.start-1, f.start, []uint32{0}, Rule{Kind: KindEnd})
		}
	}
}

// addEntry marks the entry point as the end of stacks, unless call frame information
// describes it.
func (b *builder) addEntry(s *synthetic) {
	entry := b.file.Entry()
	if entry == 0 {
		return
	}
	if _, ok := b.code.end(entry); !ok {
		return
	}
	i, _ := slices.BinarySearchFunc(b.spans, entry, func(s span, addr uint64) int {
		if s.start > addr {
			return 1
		}
		return -1
	})
	end := entry + maxEntryCode
	if i < len(b.spans) {
		end = min(end, b.spans[i].start)
	}
	s.add(entry, end, []uint32{0}, Rule{Kind: KindEnd})
}
