/*
 * Keeps PROCESSES children alive, and starts FORKS programs a second that exit at once.
 * Prints a line when all children exist. Its children end with it.
 *
 *	processes PROCESSES FORKS
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static pid_t start(void)
{
	pid_t child = fork();

	if (child < 0)
		fail("fork");
	if (child == 0)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	return child;
}

int main(int argc, char **argv)
{
	int processes, forks, i;
	struct timespec next;

	if (argc == 1)
		return 0; /* a program that exits at once */
	processes = atoi(argv[1]);
	forks = argc > 2 ? atoi(argv[2]) : 0;
	for (i = 0; i < processes; i++)
		if (start() == 0)
			for (;;)
				pause();
	puts("ready");
	fflush(stdout);
	clock_gettime(CLOCK_MONOTONIC, &next);
	for (;;) {
		pid_t child;

		if (forks == 0) {
			pause();
			continue;
		}
		child = start();
		if (child == 0) {
			execl("/proc/self/exe", "short", NULL);
			_exit(1);
		}
		if (waitpid(child, NULL, 0) < 0)
			fail("waitpid");
		/* Do not make up for time in which this did not run. */
		next.tv_nsec += 1000000000 / forks;
		if (next.tv_nsec >= 1000000000) {
			next.tv_nsec -= 1000000000;
			next.tv_sec++;
		}
		while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL) == EINTR)
			;
	}
}
