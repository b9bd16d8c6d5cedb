/* Calls four functions in turn, at most ten thousand times a second, until it is killed. */
#include <time.h>

static volatile unsigned long n;

#define FUNCTION(name)                                                                             \
	__attribute__((noinline)) void name(void)                                                  \
	{                                                                                          \
		n++;                                                                               \
	}

FUNCTION(first)
FUNCTION(second)
FUNCTION(third)
FUNCTION(fourth)

int main(void)
{
	const struct timespec pause = { 0, 100000 };

	for (;;) {
		first();
		second();
		third();
		fourth();
		nanosleep(&pause, NULL);
	}
}
