// SPDX-License-Identifier: Apache-2.0
/*
 * Pretends to be CPython 3.11 with two interpreters, whose states the main thread runs: "outer"
 * calls "inner". It works in holds() while inner's state holds the lock, and in releases() and
 * returns() while no state of this thread does: in returns(), outer runs. The function of Python
 * that runs is thus known at each time. It ends with its standard input.
 *
 * Arguments: "other" has inner's state made by another thread; "idle" has inner's state run no
 * frames in returns(), and "freed" has it in no list there, with its old contents. The second
 * argument is the number of states of other threads in each interpreter.
 */
#include <poll.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct string { /* ASCII */
	uint64_t refs, type, length, hash, state, wide;
	char text[8];
};

#define STRING(of)                                                                                 \
	{ .length = sizeof(of) - 1, .hash = -1, .state = 1 << 6 | 1 << 5 | 1 << 2, .text = of }

static struct string outer_name = STRING("outer"), inner_name = STRING("inner");

static struct {
	uint64_t refs, type, size, hash;
	char data[8];
} lines = { .size = 1, .data = { (char)(0x80 | 13 << 3) } };

char PyCode_Type[8];
uint32_t Py_Version = 0x030b00f0;

struct code {
	uint64_t refs;
	void *type;
	uint64_t words[7];
	uint32_t first[2];
	uint64_t more[4];
	void *file, *name, *qualified_name, *lines;
	uint64_t end[12];
};

static struct code outer_code = { .type = PyCode_Type,
				  .file = &outer_name,
				  .name = &outer_name,
				  .qualified_name = &outer_name,
				  .lines = &lines };
static struct code inner_code = { .type = PyCode_Type,
				  .file = &inner_name,
				  .name = &inner_name,
				  .qualified_name = &inner_name,
				  .lines = &lines };

struct frame {
	uint64_t words[4];
	struct code *code;
	uint64_t locals;
	struct frame *previous;
	void *instruction;
	int32_t stack_top;
	uint8_t is_entry, owner;
};

struct cframe {
	uint64_t tracing;
	struct frame *frame;
	struct cframe *previous;
};

struct state {
	struct state *previous, *next;
	struct interpreter *interpreter;
	uint64_t words[4];
	struct cframe *cframe;
	uint64_t more[11];
	uint64_t thread_id;
	struct cframe root;
};

struct interpreter {
	struct interpreter *next;
	uint64_t finalizing;
	struct state *threads;
};

static struct interpreter main_interpreter, sub_interpreter = { .next = &main_interpreter };
static struct state outer, inner, stranger;

struct {
	uint64_t words[5];
	struct interpreter *head, *main;
	uint64_t pad[65]; /* up to gilstate.tstate_current */
	struct state *volatile holder;
	uint64_t auto_interpreter;
	uint32_t key_initialized;
	pthread_key_t key;
	uint64_t rest[64];
} _PyRuntime __attribute__((section(".PyRuntime"))) = { .head = &sub_interpreter,
							.main = &main_interpreter };

_Static_assert(offsetof(struct code, first) == 72 && offsetof(struct code, file) == 112 &&
		       offsetof(struct code, qualified_name) == 128 &&
		       offsetof(struct code, lines) == 136 && offsetof(struct string, text) == 48 &&
		       offsetof(struct frame, code) == 32 &&
		       offsetof(struct frame, previous) == 48 &&
		       offsetof(struct frame, instruction) == 56 &&
		       offsetof(struct frame, owner) == 69 &&
		       offsetof(struct state, cframe) == 56 &&
		       offsetof(struct state, thread_id) == 152 &&
		       offsetof(typeof(_PyRuntime), head) == 40 &&
		       offsetof(typeof(_PyRuntime), holder) == 576 &&
		       offsetof(typeof(_PyRuntime), key_initialized) == 592,
	       "layout");

static void link(struct interpreter *of, struct state *state)
{
	state->interpreter = of;
	state->previous = NULL;
	state->next = of->threads;
	if (state->next)
		state->next->previous = state;
	state->cframe = &state->root;
	of->threads = state;
}

#define WORK(name)                                                                                 \
	__attribute__((noinline)) static void name(void)                                           \
	{                                                                                          \
		for (volatile uint32_t i = 0; i < 1 << 24; i++)                                    \
			;                                                                          \
		__asm__ volatile("");                                                              \
	}

WORK(holds)
WORK(releases)
WORK(returns)

__attribute__((noinline)) int _PyEval_EvalFrameDefault(const char *mode)
{
	struct frame outer_frame = { .code = &outer_code, .is_entry = 1 };
	struct frame inner_frame = { .code = &inner_code, .is_entry = 1 };
	struct {
		struct cframe inner, outer; /* calls lead to lower addresses */
	} c = { .outer = { .frame = &outer_frame, .previous = &outer.root },
		.inner = { .frame = &inner_frame, .previous = &inner.root } };
	struct pollfd in = { .fd = 0 };
	struct state *volatile *place =
		inner.previous ? (void *)&inner.previous->next : (void *)&sub_interpreter.threads;

	outer.cframe = &c.outer;
	while (poll(&in, 1, 0) == 0) {
		inner.cframe = &c.inner;
		_PyRuntime.holder = &inner;
		holds();
		_PyRuntime.holder = &stranger;
		releases();
		if (strcmp(mode, "idle") == 0) {
			inner.cframe = &inner.root;
			returns();
		} else if (strcmp(mode, "freed") == 0) {
			*place = inner.next;
			returns();
			*place = &inner;
		}
	}
	return 0;
}

int main(int argc, char **argv)
{
	outer.thread_id = pthread_self();
	inner.thread_id = argc > 1 && strcmp(argv[1], "other") == 0 ? 1 : pthread_self();
	stranger.thread_id = 2;
	link(&main_interpreter, &outer);
	link(&main_interpreter, &stranger);
	link(&sub_interpreter, &inner);
	for (int n = argc > 2 ? atoi(argv[2]) : 0; n > 0; n--) {
		struct state *others = calloc(2, sizeof(*others));

		if (!others)
			return 1;
		link(&main_interpreter, &others[0]);
		link(&sub_interpreter, &others[1]);
	}
	if (pthread_key_create(&_PyRuntime.key, NULL) != 0)
		return 1;
	pthread_setspecific(_PyRuntime.key, &outer);
	_PyRuntime.key_initialized = 1;
	return argc < 2 || _PyEval_EvalFrameDefault(argv[1]);
}
