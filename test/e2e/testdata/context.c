/*
 * Publishes contexts of threads, as OpenTelemetry's OTEP 4947 says, and a process context (OTEP
 * 4719) with the keys of their attributes. It prints "ready", and waits until its standard input
 * ends. Then each of its threads works in turn under contexts with two routes, without a context,
 * and with one that is not valid. At the end it prints the CPU time of each route and of the rest.
 * With WAIT, it waits instead of using the CPU.
 *
 * The thread-local variable is in the program if VARIABLE is defined. Otherwise it is in a library
 * (contextlib.c), which is the first argument, or was preloaded.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

struct __attribute__((packed)) record {
	uint8_t trace_id[16], span_id[8], valid, flags;
	uint16_t size;
	uint8_t attributes[64];
};

#ifdef VARIABLE
__thread struct record *volatile otel_thread_ctx_v1;

static void attach(void *r)
{
	otel_thread_ctx_v1 = r;
}
#else
static void (*attach)(void *);
#endif

enum {
	CART,
	SEARCH,
	NONE,
	INVALID,
	KINDS
};
static const char *const names[] = { "/cart", "/search", "none", "none" };
static double used[2][KINDS];
static double seconds;

static double now(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return t.tv_sec + 1e-9 * t.tv_nsec;
}

#ifdef WAIT
#define CLOCK CLOCK_MONOTONIC
#else
#define CLOCK CLOCK_THREAD_CPUTIME_ID
#endif

__attribute__((noinline)) static void burn(double time)
{
#ifdef WAIT
	nanosleep(&(struct timespec){ .tv_nsec = 1e9 * time }, NULL);
	__asm__ volatile("" ::: "memory"); /* not a tail call */
#else
	double end = now(CLOCK) + time;

	while (now(CLOCK) < end)
		for (volatile int i = 0; i < 20000; i++)
			;
#endif
}

static void add(struct record *r, int key, const char *value)
{
	uint8_t *at = r->attributes + r->size;

	at[0] = key;
	at[1] = strlen(value);
	memcpy(at + 2, value, at[1]);
	r->size += 2 + at[1];
}

/* A context. Its first attribute has no known key, and its second one is superseded. */
static void fill(struct record *r, int kind, int thread)
{
	r->valid = 0;
	memset(r->trace_id, 0x10 + kind, sizeof(r->trace_id));
	memset(r->span_id, 0x20 + 2 * kind + thread, sizeof(r->span_id));
	r->flags = rand();
	r->size = 0;
	add(r, 200, "unknown");
	add(r, 1, "old");
	add(r, 0, "forged");
	add(r, 1, names[kind]);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	r->valid = kind != INVALID;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
}

static void *work(void *argument)
{
	static const double shares[] = { 0.4, 0.2, 0.2, 0.2 };
	int thread = (intptr_t)argument;
	static struct record records[2][KINDS];
	double begin = now(CLOCK_MONOTONIC);

	while (now(CLOCK_MONOTONIC) < begin + seconds)
		for (int kind = 0; kind < KINDS; kind++) {
			double before = now(CLOCK);

			fill(&records[thread][kind], kind, thread);
			attach(kind == NONE ? NULL : &records[thread][kind]);
			burn(0.05 * shares[kind]);
			used[thread][kind] += now(CLOCK) - before;
		}
	attach(NULL);
	return NULL;
}

static uint8_t payload[256];
static uint32_t payload_size;

static uint8_t *text(uint8_t *at, int tag, const char *value)
{
	*at++ = tag;
	*at++ = strlen(value);
	return (uint8_t *)stpcpy((char *)at, value);
}

/* Publishes the keys process.pid, which is reserved, and http.route. */
static void publish(void)
{
	uint8_t *attribute = payload + 2, *array, *value, *at;
	int fd = memfd_create("OTEL_CTX", 0);
	struct {
		char signature[8];
		uint32_t version, size;
		uint64_t published, payload;
	} *head;

	at = text(attribute, 0x0a, "threadlocal.attribute_key_map"); /* KeyValue.key */
	value = at + 2;
	array = value + 2;
	at = text(array + 2, 0x0a, "process.pid"); /* AnyValue.string_value */
	array[0] = 0x0a; /* ArrayValue.values */
	array[1] = at - array - 2;
	*at++ = 0x0a;
	at++;
	attribute = at;
	at = text(at, 0x0a, "http.route");
	attribute[-1] = at - attribute;
	value[0] = 0x2a; /* AnyValue.array_value */
	value[1] = at - value - 2;
	value[-2] = 0x12; /* KeyValue.value */
	value[-1] = at - value;
	payload[0] = 0x12; /* ProcessContext.attributes */
	payload[1] = at - payload - 2;
	payload_size = at - payload;

	if (fd < 0 || ftruncate(fd, 4096))
		exit(2);
	head = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	if (head == MAP_FAILED)
		exit(2);
	close(fd);
	head->version = 2;
	head->size = payload_size;
	head->payload = (uintptr_t)payload;
	memcpy(head->signature, "OTEL_CTX", 8);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	head->published = 1;
}

int main(int argc, char **argv)
{
	pthread_t threads[2];
	double sums[KINDS] = {};

	seconds = atof(argv[1]);
	publish();
#ifndef VARIABLE
	attach = (void (*)(void *))dlsym(argc > 2 ? dlopen(argv[2], RTLD_NOW) : RTLD_DEFAULT,
					 "attach");
	if (!attach) {
		fprintf(stderr, "%s\n", dlerror());
		return 2;
	}
#endif
	puts("ready");
	fflush(stdout);
	while (getchar() != EOF)
		;
	for (intptr_t i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, work, (void *)i);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < 2; i++)
		for (int kind = 0; kind < KINDS; kind++)
			sums[kind] += used[i][kind];
	printf("%s %f\n%s %f\nnone %f\n", names[CART], sums[CART], names[SEARCH], sums[SEARCH],
	       sums[NONE] + sums[INVALID]);
	return 0;
}
