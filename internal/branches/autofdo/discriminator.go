package autofdo

// A discriminator consists of up to three numbers, the lowest bits first: the base
// discriminator, the duplication factor and the copy. If the lowest bit is set, the number is
// 0 and consists of this bit alone. Otherwise the number has 5 bits, or 12 if the sixth is
// set (DILocation::encodeDiscriminator in llvm/lib/IR/DebugInfoMetadata.cpp).

// baseDiscriminator returns the base discriminator in d, which distinguishes basic blocks of
// the same line. If clang stored the number of a pseudo-probe instead, baseDiscriminator
// returns that number.
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

// duplicationFactor returns the number of copies of the code that the compiler made by
// unrolling or vectorizing a loop. In n iterations of the source loop, each of n copies is
// executed once.
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
