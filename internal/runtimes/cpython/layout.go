package cpython

import (
	"encoding/binary"
	"math"

	"fulgur/internal/bpf"
)

// layout has the offsets of fields.
type layout = bpf.UnwindPythonProcess

// Links from Python frames to native ones; see enum python_entry of bpf/runtime_maps.h.
const (
	entryFrame    = uint8(bpf.UnwindPythonEntryPYTHON_ENTRY_FRAME)
	entryMarked   = uint8(bpf.UnwindPythonEntryPYTHON_ENTRY_MARKED)
	entryEach     = uint8(bpf.UnwindPythonEntryPYTHON_ENTRY_EACH)
	entryFunction = uint8(bpf.UnwindPythonEntryPYTHON_ENTRY_FUNCTION)
)

// layouts has the layouts of versions without struct _Py_DebugOffsets, by minor version.
// The values are offsetof() in their headers, and do not change within a minor version.
// Interpreters is the offset of _PyRuntime.interpreters.head.
var layouts = map[int]layout{
	9: {
		Key: 584, Holder: 568, Interpreters: 32, Threads: 8, ThreadNext: 8, ThreadId: 176,
		Entry: entryFunction, ThreadFrame: 24,
		FrameSize: 112, FrameCode: 32, FrameBack: 24, FramePosition: 104,
		CodeLine: 40, CodeFile: 104, CodeName: 112, CodeLines: 120,
		StringAscii: 48, StringCompact: 72,
	},
	10: {
		Key: 584, Holder: 568, Interpreters: 32, Threads: 8, ThreadNext: 8, ThreadId: 176,
		Entry: entryEach, ThreadFrame: 24, ThreadCframe: 48, CframePrevious: 8,
		FrameSize: 104, FrameCode: 32, FrameBack: 24, FramePosition: 96,
		CodeLine: 40, CodeFile: 104, CodeName: 112, CodeLines: 120,
		StringAscii: 48, StringCompact: 72,
	},
	11: {
		Key: 592, Holder: 576, Interpreters: 40, Threads: 16, ThreadNext: 8, ThreadId: 152,
		Entry: entryMarked, ThreadCframe: 56, CframeFrame: 8, CframePrevious: 16,
		FrameSize: 72, FrameCode: 32, FrameBack: 48, FramePosition: 56, FrameOwner: 69,
		CodeLine: 72, CodeFile: 112, CodeName: 128, CodeLines: 136, CodeBytes: 184,
		StringAscii: 48, StringCompact: 72,
	},
	12: {
		Key: 1544, Interpreters: 40, Threads: 72, ThreadNext: 8, ThreadId: 136, ThreadStatus: 24,
		Entry: entryFrame, ThreadCframe: 56, CframeFrame: 0, CframePrevious: 8,
		FrameSize: 72, FrameCode: 0, FrameBack: 8, FramePosition: 56, FrameOwner: 70,
		CodeLine: 68, CodeFile: 112, CodeName: 128, CodeLines: 136, CodeVersion: 92, CodeBytes: 192,
		StringAscii: 40, StringCompact: 56,
	},
}

// maxOffsets is the number of words of struct _Py_DebugOffsets to read, with the cookie.
const maxOffsets = 96

// indexes has the offsets of fields in struct _Py_DebugOffsets, in words, by minor version.
var indexes = map[int]struct {
	interpreters, interpreterNext, threads             int
	threadNext, threadFrame, threadID, threadStatus    int
	frameBack, frameCode, framePosition, frameOwner    int
	codeFile, codeName, codeLines, codeLine, codeBytes int
	bytesSize, bytesData                               int
	strState, strLength, strASCII                      int
}{
	13: {
		interpreters: 5, interpreterNext: 8, threads: 9,
		threadNext: 21, threadFrame: 23, threadID: 24, threadStatus: 27,
		frameBack: 29, frameCode: 30, framePosition: 31, frameOwner: 33,
		codeFile: 35, codeName: 37, codeLines: 38, codeLine: 39, codeBytes: 43,
		bytesSize: 65, bytesData: 66,
		strState: 68, strLength: 69, strASCII: 70,
	},
	14: {
		interpreters: 5, interpreterNext: 8, threads: 9,
		threadNext: 24, threadFrame: 26, threadID: 27, threadStatus: 30,
		frameBack: 32, frameCode: 33, framePosition: 34, frameOwner: 36,
		codeFile: 40, codeName: 42, codeLines: 43, codeLine: 44, codeBytes: 48,
		bytesSize: 75, bytesData: 76,
		strState: 78, strLength: 79, strASCII: 80,
	},
	15: {
		interpreters: 5, interpreterNext: 8, threads: 9,
		threadNext: 24, threadFrame: 26, threadID: 30, threadStatus: 33,
		frameBack: 40, frameCode: 41, framePosition: 42, frameOwner: 44,
		codeFile: 48, codeName: 50, codeLines: 51, codeLine: 52, codeBytes: 56,
		bytesSize: 87, bytesData: 88,
		strState: 90, strLength: 91, strASCII: 92,
	},
}

// keys has the offset in _PyRuntime of the pthread key of thread states, by minor version.
var keys = map[int]uint16{13: 2160, 14: 2336}

// Constants that struct _Py_DebugOffsets lacks or that the kernel side assumes: codeVersion
// is the offset of co_version, and strNotASCII the number of bytes by which the header of a
// non-ASCII str is longer.
const (
	codeVersion = 92
	strNotASCII = 16
	strLengthAt = 16
	strHashAt   = 24
	strStateAt  = 32
	bytesSizeAt = 16
	bytesDataAt = 32
)

// fromDebugOffsets returns the layout in a struct _Py_DebugOffsets of CPython 3.minor, or
// false if the kernel side cannot use it.
func fromDebugOffsets(minor int, offsets []byte) (layout, bool) {
	at, ok := indexes[minor]
	if !ok {
		return layout{}, false
	}
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(offsets[8*i:]) }
	small := func(i int) uint8 {
		w := word(i)
		ok = ok && w <= math.MaxUint8
		return uint8(w)
	}
	large := func(i int) uint16 {
		w := word(i)
		ok = ok && w <= math.MaxUint16
		return uint16(w)
	}
	l := layout{
		Key: keys[minor], Interpreters: large(at.interpreters), InterpreterNext: large(at.interpreterNext), Threads: large(at.threads),
		ThreadNext: small(at.threadNext), ThreadFrame: small(at.threadFrame), ThreadId: small(at.threadID),
		ThreadStatus: small(at.threadStatus),
		Entry:        entryFrame,
		FrameCode:    small(at.frameCode), FrameBack: small(at.frameBack), FramePosition: small(at.framePosition),
		FrameOwner: small(at.frameOwner),
		CodeFile:   small(at.codeFile), CodeName: small(at.codeName), CodeLines: small(at.codeLines),
		CodeLine: small(at.codeLine), CodeBytes: small(at.codeBytes), CodeVersion: codeVersion,
		StringAscii: small(at.strASCII),
	}
	l.StringCompact = l.StringAscii + strNotASCII
	// No offset is so large that the size overflows.
	last := max(l.FrameCode, l.FrameBack, l.FramePosition, l.FrameOwner)
	ok = ok && last < maxFrame && l.StringAscii <= math.MaxUint8-strNotASCII
	l.FrameSize = (last + 8) &^ 7
	return l, ok && l.ThreadStatus > 0 && word(at.strLength) == strLengthAt && word(at.strState) == strStateAt &&
		word(at.bytesSize) == bytesSizeAt && word(at.bytesData) == bytesDataAt && l.FrameSize <= maxFrame &&
		max(l.CodeFile, l.CodeName, l.CodeLines, l.CodeLine) <= maxCode
}

// Limits of the kernel side: the number of bytes that it reads from a frame, and the largest
// offset of a field in code; see struct runtime_walk.
const (
	maxFrame = 112
	maxCode  = 136
)
