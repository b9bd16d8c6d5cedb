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

#include "hotspot.h"
#include "kernel.h"
#include "program.h"
#include "python.h"
#include "record.h"
#include "ruby.h"
#include "runtime_frames.h"
#include "runtime_maps.h"
#include "scratch.h"
#include "unwind_state.h"
#include "v8.h"
#include <bpf/bpf_helpers.h>

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
 * knows the process. It is a function of its own, so that samples of other tasks do not load
 * its code into the caches.
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
 * Appends the words of a part up to end that are not merged yet to the record, which has frames
 * native user frames so far.
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
 * Appends the frames of a part that native frame i runs. The walk has just stepped from frame
 * i, which occupies the stack from low up to high. If it runs any, the address of the
 * interpreter's function replaces the frame's own: the instruction is of no use, and would make
 * more distinct stacks. Returns whether it runs any.
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
