// Restartable sequences for x86-64 and arm64, with symbols at their bounds.
#if defined(__x86_64__)
#define SIGNATURE ".byte 0x0f, 0xb9, 0x3d\n\t.long 0x53053053\n\t"
#else
#define SIGNATURE ".inst 0xd428bc00\n\t"
#endif

// A sequence of 7 NOPs, from NAME_begin to NAME_end, with an abort handler at NAME_abort. SECTION
// holds its descriptor.
#define SEQUENCE(name, section)                                                                    \
	__asm__(".pushsection " section ", \"aw\"\n\t"                                             \
		".balign 32\n\t" name "_descriptor:\n\t"                                           \
		".long 0, 0\n\t"                                                                   \
		".quad " name "_begin, (" name "_end - " name "_begin), " name "_abort\n\t"        \
		".popsection\n\t"                                                                  \
		".pushsection __rseq_cs_ptr_array, \"aw\"\n\t"                                     \
		".quad " name "_descriptor\n\t"                                                    \
		".popsection\n\t"                                                                  \
		".pushsection .text\n\t" name "_begin:\n\t"                                        \
		"nop\n\tnop\n\tnop\n\tnop\n\tnop\n\tnop\n\tnop\n\t" name "_end:\n\t"               \
		"ret\n\t" SIGNATURE name "_abort:\n\t"                                             \
		"ret\n\t.popsection\n\t")

SEQUENCE("first", "__rseq_cs");
SEQUENCE("second", "__rseq_cs");
SEQUENCE("old", "__rseq_table");
SEQUENCE("elsewhere", ".data.elsewhere"); // only the array has its address

int main(void)
{
	return 0;
}
