/*
 * Hits events a known number of times. Commands on standard input: r runs, b prints the
 * first bytes of a function that is probed and the semaphore of a USDT probe. Without
 * input, it runs once. After each run, it prints its own counts.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define SINK 77

static long calls, sum, betas, callers, returns, ticks, tick_sum, odd, writes, written, opens, renames, steps;

/* Counts uses of a USDT probe; see sys/sdt.h of SystemTap. */
__attribute__((section(".probes"), used)) volatile unsigned short tick_semaphore;

#if defined(__x86_64__)
#define OPERANDS "-4@%%edi 8@%%rsi -4@$7"
#define ARGUMENTS "D"(n), "S"(is_odd)
#else
#define OPERANDS "-4@w0 8@x1 -4@7"
#define ARGUMENTS "r"(n), "r"(is_odd) /* where the caller put them */
#endif

__attribute__((noinline)) void tick(int n, unsigned long is_odd)
{
	__asm__ volatile("990: nop\n"
			 ".pushsection .note.stapsdt,\"\",\"note\"\n"
			 ".balign 4\n"
			 ".4byte 992f-991f, 994f-993f, 3\n"
			 "991: .asciz \"stapsdt\"\n"
			 "992: .balign 4\n"
			 "993: .8byte 990b, 0, tick_semaphore\n"
			 ".asciz \"fulgur\"\n.asciz \"tick\"\n.asciz \"" OPERANDS "\"\n"
			 "994: .balign 4\n"
			 ".popsection" ::ARGUMENTS : "memory");
}

/* A USDT probe with many places. */
#define STEPS 64
#define STRING(n) #n
#define TEXT(n) STRING(n)

__attribute__((noinline)) void step(void)
{
	__asm__ volatile(".rept " TEXT(STEPS) "\n"
			 "990: nop\n"
			 ".pushsection .note.stapsdt,\"\",\"note\"\n"
			 ".balign 4\n"
			 ".4byte 992f-991f, 994f-993f, 3\n"
			 "991: .asciz \"stapsdt\"\n"
			 "992: .balign 4\n"
			 "993: .8byte 990b, 0, 0\n"
			 ".asciz \"fulgur\"\n.asciz \"step\"\n.asciz \"\"\n"
			 "994: .balign 4\n"
			 ".popsection\n"
			 ".endr" ::: "memory");
	steps += STEPS;
}

__attribute__((noinline)) int work(int n, const char *name)
{
	calls++;
	sum += n;
	betas += !strcmp(name, "beta");
	returns += 2 * n;
	return 2 * n;
}

__attribute__((noinline)) void caller_one(int n)
{
	callers++;
	work(n, "alpha");
	__asm__ volatile("");
}

__attribute__((noinline)) void caller_two(int n)
{
	callers++;
	work(n, "beta");
	__asm__ volatile("");
}

static void run(void)
{
	static char buffer[4097];
	int i;

	for (i = 0; i < 500; i++) {
		caller_one(i % 7);
		if (i % 3 == 0)
			caller_two(5);
		tick(i % 11, i % 2);
		ticks++;
		tick_sum += i % 11;
		odd += i % 2;
		if (i % 5 == 0) {
			writes++;
			written += write(SINK, buffer, sizeof(buffer));
		}
		if (i % 25 == 0) {
			step();
			opens++;
			if (open("/nonexistent/fulgur", O_RDONLY) >= 0)
				_exit(3);
		}
		if (i % 50 == 0) {
			renames++;
			prctl(PR_SET_NAME, "renamed");
		}
	}
	printf("calls %ld\nsum %ld\nbetas %ld\ncallers %ld\nreturns %ld\nticks %ld\ntick_sum %ld\nodd %ld\nwrites %ld\nwritten %ld\nopens %ld\nrenames %ld\nsteps %ld\nend 0\n",
	       calls, sum, betas, callers, returns, ticks, tick_sum, odd, writes, written, opens, renames, steps);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	int command;

	if (dup2(open("/dev/null", O_WRONLY), SINK) != SINK)
		return 2;
	if (argc < 2) {
		run();
		return 0;
	}
	(void)argv;
	while ((command = getchar()) != EOF) {
		if (command == 'r')
			run();
		if (command == 'b') {
			printf("text %u\nsemaphore %u\nend 0\n", *(volatile unsigned int *)work, tick_semaphore);
			fflush(stdout);
		}
	}
	return 0;
}
