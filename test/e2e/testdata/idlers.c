/* A thread that works, among many that wait. */
#include <pthread.h>
#include <unistd.h>

static volatile unsigned long sum;

__attribute__((noinline)) static void work(void)
{
	for (;;)
		sum++;
}

static void *wait_forever(void *arg)
{
	for (;;)
		pause();
	return arg;
}

int main(void)
{
	pthread_t thread;

	for (int i = 0; i < 40; i++)
		if (pthread_create(&thread, NULL, wait_forever, NULL))
			return 1;
	work();
	return 0;
}
