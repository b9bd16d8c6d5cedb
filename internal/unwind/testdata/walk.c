/*
 * The kernel's walker (bpf/unwind_walk.h) as a program, to be stepped through,
 * compared and fuzzed. It takes commands from its input, made by walk_c_test.go:
 * tables and memory to keep, and walks, whose stacks it writes to its output.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The functions below take the place of unwind_env.h. */
#define FULGUR_UNWIND_ENV_H
#include "../../../bpf/unwind_state.h"
#include "../../../bpf/unwind_maps.h"

enum command {
	RULES = 1,
	PAGE,
	MAPPINGS,
	MEMORY,
	WALK
};

#define MEMORY_PAGE 4096

struct memory_page {
	u64 at;
	u8 bytes[MEMORY_PAGE];
};

static struct {
	struct unwind_rule *rules;
	u32 rule_count;
	struct unwind_mapping *mappings;
	u32 mapping_count;
	u32 **pages;
	u32 page_count;
	struct memory_page *memory;
	u32 memory_count;
} have;

struct walk_command {
	u64 registers[32]; /* by DWARF's numbers */
	u64 thread_pointer; /* 0 if unknown */
	u64 pc, sp, fp;
	u64 layout;
	u64 pc_mask;
	u32 mode;
	u32 limit;
};

static struct walk_command walking;
static struct unwind_cache cache;

static void input(void *to, size_t size)
{
	if (fread(to, 1, size, stdin) != size)
		exit(0);
}

/* Reads count elements into memory of their own, so that no index beyond goes unseen. */
static void *input_array(void *old, u32 count, size_t size)
{
	free(old);
	old = malloc(count * size);
	input(old, count * size);
	return old;
}

static __always_inline bool unwind_read(struct unwind_walk *w, void *to, u32 size, u64 addr)
{
	(void)w; /* all memory is here */
	while (size > 0) {
		u32 off = addr % MEMORY_PAGE, n = MEMORY_PAGE - off, i;

		if (n > size)
			n = size;
		for (i = 0; i < have.memory_count && have.memory[i].at != addr - off; i++)
			;
		if (i == have.memory_count)
			return false;
		memcpy(to, have.memory[i].bytes + off, n);
		to = (u8 *)to + n;
		addr += n;
		size -= n;
	}
	return true;
}

static __always_inline bool unwind_register(struct unwind_walk *w, u32 number, u64 *value)
{
#if defined(__TARGET_ARCH_x86)
	static const u8 words[16] = { 13, 12, 14, 11, 9, 8, 10, 15, 0, 1, 2, 3, 4, 5, 6, 7 };

	if (number >= 16)
		return false;
	if (w->by_signal)
		return unwind_read(w, value, 8, w->regs + 8 * words[number]);
#else
	if (number >= 32)
		return false;
	if (w->by_signal)
		return unwind_read(w, value, 8, w->regs + 8 * number);
#endif
	*value = walking.registers[number];
	return true;
}

static __always_inline const struct unwind_mapping *unwind_mapping_at(u32 index)
{
	return index < have.mapping_count ? &have.mappings[index] : NULL;
}

static __always_inline const struct unwind_rule *unwind_rule_at(u32 index)
{
	return index < have.rule_count ? &have.rules[index] : NULL;
}

static __always_inline const u32 *unwind_page_at(u32 page)
{
	return page < have.page_count ? have.pages[page] : NULL;
}

static __always_inline u64 unwind_pc_bits(void)
{
	return walking.pc_mask;
}

static __always_inline enum unwind_mode unwind_by(void)
{
	return walking.mode;
}

static __always_inline bool unwind_at_entry(const struct unwind_walk *w)
{
	(void)w;
	return false;
}

static __always_inline bool unwind_thread_pointer(const struct unwind_walk *w, u64 *value)
{
	(void)w;
	*value = walking.thread_pointer;
	return *value != 0;
}

#include "../../../bpf/unwind_walk.h"

static u32 loop(struct unwind_walk *w, struct stack_record *record)
{
	u32 n = 0;

	while (n < walking.limit) {
		int last = walking.mode == UNWIND_BY_FRAME_POINTERS
				   ? unwind_by_chain(n, w, record)
				   : unwind_by_tables(n, w, record, &cache);

		n++;
		if (last)
			break;
	}
	return n;
}

static void walk(void)
{
	struct unwind_walk w = { .layout = walking.layout };
	static struct stack_record record;
	u32 n;

	unwind_begin(&w, walking.pc, walking.sp, walking.fp);
	n = loop(&w, &record);
	if (unwind_lacks_base(&w)) {
		unwind_begin_with_base(&w, walking.pc, walking.sp, walking.fp);
		n = loop(&w, &record);
	}
	fwrite(&w.end, sizeof(w.end), 1, stdout);
	fwrite(&n, sizeof(n), 1, stdout);
	fwrite(record.frames, sizeof(record.frames[0]), n, stdout);
	fflush(stdout);
}

int main(void)
{
	u32 command[2]; /* and the number of what follows */

	for (;;) {
		input(command, sizeof(command));
		switch (command[0]) {
		case RULES:
			have.rule_count = command[1];
			have.rules = input_array(have.rules, command[1], sizeof(*have.rules));
			break;
		case PAGE:
			if (command[1] >= have.page_count) {
				have.pages =
					realloc(have.pages, (command[1] + 1) * sizeof(*have.pages));
				while (have.page_count <= command[1])
					have.pages[have.page_count++] = NULL;
			}
			have.pages[command[1]] =
				input_array(have.pages[command[1]], UNWIND_PAGE_WORDS, sizeof(u32));
			break;
		case MAPPINGS:
			have.mapping_count = command[1];
			have.mappings =
				input_array(have.mappings, command[1], sizeof(*have.mappings));
			break;
		case MEMORY:
			have.memory_count = command[1];
			have.memory = input_array(have.memory, command[1], sizeof(*have.memory));
			break;
		case WALK:
			input(&walking, sizeof(walking));
			walk();
			break;
		default:
			abort();
		}
	}
}
