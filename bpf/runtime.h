/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Frames of language runtimes, of which a process may have several. Before the native walk,
 * runtime_walk() reads the current thread's frames into scratch, in groups: one native frame of the
 * interpreter runs the frames of a group. A group's entry is an address in that native frame's part
 * of the stack. During the native walk, runtime_merge() inserts each group after the native frame
 * that contains its entry. runtime_rest() appends the remaining groups. The native walk of a
 * process without a runtime, or of a thread without Python or Ruby frames, calls none of them.
 *
 * Code crosses the ring once, before the first stack that contains it.
 */
#ifndef FULGUR_RUNTIME_H
#define FULGUR_RUNTIME_H

#include "stack.h"

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

/*
 * Sends the complete record of code in an entry of code_scratch, with lines bytes of line table,
 * and remembers its key.
 */
UNWIND_GLOBAL int code_send(u32 scratch, u64 key, u64 lines)
{
	struct code_record *rec = bpf_map_lookup_elem(&code_scratch, &scratch);
	u64 size = __builtin_offsetof(struct code_record, line_table) + lines;
	u64 flags = ring_flags();

	if (!rec || !code_allowed(rec->head.pid, size))
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

#include "python.h"
#include "v8.h"
#include "hotspot.h"
#include "ruby.h"
#include "program.h"

/* Whether any process or program has a runtime, for runtime_walk() to look for. */
static __always_inline bool runtime_exists(void)
{
	u32 zero = 0;
	const u32 *any;

	if (skip_runtimes)
		return false;
	any = bpf_map_lookup_elem(&runtime_any, &zero);
	return any && *any;
}

/* Reads the frames of the runtimes whose frames are read before the native walk. */
static __always_inline void runtime_parts(struct stack_scratch *s)
{
	const struct runtime_process *process = &s->runtime_walk.process;
	struct runtime_stack *r = &s->runtime;
	u32 end;

	runtime_part_begin(r, PART_RUBY, &process->ruby.interpreter);
	if (process->kinds & RUNTIME_BIT(RUNTIME_RUBY))
		ruby_walk(s->index);
	runtime_part_end(r, &r->parts[PART_RUBY]);
	end = r->end;
	r->end = END_NONE;
	runtime_part_begin(r, PART_PYTHON, &process->python.interpreter);
	if (process->kinds & RUNTIME_BIT(RUNTIME_PYTHON))
		python_walk(s->index);
	runtime_part_end(r, &r->parts[PART_PYTHON]);
	if (!r->end)
		r->end = end;
}

/*
 * Reads the current task's runtime frames, if it has a runtime. laid_out means that user space
 * knows the process. This is a function of its own so that samples of other tasks do not load
 * its code.
 */
UNWIND_GLOBAL int runtime_walk(u32 scratch, u32 tgid, u64 image, bool laid_out)
{
	struct stack_scratch *s = runtime_scratch(scratch);
	const struct runtime_process *process;
	struct runtime_stack *r;
	struct runtime_walk *w;

	if (!s)
		return 0;
	w = &s->runtime_walk;
	r = &s->runtime;
	process = bpf_map_lookup_elem(&runtime_processes, &tgid);
	if (process && process->image == image && process->kinds) {
		__builtin_memcpy(&w->process, process, sizeof(w->process));
	} else {
		if (laid_out && (!process || process->image != image))
			return 0;
		if (!program_process(scratch))
			return 0;
	}
	w->tgid = tgid;
	w->image = image;
	r->groups = 0;
	r->words = 0;
	r->end = END_NONE;
	r->during = w->process.kinds & (RUNTIME_BIT(RUNTIME_V8) | RUNTIME_BIT(RUNTIME_HOTSPOT));
	r->code_size = 0;
	runtime_parts(s);
	if (r->during & RUNTIME_BIT(RUNTIME_HOTSPOT))
		hotspot_begin(s);
	/* Many programs contain CPython and rarely run it: walk them like native ones. */
	r->present = r->groups || r->words || r->end || r->during;
	return 0;
}

/* Makes all groups unmerged again. */
static __always_inline void runtime_rewind(struct stack_scratch *s)
{
	struct runtime_part *parts = s->runtime.parts;

	parts[0].merged = 0;
	parts[0].from = 0;
	parts[1].merged = parts[0].groups;
	parts[1].from = parts[0].words;
}

/*
 * Appends the unmerged words of a part before end to the record, which has frames native user
 * frames.
 */
static __always_inline void runtime_append(struct stack_scratch *s, struct runtime_part *part,
					   u32 frames, u32 end, u32 entered)
{
	struct runtime_stack *r = &s->runtime;
	u32 at = s->walk.first + frames, from = part->from, size;

	part->from = end;
	barrier_var(at); /* keeps the bounds checks before the pointer arithmetic */
	barrier_var(from);
	if (from >= end || from >= 2 * MAX_RUNTIME_FRAMES || at >= MAX_FRAME_WORDS)
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

/* Notes the native frame that the walk is about to step from, for runtime_merge(). */
static __always_inline void runtime_note(struct stack_scratch *s)
{
	s->runtime_walk.pc = s->walk.pc;
	s->runtime_walk.low = s->walk.sp;
	s->runtime_walk.fp = s->walk.fp;
	s->walk.chained = 0;
}

/*
 * Appends a part's frames of native frame i, which the walk has just stepped from: the groups
 * that it runs. It occupies the stack from low up to high. If it runs a group, the address of the
 * interpreter's function replaces its address: the instruction is of no use, and would make more
 * distinct stacks. Returns whether it runs one.
 */
UNWIND_GLOBAL int runtime_merge_part(u32 scratch, u32 i, u32 index)
{
	struct stack_scratch *s = runtime_scratch(scratch);
	struct runtime_part *part;
	u32 n, at, merged, end = 0;
	struct runtime_stack *r;
	u64 pc, low, high;

	barrier_var(index);
	if (!s || index >= RUNTIME_PARTS)
		return 0;
	r = &s->runtime;
	part = &r->parts[index];
	pc = s->runtime_walk.pc;
	low = s->runtime_walk.low;
	high = s->walk.sp;
	merged = part->merged;
	for (n = 0; n < 8 && merged < part->groups; n++) {
		u64 entry;

		barrier_var(merged); /* or older verifiers lose its bound */
		if (merged >= MAX_RUNTIME_FRAMES)
			break;
		entry = r->entries[merged];
		if (entry ? entry < low || entry >= high
			  : n || pc < part->interpreter.start || pc > part->interpreter.end)
			break;
		end = r->ends[merged];
		merged++;
	}
	if (!n)
		return 0;
	at = s->walk.first + i;
	if (at < MAX_FRAME_WORDS)
		s->record.frames[at] = part->interpreter.start | (i ? FRAME_EXACT : 0);
	runtime_append(s, part, i + 1, end, FRAME_ENTERED);
	part->merged = merged;
	return 1;
}

/* Appends the runtimes' frames of native frame i. */
UNWIND_GLOBAL int runtime_merge(u32 scratch, u32 i)
{
	struct stack_scratch *s = runtime_scratch(scratch);

	if (!s)
		return 0;
	if (runtime_merge_part(scratch, i, PART_RUBY) ||
	    runtime_merge_part(scratch, i, PART_PYTHON))
		return 0;
	if (s->runtime.during & RUNTIME_BIT(RUNTIME_V8) && s->walk.chained)
		v8_frame(scratch, i, v8_leaf(scratch, i, s->runtime_walk.low, s->runtime_walk.fp));
	return 0;
}

/* Appends the groups that no native frame ran. */
UNWIND_GLOBAL int runtime_rest(u32 scratch, u32 frames)
{
	struct stack_scratch *s = runtime_scratch(scratch);
	u32 i;

	if (!s)
		return 0;
	for (i = 0; i < RUNTIME_PARTS; i++)
		runtime_append(s, &s->runtime.parts[i], frames, s->runtime.parts[i].words, 0);
	return 0;
}

#endif
