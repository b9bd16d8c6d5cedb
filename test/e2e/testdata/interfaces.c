/*
 * Makes system calls by both interfaces of x86-64: semget 10 times, and getppid, which has its
 * number in the 32-bit interface, 1000 times. Exits with 3 if the kernel has only one.
 */
#include <signal.h>
#include <sys/sem.h>
#include <unistd.h>

static void missing(int signal)
{
	(void)signal;
	_exit(3);
}

int main(void)
{
	int i;

	signal(SIGSEGV, missing);
	for (i = 0; i < 1000; i++) {
#if defined(__x86_64__)
		long number = 64;

		__asm__ volatile("int $0x80" : "+a"(number)::"memory", "r8", "r9", "r10", "r11");
#endif
		if (i < 10)
			semget(-1, -1, 0);
	}
	return 0;
}
