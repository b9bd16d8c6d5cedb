/* Blocks SIGTRAP, in a thread and in the signal's handler, and fails as soon as
   that, or the handler, does not hold any more. Runs until it is killed. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

static volatile unsigned long turns;
static volatile int traps;

static void churn(void)
{
	for (int i = 0; i < 3000000; i++)
		turns += (turns ^ (unsigned long)i) & 3;
}

static void on_trap(int sig)
{
	(void)sig;
	churn();
	traps++;
}

static void *blocking(void *arg)
{
	sigset_t now;
	for (;;) {
		churn();
		pthread_sigmask(SIG_SETMASK, NULL, &now);
		if (!sigismember(&now, SIGTRAP))
			_Exit(3);
	}
	return arg;
}

int main(void)
{
	pthread_t t;
	struct sigaction now;
	sigset_t all, before;
	signal(SIGTRAP, on_trap);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pthread_create(&t, NULL, blocking, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	for (int raised = 1;; raised++) {
		pthread_kill(t, SIGTRAP); /* stays pending */
		raise(SIGTRAP);
		sigaction(SIGTRAP, NULL, &now);
		if (now.sa_handler != on_trap || traps != raised)
			_Exit(4);
	}
}
