package cpython

import (
	"encoding/binary"
	"testing"

	"fulgur/internal/runtimes"
)

// A walk of any memory ends, with no more frames than asked for, and sends records that can be parsed.
func FuzzWalk(f *testing.F) {
	f.Add(uint8(9), byKey, []byte{1, 2, 3})
	f.Add(uint8(11), listed, []byte("frames"))
	f.Add(uint8(12), byLocal, []byte{0, 0, 0, 0, 0, 0, 0, 8})
	f.Fuzz(func(t *testing.T, minor, way uint8, memory []byte) {
		python, ok := layouts[int(minor)]
		if !ok || len(memory) == 0 {
			return
		}
		// Each word of the memory is the offset of another one, so that chains are long.
		const size = 1 << 12
		read := func(addr uint64, buf []byte) bool {
			if addr >= size {
				return false
			}
			for i := range buf {
				buf[i] = 0
			}
			for i := 0; i+8 <= len(buf); i += 8 {
				at := (addr + uint64(i)) / 8
				v := uint64(memory[at%uint64(len(memory))]) * 8
				if at%5 == 0 {
					v = python.CodeType
				}
				binary.NativeEndian.PutUint64(buf[i:], v)
			}
			return true
		}
		python.Runtime, python.CodeType, python.Thread, python.Minor = 64, 128, way%3, minor
		thread := runtimes.Thread{TID: 1, SP: 16, Read: read, Fresh: func(uint64, uint32) bool { return true }, Send: func(record []byte) {
			if _, _, err := runtimes.ParseCode(record); err != nil {
				t.Errorf("record: %v", err)
			}
		}}
		const limit = 20
		var w Walker
		for _, thread.TP = range []uint64{0, 8, 128} {
			s := w.Walk(&thread, &python, limit)
			if s.Frames() > limit || len(s.Groups) > 0 && s.Groups[len(s.Groups)-1].End > len(s.Words) {
				t.Errorf("got %d frames, groups %v, want at most %d frames", s.Frames(), s.Groups, limit)
			}
		}
	})
}

// Offsets that CPython 3.13 gives lead to no access beyond what is read of a frame.
func TestOddOffsets(t *testing.T) {
	python := layout{Minor: 13, Entry: entryFunction, FrameSize: maxFrame, FrameBack: maxFrame - 7, FrameCode: maxFrame - 7, FramePosition: maxFrame - 7, FrameOwner: maxFrame - 1, ThreadFrame: 8, Thread: listed, Interpreters: 8, Threads: 8, ThreadNext: 16, ThreadId: 24, ThreadStatus: 32, CodeType: 0x0808080808080808, CodeVersion: codeVersion, CodeLine: maxCode, CodeFile: maxCode, CodeName: maxCode, CodeLines: maxCode}
	thread := runtimes.Thread{TP: 0x0808080808080808, Read: func(_ uint64, buf []byte) bool {
		for i := range buf {
			buf[i] = 8
		}
		return true
	}, Fresh: func(uint64, uint32) bool { return true }, Send: func([]byte) {}}
	var w Walker
	if s := w.Walk(&thread, &python, maxFrame); s.Frames() == 0 {
		t.Error("got no frames")
	}
}
