package ruby

import (
	"encoding/binary"
	"testing"

	"fulgur/internal/bpf"
	"fulgur/internal/runtimes"
)

// A walk of any memory ends, with no more frames than asked for, and sends records that can be parsed.
func FuzzWalk(f *testing.F) {
	f.Add(uint8(3), uint8(56), []byte{1, 2, 3})
	f.Add(uint8(1), uint8(0), []byte("frames"))
	f.Fuzz(func(t *testing.T, minor, size uint8, memory []byte) {
		if len(memory) == 0 {
			return
		}
		const space = 1 << 12
		read := func(addr uint64, buf []byte) bool {
			clear(buf)
			if addr >= space {
				return false
			}
			for i := 0; i+8 <= len(buf); i += 8 {
				at := (addr + uint64(i)) / 8
				v := uint64(memory[at%uint64(len(memory))]) * 8
				switch at % 7 {
				case 0:
					v = typeInternal | internalISeq
				case 1:
					v = typeString
				}
				binary.NativeEndian.PutUint64(buf[i:], v)
			}
			return true
		}
		ruby := bpf.UnwindRubyProcess{Minor: minor, FrameSize: size, BodyInfo: uint8(len(memory)), TagPc: 8, TagPrevious: 16, StringText: 24, Guarded: minor & 1}
		ruby.Interpreter = bpf.RuntimeRange{Start: 0, End: space}
		thread := runtimes.Thread{TID: 1, SP: 16, Read: read, Fresh: func(uint64, uint32) bool { return true }, Send: func(record []byte) {
			if _, _, err := runtimes.ParseCode(record); err != nil {
				t.Errorf("record: %v", err)
			}
		}}
		const limit = 20
		for _, thread.TP = range []uint64{0, 8, 128} {
			s := Walk(&thread, &ruby, limit)
			if s.Frames() > limit || len(s.Groups) > 0 && s.Groups[len(s.Groups)-1].End > len(s.Words) {
				t.Errorf("got %d frames, groups %v, want at most %d frames", s.Frames(), s.Groups, limit)
			}
		}
	})
}
