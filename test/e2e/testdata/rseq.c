// Counts in per-CPU counters with a restartable sequence (rseq), in several threads, until standard
// input ends. Then it prints the sum of the counters and the number of increments.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#ifdef __x86_64__
#include <sys/rseq.h>

#define THREADS 4
#define CPUS 1024

static struct {
	volatile intptr_t value;
	char padding[120];
} counters[CPUS];
static volatile int stop;
static unsigned long increments[THREADS];

static struct rseq *own(void)
{
	return (struct rseq *)((char *)__builtin_thread_pointer() + __rseq_offset);
}

// add increments the counter of a CPU. It fails if the thread was interrupted, or is on another
// CPU. The sequence, from add_begin to add_end, takes long enough to be interrupted often.
// add_commit, inside it, looks like a function.
__attribute__((noinline)) int add(struct rseq *area, volatile intptr_t *counter, int cpu)
{
	__asm__ goto(".pushsection __rseq_cs, \"aw\"\n\t"
		     ".balign 32\n\t"
		     "3:\n\t"
		     ".long 0, 0\n\t"
		     ".quad add_begin, add_end - add_begin, add_abort\n\t"
		     ".popsection\n\t"
		     ".type add_commit, @function\n\t"
		     "leaq 3b(%%rip), %%rax\n\t"
		     "add_store:\n\t"
		     "movq %%rax, 8(%[area])\n\t"
		     "add_begin:\n\t"
		     "cmpl %[cpu], 4(%[area])\n\t"
		     "jnz add_abort\n\t"
		     "movq %[counter], %%rcx\n\t"
		     "movl $20, %%eax\n\t"
		     "add_loop:\n\t"
		     "decl %%eax\n\t"
		     "jnz add_loop\n\t"
		     "incq %%rcx\n\t"
		     "add_commit:\n\t"
		     "movq %%rcx, %[counter]\n\t"
		     ".size add_commit, . - add_commit\n\t"
		     "add_end:\n\t"
		     "nop\n\t"
		     ".pushsection __rseq_failure, \"ax\"\n\t"
		     ".byte 0x0f, 0xb9, 0x3d\n\t"
		     ".long 0x53053053\n\t"
		     "add_abort:\n\t"
		     "jmp %l[aborted]\n\t"
		     ".popsection\n\t"
		     :
		     : [area] "r"(area), [cpu] "r"(cpu), [counter] "m"(*counter)
		     : "memory", "cc", "rax", "rcx"
		     : aborted);
	return 1;
aborted:
	return 0;
}

static void *work(void *of)
{
	unsigned long n = 0;
	while (!stop) {
		int cpu = *(volatile int *)&own()->cpu_id_start;
		n += add(own(), &counters[cpu].value, cpu);
	}
	*(unsigned long *)of = n;
	return NULL;
}

int main(void)
{
	pthread_t threads[THREADS];
	unsigned long sum = 0, n = 0;
	char c;
	if (__rseq_size == 0) {
		puts("no rseq");
		return 1;
	}
	for (int i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, work, &increments[i]);
	while (read(0, &c, 1) > 0)
		;
	stop = 1;
	for (int i = 0; i < THREADS; i++) {
		pthread_join(threads[i], NULL);
		n += increments[i];
	}
	for (int i = 0; i < CPUS; i++)
		sum += counters[i].value;
	printf("%lu %lu\n", sum, n);
	return 0;
}
#else
int main(void)
{
	return 1;
}
#endif
