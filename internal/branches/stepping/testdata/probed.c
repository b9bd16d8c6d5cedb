/*
 * Works in a loop whose instructions have names, so that the test can probe them: jumps and a nop,
 * which the kernel emulates, and others, which it lets the thread execute elsewhere. The program
 * checks that each is executed once in each round, and exits with code 3 if not.
 */
#if defined(__x86_64__)
#define LOOP                           \
	"probe_nop: nop\n"             \
	"probe_add: add $3, %[sum]\n"  \
	"probe_jump: jmp probe_sub\n"  \
	"add $1000, %[sum]\n"          \
	"probe_sub: sub $1, %[n]\n"    \
	"probe_loop: jnz probe_nop\n"
#else
#define LOOP                                 \
	"probe_nop: nop\n"                   \
	"probe_add: add %[sum], %[sum], #3\n" \
	"probe_jump: b probe_sub\n"          \
	"add %[sum], %[sum], #1000\n"        \
	"probe_sub: sub %[n], %[n], #1\n"    \
	"probe_loop: cbnz %[n], probe_nop\n"
#endif

int main(void)
{
	for (;;) {
		unsigned long n = 1 << 16, sum = 0;

		__asm__ volatile(LOOP : [sum] "+r"(sum), [n] "+r"(n) : : "cc");
		if (sum != 3UL << 16)
			return 3;
	}
}
