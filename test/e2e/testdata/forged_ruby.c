// SPDX-License-Identifier: Apache-2.0
/*
 * Pretends to be Ruby 3.3: see ruby_test.go. All control frames run one function, in an endless
 * stack, until its standard input ends. Its strings and tables claim to be endless, too, and the
 * list of tags is a cycle. In mode "garbage", only the innermost control frame has a function,
 * and its caller has a string instead. In mode "deep", the native stack is deep, too.
 */
#include <poll.h>
#include <setjmp.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

typedef uint64_t word;

const char ruby_version[] = "3.3.0";
static __thread word *context;

static char text[512] = "forged";
static word label[5] = { 0x5 | 1 << 13, 0, ~0ULL >> 1, 0, 0 };
static word path[5] = { 0x7 | 1 << 13, 0, 0, 0, 0 };
static word code[4], lines[4096], flags = 0x22220000 | 0x20;
static word body[32] = { ~0ULL << 32 };
static const word iseq[3] = { 0x1a | 0x7000, 0, (word)body };
static word execution[4];

struct tag {
	word tag, value;
	jmp_buf buffer;
	struct tag *previous;
};

void *rb_thread_current(void)
{
	return context;
}

__attribute__((noinline)) void rb_vm_exec(void)
{
	struct tag first = {}, second = {};
	struct pollfd in = { .fd = 0 };

	first.previous = &second;
	second.previous = &first;
	setjmp(first.buffer);
	memcpy(second.buffer, first.buffer, sizeof(first.buffer));
	execution[3] = (word)&first;
	for (uint32_t i = 0; i % (1 << 20) || poll(&in, 1, 0) == 0; i++)
		__asm__ volatile("" ::: "memory");
}

__attribute__((noinline)) void deeper(int n)
{
	if (n)
		deeper(n - 1);
	else
		rb_vm_exec();
	__asm__ volatile("");
}

int main(int argc, char **argv)
{
	word *stack, words = (1 << 20) / sizeof(word), i; /* far more than fulgur walks */
	const word frame[7] = { (word)code, 0, (word)iseq, 0, (word)&flags };

	if (argc != 2)
		longjmp(*(jmp_buf *)text, 1); /* not reached: it makes the file import longjmp */
	stack = mmap(NULL, words * sizeof(word), PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (stack == MAP_FAILED)
		return 1;
	for (i = 0; i + 7 <= words; i += 7)
		memcpy(stack + i, frame, sizeof(frame));
	label[3] = (word)text;
	path[2] = (word)path;
	body[1] = (word)code;
	body[8] = (word)path;
	body[10] = (word)label;
	body[14] = (word)lines;
	body[16] = ~0ULL;
	body[17] = (word)lines;
	if (strcmp(argv[1], "garbage") == 0 || strcmp(argv[1], "deep") == 0)
		stack[7 + 2] = (word)label;
	execution[0] = execution[2] = (word)stack;
	execution[1] = words;
	context = execution;
	deeper(strcmp(argv[1], "deep") == 0 ? 200 : 0);
	return 0;
}
