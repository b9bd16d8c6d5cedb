/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Frames of language runtimes. Before the native walk, runtime_walk() reads the current
 * thread's frames into scratch, in groups: one native frame of the interpreter runs the
 * frames of a group. A group's entry is an address in that native frame's part of the
 * stack. During the native walk, runtime_merge() inserts each group after the native frame
 * that contains its entry. runtime_rest() appends the remaining groups.
 *
 * Code crosses the ring once, before the first stack that contains it.
 */
#ifndef FULGUR_RUNTIME_H
#define FULGUR_RUNTIME_H

#include "stack.h"

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

/*
 * Limits the bytes of code that each process sends in a window of time, so that a process
 * that creates code all the time does not crowd out other processes' stacks. Processes with
 * equal hashes share an entry. Stores are racy.
 */
#define CODE_WINDOW_SHIFT 27 /* ns, log2 */
#define CODE_WINDOW_BYTES (128 * 1024)
#define CODE_PROCESSES 256
struct code_budget {
	u64 window;
	u64 bytes;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, CODE_PROCESSES);
	__type(key, u32);
	__type(value, struct code_budget);
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

	return !set || set->ids[0] == key || set->ids[1] == key || set->ids[2] == key ||
	       set->ids[3] == key;
}

/* Whether a process may send code now. Half of the ring is for other records. */
static __always_inline bool code_allowed(u32 tgid, u64 bytes)
{
	u64 window = bpf_ktime_get_ns() >> CODE_WINDOW_SHIFT;
	u32 index = tgid % CODE_PROCESSES;
	struct code_budget *budget = bpf_map_lookup_elem(&code_budgets, &index);

	if (!budget || bpf_ringbuf_query(&ring, BPF_RB_AVAIL_DATA) > ring_wakeup)
		return false;
	if (budget->window != window) {
		budget->window = window;
		budget->bytes = 0;
	}
	if (budget->bytes + bytes > CODE_WINDOW_BYTES)
		return false;
	budget->bytes += bytes;
	return true;
}

/* Remembers that code was sent. */
static __always_inline void code_remember(u64 key)
{
	u32 index = (key >> 32) % CODE_SETS;
	struct seen_set *set = bpf_map_lookup_elem(&code_seen, &index);

	if (set)
		set->ids[(key >> 60) % SEEN_WAYS] = key;
}

/* Sends a complete record of code, with lines bytes of line table, and remembers its key. */
static __always_inline bool code_send(struct code_record *rec, u64 key, u64 lines)
{
	u64 size = __builtin_offsetof(struct code_record, line_table) + lines;
	u32 index = (key >> 32) % CODE_SETS;
	struct seen_set *set = bpf_map_lookup_elem(&code_seen, &index);
	u64 flags = ring_flags();

	if (!set || !code_allowed(rec->pid, size))
		return false;
	rec->type = RECORD_CODE;
	barrier_var(size);
	size &= 0x7fff;
	if (size > sizeof(*rec) || bpf_ringbuf_output(&ring, rec, size, flags))
		return false;
	set->ids[(key >> 60) % SEEN_WAYS] = key;
	return true;
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

static __always_inline void runtime_reset(struct stack_scratch *s)
{
	s->runtime.groups = 0;
	s->runtime.words = 0;
	s->runtime.merged = 0;
	s->runtime.cut = 0;
	s->runtime.during = RUNTIME_NONE;
	s->runtime.code_size = 0;
	s->runtime.urgent = 0;
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

#include "python.h"
#include "v8.h"
#include "hotspot.h"

/* Reads the current task's runtime frames, if it has a runtime. */
static __always_inline void runtime_walk(u32 tgid, u64 image, struct stack_scratch *s)
{
	const struct runtime_process *process = bpf_map_lookup_elem(&runtime_processes, &tgid);
	struct runtime_walk *w = &s->runtime_walk;

	if (!process || process->image != image)
		return;
	__builtin_memcpy(&w->process, process, sizeof(w->process));
	w->tgid = tgid;
	s->runtime.interpreter = process->interpreter;
	s->runtime.interpreter_end = process->interpreter_end;
	if (process->kind == RUNTIME_PYTHON)
		python_walk(s->index);
	else
		s->runtime.during = process->kind;
	if (process->kind == RUNTIME_HOTSPOT)
		hotspot_begin(s);
}

/* Appends the unmerged words before end to the record, which has frames native user frames. */
static __always_inline void runtime_append(struct stack_scratch *s, u32 frames, u32 end,
					   u32 entered)
{
	struct runtime_stack *r = &s->runtime;
	u32 from = r->merged ? r->ends[(r->merged - 1) % (MAX_RUNTIME_FRAMES + 1)] : 0;
	u32 at = s->walk.first + frames, size;

	barrier_var(at); /* keeps the bounds check before the pointer arithmetic */
	if (from >= end || at >= MAX_FRAME_WORDS)
		return;
	size = end - from;
	if (size > MAX_FRAME_WORDS - at)
		size = MAX_FRAME_WORDS - at;
	s->walk.first += size;
	size *= 8;
	barrier_var(size);
	size &= 0xfff;
	/* A single copy: the verifier would follow each iteration of a loop. */
	if (bpf_probe_read_kernel(&s->record.frames[at], size, &r->frames[from]) == 0 && size > 8)
		s->record.frames[at + 1] |= entered;
}

/*
 * Appends the groups that native frame i runs. Frame i is the last native frame so far, and
 * occupies the stack from low up to high. If it runs a group, the address of the
 * interpreter's function replaces its address: the instruction is of no use, and would make
 * more distinct stacks.
 */
UNWIND_GLOBAL int runtime_merge(u32 scratch, u32 i, u64 pc, u64 low, u64 high)
{
	struct stack_scratch *s = bpf_map_lookup_elem(&scratches, &scratch);
	struct runtime_stack *r;
	u32 n, at, merged, end = 0;

	if (!s)
		return 0;
	r = &s->runtime;
	merged = r->merged;
	for (n = 0; n < 8 && merged < r->groups; n++) {
		u64 entry;

		barrier_var(merged); /* or older verifiers lose its bound */
		if (merged >= MAX_RUNTIME_FRAMES)
			break;
		entry = r->entries[merged];
		if (entry ? entry < low || entry >= high
			  : n || pc < r->interpreter || pc > r->interpreter_end)
			break;
		end = r->ends[merged];
		merged++;
	}
	if (!n)
		return 0;
	at = s->walk.first + i;
	if (at < MAX_FRAME_WORDS)
		s->record.frames[at] = r->interpreter | (i ? FRAME_EXACT : 0);
	runtime_append(s, i + 1, end, FRAME_ENTERED);
	r->merged = merged;
	return 0;
}

/* Appends the groups that no native frame ran. */
UNWIND_GLOBAL int runtime_rest(u32 scratch, u32 frames)
{
	struct stack_scratch *s = bpf_map_lookup_elem(&scratches, &scratch);

	if (s) {
		runtime_append(s, frames, s->runtime.words, 0);
		s->runtime.merged = s->runtime.groups;
	}
	return 0;
}

#endif
