// SPDX-License-Identifier: Apache-2.0
/*
 * Pretends to be CPython 3.14 with forged frames, and works in one function until its
 * standard input ends: "cycle" has a frame that is its own caller, "threads" has an endless
 * list of threads, and "codes" always has new code, with the largest possible line table.
 * With -DGARBAGE, the offsets of fields are nonsense. With -DFREE_THREADED=1, it pretends to be
 * a free-threaded build, and with -DVERSION=N another version (PY_VERSION_HEX). The layouts are
 * arbitrary, because fulgur takes them from the offsets in _PyRuntime.
 */
#include <poll.h>
#include <stdint.h>
#include <string.h>

#ifndef VERSION
#define VERSION 0x030e00f0
#endif
#ifndef FREE_THREADED
#define FREE_THREADED 0
#endif
#define LINES 16384
#define FROM_C 3 /* owner of a frame without code */

struct thread {
	struct thread *next;
	struct frame *frame;
	void *id;
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

static struct thread thread = { .next = &thread };
static struct thread *threads = &thread; /* the interpreter */

struct {
	char cookie[8];
	uint64_t offsets[99];
	uint64_t head;
	struct thread **interpreter;
	char rest[8192];
} _PyRuntime = {
	.cookie = "xdebugpy",
#ifdef GARBAGE
	.offsets = { [0] = 0x030e00f0, [2 ... 98] = -1 },
#else
	.offsets = {
		[0] = VERSION, [2 - 1] = FREE_THREADED, [5 - 1] = 800, /* the cookie is word 0 */
		[26 - 1] = 8, [27 - 1] = 16, /* thread state */
		[32 - 1] = 8, [33 - 1] = 0, [34 - 1] = 16, [36 - 1] = 24, /* frame */
		[40 - 1] = 112, [42 - 1] = 128, [43 - 1] = 136, [44 - 1] = 72, [48 - 1] = 200, /* code */
		[75 - 1] = 16, [76 - 1] = 32, [78 - 1] = 32, [79 - 1] = 16, [80 - 1] = 40, /* texts */
	},
#endif
	.interpreter = &threads,
};

__attribute__((noinline)) int _PyEval_EvalFrameDefault(const char *mode)
{
	struct frame entry = { .owner = FROM_C }, frame = { .code = &code, .back = &entry };
	struct pollfd in = { .fd = 0 };

	if (strcmp(mode, "cycle") == 0)
		frame.back = &frame;
	if (strcmp(mode, "threads") != 0)
		thread.id = __builtin_thread_pointer();
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
			       __builtin_offsetof(typeof(_PyRuntime), interpreter) == 808,
		       "layout");
	for (int i = 0; i < LINES; i++) /* fulgur reads only pages in memory */
		table[i] = table[i];
	return argc < 2 || _PyEval_EvalFrameDefault(argv[1]);
}
