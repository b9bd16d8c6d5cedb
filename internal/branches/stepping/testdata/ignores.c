/* Ignores SIGTRAP. Runs until it is killed. */
#include <signal.h>

int main(void)
{
	signal(SIGTRAP, SIG_IGN);
	for (volatile unsigned long i = 0;; i++)
		;
}
