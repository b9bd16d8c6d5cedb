/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the headers of language runtimes share: the frames in scratch, to which each runtime adds
 * its own, and the code of their functions, which crosses the ring once, before the first stack
 * that contains it.
 */
#ifndef FULGUR_RUNTIME_FRAMES_H
#define FULGUR_RUNTIME_FRAMES_H

#include "hash.h"
#include "kernel.h"
#include "record.h"
#include "ring.h"
#include "runtime_maps.h"
#include "scratch.h"
#include "seen.h"
#include "unwind_state.h"
#include <bpf/bpf_helpers.h>

/* Whether to leave the frames out. The verifier then removes their code. */
const volatile bool skip_runtimes;

/* An entry of scratches, or NULL with skip_runtimes. */
static __always_inline struct stack_scratch *runtime_scratch(u32 scratch)
{
	return skip_runtimes ? NULL : bpf_map_lookup_elem(&scratches, &scratch);
}

/* Keys of sent code: a set-associative table with racy stores, like seen in stack.h. */
#define CODE_SETS 4096
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, CODE_SETS);
	__type(key, u32);
	__type(value, struct seen_set);
} code_seen SEC(".maps");

/* Scratch memory for records of code, indexed like scratches. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SCRATCHES);
	__type(key, u32);
	__type(value, struct code_record);
} code_scratch SEC(".maps");

/* What each process has sent of code. Processes with equal hashes share an entry. */
#define CODE_PROCESSES 256
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, CODE_PROCESSES);
	__type(key, u32);
	__type(value, struct ring_budget);
} code_budgets SEC(".maps");

static __always_inline u64 code_key(const struct stack_record *rec, u64 address, u32 check)
{
	return hash_step(hash_step(rec->epoch ^ generation, address), check) | 1;
}

/* Whether the code was sent. */
static __always_inline bool code_sent(u64 key)
{
	u32 index = (key >> 32) % CODE_SETS;
	struct seen_set *set = bpf_map_lookup_elem(&code_seen, &index);

	return !set || seen_has(set, key);
}

/* Remembers that code was sent. */
static __always_inline void code_remember(u64 key)
{
	u32 index = (key >> 32) % CODE_SETS;
	struct seen_set *set = bpf_map_lookup_elem(&code_seen, &index);

	if (set)
		seen_add(set, key);
}

/*
 * Sends the complete record of code in an entry of code_scratch, with lines bytes of line table,
 * and remembers its key.
 */
UNWIND_GLOBAL int code_send(u32 scratch, u64 key, u64 lines)
{
	struct code_record *rec = bpf_map_lookup_elem(&code_scratch, &scratch);
	u64 size = __builtin_offsetof(struct code_record, line_table) + lines;
	u64 flags = ring_flags();
	struct ring_budget *budget;
	u32 process;

	if (!rec)
		return 0;
	process = rec->head.pid % CODE_PROCESSES;
	budget = bpf_map_lookup_elem(&code_budgets, &process);
	if (!budget || !ring_allows(budget, size))
		return 0;
	rec->head.type = RECORD_CODE;
	rec->head.lines = lines;
	barrier_var(size);
	size &= 0x7fff;
	if (size <= sizeof(*rec) && bpf_ringbuf_output(&ring, rec, size, flags) == 0)
		code_remember(key);
	return 0;
}

/* Reads user memory of the current task. */
static __always_inline bool runtime_read(void *to, u32 size, u64 addr)
{
	return bpf_probe_read_user(to, size, (void *)addr) == 0;
}

/* A field of an array of words that has bytes of the process. */
#define RUNTIME_AT(words, type, offset)                                                            \
	({                                                                                         \
		u32 at_ = (offset);                                                                \
		at_ <= sizeof(words) - sizeof(type) ? *(type *)((u8 *)(words) + at_) : 0;          \
	})

/* Whether the stack may have frames of a runtime. Otherwise its other fields are not set. */
static __always_inline bool runtime_present(const struct stack_scratch *s)
{
	return !skip_runtimes && s->runtime.present;
}

static __always_inline void runtime_reset(struct stack_scratch *s)
{
	s->runtime.present = 0;
	s->runtime.urgent = 0;
}

#define LOCAL_MODULES (1 << 16) /* maximum number of modules with thread-local variables */

/* The address of a thread-local variable of the thread with a thread pointer, or 0. */
static __always_inline u64 runtime_local(const struct runtime_local *l, u64 thread_pointer)
{
	u64 words[2] = {}, at = 0;

	switch (l->model) {
	case LOCAL_BY_OFFSET:
		return thread_pointer + l->at;
	case LOCAL_BY_OFFSET_AT:
		return runtime_read(words, 8, l->at) ? thread_pointer + words[0] : 0;
	case LOCAL_BY_MODULE:
		/* The module's number and the offset in it. The vector of modules is next. */
		if (!runtime_read(words, 16, l->at) || words[0] >= LOCAL_MODULES ||
		    !runtime_read(&at, 8, thread_pointer + 8) ||
		    !runtime_read(&at, 8, at + (words[0] << (l->module_shift & 7))))
			return 0;
		return at + words[1];
	}
	return 0;
}

/* Begins the frames of a part. */
static __always_inline void runtime_part_begin(struct runtime_stack *r, u32 index,
					       const struct runtime_range *interpreter)
{
	struct runtime_part *part = &r->parts[index];

	part->interpreter = *interpreter;
	part->from = r->words;
}

/* Ends the frames of a part. */
static __always_inline void runtime_part_end(struct runtime_stack *r, struct runtime_part *part)
{
	part->groups = r->groups;
	part->words = r->words;
}

/* Ends a group of frames with the given entry. */
static __always_inline bool runtime_group(struct runtime_stack *r, u64 entry)
{
	u32 n = r->groups;

	if (n >= MAX_RUNTIME_FRAMES)
		return false;
	r->entries[n] = entry;
	r->ends[n] = r->words;
	r->groups = n + 1;
	return true;
}

/* Adds a frame: the code's address, and the second word as in record.h. */
static __always_inline bool runtime_frame(struct runtime_stack *r, u64 kind, u64 address,
					  u64 second)
{
	u32 n = r->words;

	if (n > 2 * MAX_RUNTIME_FRAMES - 2)
		return false;
	r->frames[n] = 1ULL << FRAME_RUNTIME_SHIFT | kind << FRAME_KIND_SHIFT |
		       (address & ((1ULL << FRAME_KIND_SHIFT) - 1));
	r->frames[n + 1] = second;
	r->words = n + 2;
	return true;
}

/* Ends the walk early. Returns 1, as the functions of a loop do at its end. */
static __always_inline int runtime_end(struct runtime_stack *r, u32 end)
{
	r->end = end;
	return 1;
}

/* Mixes the end of a text of a number of bytes into a hash. */
UNWIND_GLOBAL u64 runtime_hash_text(u32 scratch, u64 at, u64 size, u64 hash)
{
	struct stack_scratch *s = runtime_scratch(scratch);
	u64 *text, most;
	u32 i;

	if (!s)
		return hash;
	text = s->runtime_walk.text;
	most = sizeof(s->runtime_walk.text);
	hash = hash_step(hash, size);
	if (size > most) {
		at += size - most;
		size = most;
	}
	i = size / 8;
	barrier_var(i); /* keeps the bounds check before the pointer arithmetic */
	if (i < most / 8)
		text[i] = 0;
	barrier_var(size);
	size &= 0xff;
	if (size > most || bpf_probe_read_user(text, size, (void *)at))
		return hash;
#pragma clang loop unroll(disable)
	for (i = 0; i < most / 8; i++) {
		if (8 * i >= size)
			break;
		hash = hash_step(hash, text[i]);
	}
	return hash;
}

#endif
