package autofdo

// A discriminator consists of up to three numbers, the lowest bits first: the base
// discriminator, the duplication factor and the copy. A set lowest bit stands for 0 and is
// all there is of the number. Otherwise the number has 5 bits, or 12 if the sixth is set
// (DILocation::encodeDiscriminator in llvm/lib/IR/DebugInfoMetadata.cpp).

// baseDiscriminator returns the base discriminator in d, which distinguishes basic blocks
// of the same line. Where clang has put the number of a pseudo-probe instead, it is that
// number.
func baseDiscriminator(d uint32) uint32 {
	if d&7 == 7 {
		return d >> 3 & 0xffff
	}
	return number(d)
}

// number decodes the first number in d.
func number(d uint32) uint32 {
	if d&1 != 0 {
		return 0
	}
	d >>= 1
	if d&0x20 != 0 {
		return d>>1&0xfe0 | d&0x1f
	}
	return d & 0x1f
}

// duplicationFactor returns the number of copies that the compiler made of the code, by
// unrolling or vectorizing a loop. Each is executed only in one of as many iterations.
func duplicationFactor(d uint32) uint64 {
	switch {
	case d&1 != 0:
		d >>= 1
	case d&0x40 != 0:
		d >>= 14
	default:
		d >>= 7
	}
	return max(1, uint64(number(d)))
}
