/* Spends its time in a signal handler. */
#include <signal.h>

static volatile unsigned sink;

static void on_signal(int signal)
{
	for (unsigned i = 0; i < 25 * 1000 * 1000; i++)
		sink += signal;
}

int main(void)
{
	struct sigaction action = { .sa_handler = on_signal };

	sigaction(SIGUSR1, &action, 0);
	for (int i = 0; i < 3; i++)
		raise(SIGUSR1);
	return 0;
}
