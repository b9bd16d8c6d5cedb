package cpython

import (
	"encoding/binary"
	"math"
	"time"

	"fulgur/internal/bpf"
	"fulgur/internal/runtimes"
	"fulgur/internal/unwind/stackend"
)

// Walker reads the Python frames of stopped threads of a process, in the steps of bpf/python.h. It is not safe for
// concurrent use.
type Walker struct {
	*runtimes.Thread

	states map[int]state // by thread, if only a search finds them
	python *layout
	stack  *runtimes.Stack
	top    uint64             // w->top of bpf/python.h
	state  uint64             // address of the thread's state
	frame  uint64             // address of the next frame
	cframe uint64             // address of the next C frame
	words  [maxFrame + 8]byte // fields may be at odd offsets
	code   [codeSize]byte
}

// state is what a search for the state of a thread found.
type state struct {
	at     uint64    // its address, 0 if it has none
	absent time.Time // when that was found out
}

// Limits, and constants of bpf/python.h.
const (
	codeSize      = 144     // bytes of a code object that are read
	maxSkipped    = 1024    // frames after the limit that are searched for the end of their group
	maxSearched   = 512     // states and interpreters that a search looks at
	maxStates     = 1 << 12 // threads whose states are kept
	absence       = time.Second
	boundGILState = 1 << 3
	ownedByC      = 3
	threadState   = 4096 // larger than a thread's state
	pthread       = 4096 // larger than glibc's and musl's struct pthread for arm64
	codeLines     = 16384
)

// Walk reads up to limit Python frames of a thread of a process with the given layout.
func (w *Walker) Walk(t *runtimes.Thread, python *bpf.UnwindPythonProcess, limit int) (stack runtimes.Stack) {
	stack.Interpreter = python.Interpreter
	w.Thread, w.python, w.stack, w.top, w.cframe = t, python, &stack, 0, 0
	if w.state = w.find(); w.state == 0 || !w.begin() {
		return stack
	}
	w.frames(limit)
	for range maxSkipped {
		if stack.End == 0 || w.skip() {
			break
		}
	}
	return stack
}

// find returns the address of the state of the thread, even if it has released the lock, or 0; see python_find_thread().
func (w *Walker) find() uint64 {
	p := w.python
	first, known := w.gilState()
	if known && first == 0 {
		return 0 // a thread without Python
	}
	owned := w.owns(first)
	if p.Holder == 0 && owned {
		return first
	}
	var interpreters [2]uint64 // the newest and the main one
	if !w.Words(p.Runtime+uint64(p.Interpreters), interpreters[:]) {
		return 0
	}
	several := p.Holder > 0 && interpreters[0] != interpreters[1]
	if owned && !several {
		return first
	}
	if several && p.ThreadCframe > 0 {
		w.top = math.MaxUint64
		if w.SP < w.TP {
			w.top = w.TP
		}
	}
	if p.Holder > 0 {
		if holder, ok := w.Word(p.Runtime + uint64(p.Holder)); ok && w.owns(holder) {
			w.keep(state{at: holder})
			return holder
		}
	}
	kept := w.states[w.TID]
	if !kept.absent.IsZero() && !several && time.Since(kept.absent) < absence {
		return 0
	}
	var found search
	if kept.at != 0 && !several && w.linked(kept.at) {
		w.consider(&found, kept.at)
	}
	if found.state == 0 && found.idle == 0 {
		w.search(&found, interpreters[0])
	}
	if found.state == 0 {
		found.state = found.idle
	}
	if found.state == 0 {
		w.keep(state{absent: time.Now()})
	} else {
		w.keep(state{at: found.state})
	}
	return found.state
}

// keep keeps what was found of a thread.
func (w *Walker) keep(s state) {
	if w.states == nil || len(w.states) >= maxStates {
		w.states = map[int]state{}
	}
	w.states[w.TID] = s
}

// gilState returns what PyGILState_GetThisThreadState() returns, if it is known how; see python_gilstate().
func (w *Walker) gilState() (state uint64, known bool) {
	p := w.python
	switch p.Thread {
	case byKey:
		var b [8]byte
		if !w.Read(p.Runtime+uint64(p.Key), b[:]) {
			return 0, false
		}
		if binary.NativeEndian.Uint32(b[:]) != 1 { // initialized
			return 0, true
		}
		return w.glibcKey(binary.NativeEndian.Uint32(b[4:]))
	case byLocal:
		if at := w.Local(&p.Local); at != 0 {
			return w.Word(at)
		}
	}
	return 0, false
}

// glibcKey returns the value of a pthread key; see glibc_key().
func (w *Walker) glibcKey(key uint32) (uint64, bool) {
	const keys, perBlock = 0x310, 32
	block := w.TP + keys
	if key >= perBlock*perBlock {
		return 0, false
	}
	if key >= perBlock {
		var ok bool
		if block, ok = w.Word(block + 16*perBlock + 8*uint64(key/perBlock)); !ok {
			return 0, false
		}
	}
	if block == 0 {
		return 0, true
	}
	return w.Word(block + 16*uint64(key%perBlock) + 8)
}

// owns reports whether a state is the thread's; see python_owns().
func (w *Walker) owns(state uint64) bool {
	if state == 0 {
		return false
	}
	if w.top != 0 {
		at, ok := w.Word(state + uint64(w.python.ThreadCframe))
		return ok && at >= w.SP && at < w.top
	}
	id, ok := w.Word(state + uint64(w.python.ThreadId))
	return ok && ownsThread(id, w.TP)
}

// linked reports whether a state is in its interpreter's list. If CPython frees it, it no longer is.
func (w *Walker) linked(state uint64) bool {
	p := w.python
	previous, ok := w.Word(state + uint64(p.ThreadNext) - 8)
	interpreter, known := w.Word(state + uint64(p.ThreadNext) + 8)
	if !ok || !known {
		return false
	}
	at := interpreter + uint64(p.Threads)
	if previous != 0 {
		at = previous + uint64(p.ThreadNext)
	}
	linked, ok := w.Word(at)
	return ok && linked == state
}

// search is a search for the state of a thread.
type search struct {
	state, idle, innermost uint64
}

// search looks at the states of all interpreters.
func (w *Walker) search(found *search, interpreter uint64) {
	p, steps := w.python, 0
	for ; interpreter != 0 && steps < maxSearched; steps++ {
		listed, ok := w.Word(interpreter + uint64(p.Threads))
		next, known := w.Word(interpreter + uint64(p.InterpreterNext))
		if !ok || !known {
			return
		}
		for ; listed != 0 && steps < maxSearched; steps++ {
			if w.consider(found, listed) {
				return
			}
			if listed, ok = w.Word(listed + uint64(p.ThreadNext)); !ok {
				return
			}
		}
		interpreter = next
	}
}

// consider looks whether a state is the thread's, and notes it. It reports whether there can be no other; see
// python_consider().
func (w *Walker) consider(found *search, at uint64) (done bool) {
	p := w.python
	if !w.owns(at) {
		return false
	}
	if p.ThreadStatus > 0 {
		var status [1]byte
		if !w.Read(at+uint64(p.ThreadStatus), status[:]) || status[0]&boundGILState == 0 {
			return false
		}
		found.state = at
		return true
	}
	var cframe, frame uint64
	ok := true
	if p.ThreadCframe > 0 {
		cframe, ok = w.Word(at + uint64(p.ThreadCframe))
	}
	if !ok {
		return false
	}
	if frame, ok = w.innermost(at, cframe); !ok {
		return false
	}
	switch {
	case frame == 0:
		found.idle = at
	case found.state == 0 || cframe < found.innermost:
		found.state, found.innermost = at, cframe
	}
	return false
}

// innermost returns the address of the innermost frame of a state with the given C frame.
func (w *Walker) innermost(state, cframe uint64) (uint64, bool) {
	if at := w.python.ThreadFrame; at > 0 {
		return w.Word(state + uint64(at))
	}
	return w.Word(cframe + uint64(w.python.CframeFrame))
}

// begin finds the innermost frame.
func (w *Walker) begin() (ok bool) {
	if at := w.python.ThreadCframe; at > 0 {
		if w.cframe, ok = w.Word(w.state + uint64(at)); !ok {
			return false
		}
	}
	w.frame, ok = w.innermost(w.state, w.cframe)
	return ok
}

// frames adds frames until a limit, or the end.
func (w *Walker) frames(limit int) {
	retried := false
	for entries := 0; entries <= limit; {
		at := w.frame
		if !w.next() {
			if !w.again(&retried) {
				return
			}
			continue
		}
		if w.isEntry() {
			entries++
			w.frame = w.back()
			// In 3.15 the last one is in the thread's state, and runs no frames.
			if at-w.state < threadState {
				return
			}
			w.stack.Group(at)
			continue
		}
		code := binary.NativeEndian.Uint64(w.words[w.python.FrameCode:]) &^ 7
		if !w.Read(code, w.code[:]) || binary.NativeEndian.Uint64(w.code[8:]) != w.python.CodeType {
			if !w.again(&retried) {
				return
			}
			continue
		}
		if w.stack.Frames() >= limit {
			w.stack.End = stackend.Depth
			return
		}
		check := w.check()
		w.stack.Add(bpf.RuntimePython, code, check, w.position(code))
		if w.Fresh(code, check) {
			if record := w.record(code, check); record != nil {
				w.Send(record)
			}
		}
		w.frame = w.back()
		if !w.group() {
			return
		}
	}
}

// again tries the C frame before if the first frame cannot be read: 3.11 and 3.12 link a C frame before setting its pointer to
// a frame. It reports whether there is another frame to try.
func (w *Walker) again(retried *bool) (ok bool) {
	if len(w.stack.Words) > 0 {
		if w.frame != 0 {
			w.stack.End = stackend.Fault
		}
		return false
	}
	if *retried || w.python.ThreadCframe == 0 || w.python.ThreadFrame > 0 {
		return false
	}
	*retried = true
	if w.cframe, ok = w.Word(w.cframe + uint64(w.python.CframePrevious)); !ok {
		return false
	}
	w.frame, ok = w.innermost(w.state, w.cframe)
	return ok
}

// next reads the frame that comes next in the chain.
func (w *Walker) next() bool {
	size := int(w.python.FrameSize)
	return w.frame != 0 && size <= len(w.words) && w.Read(w.frame, w.words[:size])
}

// back returns the address of the frame after the one that was read.
func (w *Walker) back() uint64 { return binary.NativeEndian.Uint64(w.words[w.python.FrameBack:]) }

// isEntry reports whether the frame that was read has no code, and thus ends a group.
func (w *Walker) isEntry() bool {
	return w.python.Entry == entryFrame && w.words[w.python.FrameOwner] >= ownedByC
}

// group ends a group after the frame that was read if C called that frame. It reports whether there may be others.
func (w *Walker) group() (ok bool) {
	entry := w.cframe
	switch w.python.Entry {
	case entryMarked:
		if w.words[w.python.FrameOwner-1] == 0 { // is_entry is before owner
			return true
		}
	case entryEach:
	case entryFunction:
		w.stack.Group(0)
		return true
	default:
		return true
	}
	w.stack.Group(entry)
	w.cframe, ok = w.Word(entry + uint64(w.python.CframePrevious))
	return ok
}

// skip skips a frame of a truncated stack, to find the entry of its group. It reports whether that is the end.
func (w *Walker) skip() bool {
	groups := len(w.stack.Groups)
	switch {
	case !w.next():
		return true
	case w.isEntry():
		w.stack.Group(w.frame)
		return true
	case !w.group() || len(w.stack.Groups) != groups:
		return true
	}
	w.frame = w.back()
	return false
}

// position returns the position in the code of the frame that was read, plus 1; 0 if it is unknown.
func (w *Walker) position(code uint64) uint32 {
	p := w.python
	at := int64(int32(binary.NativeEndian.Uint32(w.words[p.FramePosition:])))
	if p.CodeBytes > 0 {
		at = int64(binary.NativeEndian.Uint64(w.words[p.FramePosition:])-code-uint64(p.CodeBytes)) >> 1
	}
	if at < 0 || at >= bpf.FrameEntered-1 {
		return 0
	}
	return uint32(at + 1)
}

// field returns a word of the code object that was read.
func (w *Walker) field(at uint8) uint64 { return binary.NativeEndian.Uint64(w.code[at:]) }

// small returns 32 bits of it.
func (w *Walker) small(at uint8) uint32 { return binary.NativeEndian.Uint32(w.code[at:]) }

// check returns a number that distinguishes the code that was read from earlier code at the same address.
func (w *Walker) check() uint32 {
	p := w.python
	if p.CodeVersion > 0 {
		return w.small(p.CodeVersion)
	}
	file, name := w.field(p.CodeFile), w.field(p.CodeName)
	fileHash, _ := w.Word(file + strHashAt)
	nameHash, _ := w.Word(name + strHashAt)
	return runtimes.Hash(uint64(w.small(p.CodeLine)), w.field(p.CodeLines), file, name, fileHash, nameHash)
}

// record returns the record of the function that was read, nil if its name cannot be read.
func (w *Walker) record(code uint64, check uint32) []byte {
	p := w.python
	head := bpf.CodeHead{Address: code, Check: check, Kind: uint32(bpf.RuntimePython), Version: uint32(p.Minor), FirstLine: w.small(p.CodeLine)}
	var ok bool
	if head.Name.Length, head.Name.Width, ok = w.text(w.field(p.CodeName), head.NameText[:]); !ok {
		return nil
	}
	head.File.Length, head.File.Width, _ = w.text(w.field(p.CodeFile), head.FileText[:])
	table := w.field(p.CodeLines)
	size, _ := w.Word(table + bytesSizeAt)
	lines := make([]byte, min(size, codeLines))
	if !w.Read(table+bytesDataAt, lines) {
		lines = nil
	}
	return runtimes.CodeRecord(&head, lines)
}

// text reads the start of the str at an address into b, and returns its length in characters and their width in bytes; see
// python_string().
func (w *Walker) text(at uint64, b []byte) (length, width uint32, ok bool) {
	const compact, ascii = 1 << 5, 1 << 6
	var words [3]uint64 // length, hash and state
	ok = w.Words(at+strLengthAt, words[:])
	n, state := words[0], words[2]
	width = uint32(state >> 2 & 7)
	if !ok || state&compact == 0 || width != 1 && width != 2 && width != 4 {
		return 0, 0, false
	}
	length = uint32(min(n, math.MaxUint16))
	at += uint64(w.python.StringCompact)
	if state&ascii != 0 {
		at += uint64(w.python.StringAscii) - uint64(w.python.StringCompact)
	}
	return length, width, w.Read(at, b[:min(int(length*width), len(b))])
}
