// SPDX-License-Identifier: Apache-2.0
/*
 * Pretends to be CPython 3.14 with forged frames, and works in one function until its
 * standard input ends: "cycle" has a frame that is its own caller, "threads" has an endless
 * list of threads without its own, "last" has its own thread behind the number of others in
 * the second argument, and "codes" always has new code, with the largest possible line table.
 * With -DEMBEDDED, it has the section of programs that embed CPython. With -DGARBAGE, the offsets
 * of fields are nonsense. With -DFREE_THREADED=1, it pretends to be a free-threaded build, and with
 * -DVERSION=N another version (PY_VERSION_HEX). The layouts are arbitrary, because fulgur takes
 * them from the offsets in _PyRuntime.
 */
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifndef VERSION
#define VERSION 0x030e00f0
#endif
#ifndef FREE_THREADED
#define FREE_THREADED 0
#endif
#define LINES 16384
#define FROM_C 3 /* owner of a frame without code */
#define BOUND_GILSTATE (1 << 3)

struct thread {
	struct thread *previous, *next;
	struct interpreter *interpreter;
	struct frame *frame;
	void *id;
	uint64_t status;
};

struct frame {
	void *code;
	struct frame *back;
	uint64_t position;
	uint64_t owner;
};

static struct {
	uint64_t refs, type, length, hash, state;
	char text[8];
} name = { .length = 6, .hash = -1, .state = 1 << 6 | 1 << 5 | 1 << 2, .text = "forged" };

static struct {
	uint64_t refs, type, size, hash;
	char data[LINES];
} lines = { .size = LINES, .data = { (char)(0x80 | 13 << 3) } }; /* all in the first line */

char PyCode_Type[8];

static struct {
	uint64_t refs;
	void *type;
	uint64_t words[7];
	uint32_t first[5]; /* co_version is at the offset of CPython 3.14 */
	uint32_t version;
	uint64_t more[2];
	void *file, *pad, *name, *lines;
	uint64_t end[12];
} code = { .type = PyCode_Type, .file = &name, .name = &name, .lines = &lines };

static struct thread thread = { .status = BOUND_GILSTATE };
static struct interpreter {
	struct thread *threads;
	struct interpreter *next;
} interpreter = { .threads = &thread };

#ifdef EMBEDDED
__attribute__((section(".PyRuntime")))
#endif
struct {
	char cookie[8];
	uint64_t offsets[99];
	struct interpreter *head, *main;
	char pad[2336 - 816];
	uint32_t key_initialized;
	pthread_key_t key;
	char rest[4096];
} _PyRuntime = {
	.cookie = "xdebugpy",
#ifdef GARBAGE
	.offsets = { [0] = 0x030e00f0, [2 ... 98] = -1 },
#else
	.offsets = {
		[0] = VERSION, [2 - 1] = FREE_THREADED, [5 - 1] = 800, /* the cookie is word 0 */
		[8 - 1] = 8, [9 - 1] = 0, /* interpreter */
		[24 - 1] = 8, [26 - 1] = 24, [27 - 1] = 32, [30 - 1] = 40, /* thread state */
		[32 - 1] = 8, [33 - 1] = 0, [34 - 1] = 16, [36 - 1] = 24, /* frame */
		[40 - 1] = 112, [42 - 1] = 128, [43 - 1] = 136, [44 - 1] = 72, [48 - 1] = 200, /* code */
		[75 - 1] = 16, [76 - 1] = 32, [78 - 1] = 32, [79 - 1] = 16, [80 - 1] = 40, /* texts */
	},
#endif
	.head = &interpreter,
	.main = &interpreter,
};

__attribute__((noinline)) int _PyEval_EvalFrameDefault(const char *mode)
{
	struct frame entry = { .owner = FROM_C }, frame = { .code = &code, .back = &entry };
	struct pollfd in = { .fd = 0 };

	if (strcmp(mode, "cycle") == 0)
		frame.back = &frame;
	if (strcmp(mode, "threads") != 0)
		thread.id = (void *)pthread_self();
	else
		thread.next = &thread;
	pthread_key_create(&_PyRuntime.key, NULL);
	pthread_setspecific(_PyRuntime.key, &thread);
	_PyRuntime.key_initialized = 1;
	*(struct frame *volatile *)&thread.frame = &frame;
	for (uint32_t i = 0; i % (1 << 20) || poll(&in, 1, 0) == 0; i++)
		if (strcmp(mode, "codes") == 0)
			*(volatile uint32_t *)&code.version = *(volatile uint32_t *)&code.first[0] = i;
	return 0;
}

int main(int argc, char **argv)
{
	volatile char *table = lines.data;

	_Static_assert(__builtin_offsetof(typeof(code), version) == 92 &&
			       __builtin_offsetof(typeof(code), file) == 112 &&
			       __builtin_offsetof(typeof(name), text) == 40 &&
			       __builtin_offsetof(typeof(_PyRuntime), main) == 808 &&
			       __builtin_offsetof(typeof(_PyRuntime), key_initialized) == 2336,
		       "layout");
	for (int i = 0; i < LINES; i++) /* fulgur reads only pages in memory */
		table[i] = table[i];
	for (int n = argc > 2 ? atoi(argv[2]) : 0; n > 0; n--) {
		struct thread *other = calloc(1, sizeof(*other));

		if (!other)
			return 1;
		other->next = interpreter.threads;
		other->next->previous = other;
		other->status = BOUND_GILSTATE;
		interpreter.threads = other;
	}
	return argc < 2 || _PyEval_EvalFrameDefault(argv[1]);
}
