/*
 * Executes INT1, whose SIGTRAP has the same si_code as some steps, right before an instruction that
 * is not stepped. Exits with code 3 if the signal does not arrive.
 */
#include <signal.h>

static volatile int traps;

static void on_trap(int sig)
{
	(void)sig;
	traps++;
}

int main(void)
{
	signal(SIGTRAP, on_trap);
	for (int raised = 1;; raised++) {
#ifdef __x86_64__
		__asm__ volatile(".byte 0xf1; pushfq; popfq" : : : "memory", "cc");
#else
		raise(SIGTRAP);
#endif
		if (traps != raised)
			return 3;
	}
}
