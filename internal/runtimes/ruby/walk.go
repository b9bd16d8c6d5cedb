package ruby

import (
	"encoding/binary"
	"math"
	"math/bits"

	"fulgur/internal/bpf"
	"fulgur/internal/runtimes"
	"fulgur/internal/unwind/stackend"
)

// Words of structures of CRuby, and other constants of bpf/ruby.h.
const (
	contextWords = 4 // the stack's memory, its size, the innermost frame, the innermost tag
	maxStack     = 1 << 32

	framePC, frameISeq, frameEnvironment, frameWords = 0, 2, 4, 5

	finish = 0x20 // flag of a frame that C called

	typeMask, typeString, typeArray, typeInternal = 0x1f, 0x05, 0x07, 0x1a
	internalMask, internalISeq                    = 0xf000, 0x7000
	user1                                         = 1 << 13

	bodySize, bodyCode, bodyPath, bodyLabel, bodyLine, bodyWords = 0, 1, 8, 10, 11, 19
	infoLines, infoSize, infoIndex                               = 0, 2, 3

	maxEntries = 1023 * entrySize // bytes
	maxIndex   = 4048             // likewise

	glibcGuard, glibcGuardShift = 0x30, 17

	maxSteps = 4 * bpf.MaxDepth // frames, also of C, and tags that are looked at
	maxText  = 128              // bytes of a text that its check covers
)

// Walk reads up to limit Ruby frames of a thread of a process with the given layout, in the steps of bpf/ruby.h.
func Walk(t *runtimes.Thread, ruby *bpf.UnwindRubyProcess, limit int) (stack runtimes.Stack) {
	w := walk{Thread: t, ruby: ruby}
	stack.Interpreter = ruby.Interpreter
	if !w.begin() {
		return stack
	}
	w.findTags()
	w.frames(&stack, limit)
	w.match(&stack)
	return stack
}

// walk is a walk of a thread's control frames.
type walk struct {
	*runtimes.Thread
	ruby       *bpf.UnwindRubyProcess
	frame, end uint64 // addresses of the next frame, and behind the frames
	tag        uint64 // address of the innermost tag
	guard      uint64 // encodes pointers
	tags       []uint64
	words      [frameWords]uint64
	body       [bodyWords]uint64
}

// begin finds the innermost frame and the innermost tag.
func (w *walk) begin() (ok bool) {
	if w.ruby.Guarded != 0 {
		if w.guard, ok = w.Word(w.TP + glibcGuard); !ok {
			return false
		}
	}
	at := w.Local(&w.ruby.Context)
	if at == 0 {
		return false
	}
	context, ok := w.Word(at)
	var words [contextWords]uint64
	if !ok || context == 0 || !w.Words(context, words[:]) {
		return false
	}
	size := 8 * words[1]
	w.frame, w.tag = words[2], words[3]
	// The outermost frame is of the thread itself: backtraces do not show it.
	w.end = words[0] + size - uint64(w.ruby.FrameSize)
	return size <= maxStack && w.frame-words[0] < size
}

// findTags notes the tags of rb_vm_exec().
func (w *walk) findTags() {
	at := w.tag
	for range maxSteps {
		pc, ok := w.Word(at + uint64(w.ruby.TagPc))
		previous, known := w.Word(at + uint64(w.ruby.TagPrevious))
		if at == 0 || !ok || !known {
			return
		}
		if w.ruby.Guarded != 0 {
			pc = bits.RotateLeft64(pc, -glibcGuardShift) ^ w.guard
		}
		if pc >= w.ruby.Interpreter.Start && pc < w.ruby.Interpreter.End {
			w.tags = append(w.tags, at)
		}
		if previous <= at {
			return
		}
		at = previous
	}
}

// frames adds the frames.
func (w *walk) frames(stack *runtimes.Stack, limit int) {
	for range maxSteps {
		if w.frame+8*frameWords > w.end {
			return
		}
		if !w.Words(w.frame, w.words[:]) {
			stack.End = stackend.Fault
			return
		}
		w.frame += uint64(w.ruby.FrameSize)
		code := w.words[frameISeq]
		if code == 0 {
			continue // of a function in C
		}
		var object [3]uint64
		if !w.Words(code, object[:]) || object[0]&typeMask != typeInternal {
			stack.End = stackend.Fault
			return
		}
		if object[0]&internalMask != internalISeq {
			continue // of a block in C
		}
		flags, ok := w.Word(w.words[frameEnvironment])
		if !ok || !w.Words(object[2], w.body[:]) {
			stack.End = stackend.Fault
			return
		}
		if stack.Frames() >= limit {
			stack.End = stackend.Depth
			return
		}
		check := w.check()
		stack.Add(bpf.RuntimeRuby, code, check, w.position())
		if w.Fresh(code, check) {
			if record := w.record(code, check); record != nil {
				w.Send(record)
			}
		}
		// rb_vm_call_cfunc(), which loads extensions, marks a frame without rb_vm_exec(). Only that frame has no pc.
		if flags&finish != 0 && w.words[framePC] != 0 {
			stack.Group(0) // see match
		}
	}
	stack.End = stackend.Depth
}

// match sets the entries of the groups. If rb_vm_exec() is about to begin, there is one group more than tags. If it is about to
// return, there is one tag more than groups.
func (w *walk) match(stack *runtimes.Stack) {
	groups, tags := len(stack.Groups), w.tags
	switch {
	case stack.End != stackend.None:
		stack.Group(0)
		stack.Groups = stack.Groups[:min(groups+1, len(tags))]
	case len(tags) > 0 && groups == len(tags)+1:
		tags = append([]uint64{w.SP}, tags...)
	case groups+1 == len(tags):
		tags = tags[1:]
	case groups != len(tags):
		stack.Groups = nil // unknown: all frames come last
		return
	}
	for i := range stack.Groups {
		stack.Groups[i].Entry = tags[i]
	}
}

// position returns the position in the code of the frame that was read, plus 1, in words, as rb_iseq_line_no() takes it; 0 if it
// is unknown: code of YJIT sets the instruction only before calls.
func (w *walk) position() uint32 {
	at := (w.words[framePC] - w.body[bodyCode]) / 8
	if at > 0 {
		at-- // the frame has the next instruction
	}
	if at >= w.body[bodySize]>>32 || at >= bpf.FrameEntered-1 {
		return 0
	}
	return uint32(at + 1)
}

// check returns a number that distinguishes the code that was read from earlier code at the same address.
func (w *walk) check() uint32 {
	hash := runtimes.Sum(w.body[bodySize], w.body[bodyCode])
	hash = runtimes.Sum(hash, w.body[bodyLine:]...)
	var text [maxText]byte
	for _, at := range []uint64{w.body[bodyLabel], w.body[bodyPath]} {
		size, ok := w.text(at, text[:])
		if !ok {
			continue
		}
		hash = runtimes.Sum(hash, uint64(size))
		for _, b := range text[:min(int(size), len(text))] {
			hash = runtimes.Sum(hash, uint64(b))
		}
	}
	return uint32(hash >> 32)
}

// record returns the record of the code that was read, nil if its name cannot be read.
func (w *walk) record(code uint64, check uint32) []byte {
	head := bpf.CodeHead{
		Address: code, Check: check, Kind: uint32(bpf.RuntimeRuby), Version: uint32(w.ruby.Minor),
		FirstLine: uint32(w.body[bodyLine] >> (w.ruby.LineShift & 1)),
	}
	var ok bool
	if head.Name.Length, ok = w.text(w.body[bodyLabel], head.NameText[:]); !ok {
		return nil
	}
	head.File.Length, _ = w.text(w.body[bodyPath], head.FileText[:])
	return runtimes.CodeRecord(&head, w.lines())
}

// text reads the start of a string, or of the first string of an array, into b, and returns its length in bytes.
func (w *walk) text(at uint64, b []byte) (length uint32, ok bool) {
	var object [5]uint64
	if !w.Words(at, object[:]) {
		return 0, false
	}
	if object[0]&typeMask == typeArray {
		at = object[2]
		if object[0]&user1 == 0 {
			if at, ok = w.Word(object[4]); !ok {
				return 0, false
			}
		}
		if !w.Words(at, object[:]) {
			return 0, false
		}
	}
	if object[0]&typeMask != typeString {
		return 0, false
	}
	size, text := object[2], object[3]
	if object[0]&user1 == 0 {
		text = at + uint64(w.ruby.StringText)
		if w.ruby.StringText == 16 {
			size = object[0] >> 14 & 0x1f
		}
	}
	length = uint32(min(size, math.MaxUint16))
	return length, w.Read(text, b[:min(int(length), len(b))])
}

// lines returns the line table of the code that was read.
func (w *walk) lines() []byte {
	n := int(w.ruby.BodyInfo / 8)
	if n > bodyWords-infoIndex-1 {
		return nil
	}
	info := w.body[n:]
	entries := min((info[infoSize]&math.MaxUint32)*entrySize, maxEntries)
	words := w.body[bodySize] >> 32
	first := min(words, near)
	index := (first+nearEach-1)/nearEach*8 + (words-first+block-1)/block*blockSize
	table := make([]byte, entriesAt+entries+min(index, maxIndex))
	binary.LittleEndian.PutUint64(table, entries)
	if !w.Read(info[infoLines], table[entriesAt:entriesAt+entries]) || !w.Read(info[infoIndex], table[entriesAt+entries:]) {
		return nil
	}
	return table
}
