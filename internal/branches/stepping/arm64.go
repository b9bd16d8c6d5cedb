package stepping

import "encoding/binary"

// maxA64 is the length of all A64 instructions, in bytes.
const maxA64 = 4

// decodeA64 decodes the A64 instruction at the start of text, which is at address addr,
// only as far as its kind requires. Encodings: Arm Architecture Reference Manual, C4.1.
// An instruction that text truncates is sensitive.
func decodeA64(text []byte, addr uint64) instruction {
	if len(text) < maxA64 {
		return instruction{kind: sensitive}
	}
	word := binary.LittleEndian.Uint32(text)
	// offset returns the signed field of the given width at bit shift, in bytes.
	offset := func(shift, width int) uint64 {
		return uint64(int64(int32(word<<(32-shift-width))>>(32-width))) * maxA64
	}
	branchIf := func(target uint64) instruction {
		return instruction{kind: conditional, next: addr + maxA64, target: target}
	}
	switch {
	case word&0x7c000000 == 0x14000000: // B, BL
		return instruction{kind: jump, target: addr + offset(0, 26)}
	case word&0xfe000000 == 0x54000000, // B.cond, BC.cond
		word&0x7e000000 == 0x34000000: // CBZ, CBNZ
		return branchIf(addr + offset(5, 19))
	case word&0x7e000000 == 0x36000000: // TBZ, TBNZ
		return branchIf(addr + offset(5, 14))
	case word&0xfe000000 == 0xd6000000: // BR, BLR, RET and similar
		return instruction{kind: jump}
	case word&0xff000000 == 0xd4000000: // SVC, HVC, BRK, HLT, …
		return instruction{kind: sensitive}
	case word&0x3f800000 == 0x08000000:
		// Load/store exclusive: a trap between them makes the store fail every time.
		return instruction{kind: sensitive}
	}
	return instruction{kind: plain}
}
