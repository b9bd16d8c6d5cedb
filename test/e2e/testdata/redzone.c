/*
 * Calls a function that keeps a number below the stack pointer across a NOP, which is also the
 * place of a USDT probe, for each r on standard input. It prints how many calls were right.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

__attribute__((noinline)) long keeps(long n)
{
	volatile long kept = n;

#if defined(__x86_64__)
	__asm__ volatile(".globl place\nplace: .byte 0x0f, 0x1f, 0x44, 0x00, 0x00");
#else
	__asm__ volatile(".globl place\nplace: nop");
#endif
	__asm__ volatile(".pushsection .note.stapsdt, \"\", \"note\"\n"
			 ".balign 4\n"
			 ".4byte 2f - 1f, 4f - 3f, 3\n"
			 "1: .asciz \"stapsdt\"\n"
			 "2: .balign 4\n"
			 "3: .8byte place, 0, 0\n"
			 ".asciz \"fulgur\", \"place\", \"\"\n"
			 "4: .balign 4\n"
			 ".popsection");
	return kept + 1;
}

int main(int argc, char **argv)
{
	char command;

	if (argc < 2 || strcmp(argv[1], "serve"))
		return 1;
	while (read(0, &command, 1) == 1) {
		long right = 0;

		for (long n = 0; n < 2000; n++)
			right += keeps(n) == n + 1;
		printf("right %ld\nend 0\n", right);
		fflush(stdout);
	}
	return 0;
}
