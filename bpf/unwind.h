/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The walker of user stacks (unwind_walk.h) in the kernel. It runs in any
 * context, including NMI: it takes no locks, changes no hash maps, and requests
 * what is missing from user space through a ring.
 */
#ifndef FULGUR_UNWIND_H
#define FULGUR_UNWIND_H

#include "epoch.h"
#include "hash.h"
#include "hotspot.h"
#include "kernel.h"
#include "labels.h"
#include "record.h"
#include "runtime.h"
#include "runtime_frames.h"
#include "runtime_maps.h"
#include "scratch.h"
#include "stack.h"
#include "task.h"
#include "unwind_env.h"
#include "unwind_maps.h"
#include "unwind_state.h"
#include "unwind_walk.h"
#include <bpf/bpf_helpers.h>

/*
 * The maximum time from a request to its result, in ns: tables, or new mappings. If user
 * space has not read the request, because it gets no CPU time, new mappings may take as long
 * as tables. An address outside of all code never gets a result.
 */
#define UNWIND_COMPILES (1000 * 1000 * 1000)
#define UNWIND_TELLS (30 * 1000 * 1000)

/* Whether user space has answered the requests of a time. */
static __always_inline bool unwind_answered(u64 time)
{
	u32 last = UNWIND_ASKED;
	struct unwind_asking *answered = bpf_map_lookup_elem(&unwind_asked, &last);

	return answered && *(volatile u64 *)&answered->time > time;
}

/*
 * Requests the layout of a process, or its table for an address unless that is 0, once for
 * each key. Returns whether the result can still be expected.
 */
static __always_inline bool unwind_want(u32 tgid, u64 image, u64 address, u64 key, u64 patience)
{
	u32 index = key % UNWIND_ASKED;
	struct unwind_asking *asked = bpf_map_lookup_elem(&unwind_asked, &index);

	if (!asked)
		return false;
	if (asked->key == key)
		return bpf_ktime_get_ns() - asked->time <
		       (unwind_answered(asked->time) ? patience : UNWIND_COMPILES);
	if (!unwind_ask(address ? UNWIND_WANT_TABLE : UNWIND_WANT_PROCESS, tgid, image, address))
		return false;
	/*
	 * The time is taken after the request is in the ring: an earlier one could make a
	 * request that nobody has read seem answered.
	 */
	asked->time = bpf_ktime_get_ns();
	asked->key = key;
	return true;
}

/* The layout of a process, or false if user space has not made it yet. */
static __always_inline bool unwind_layout(u32 tgid, u64 image, u64 *layout)
{
	struct unwind_process *known = bpf_map_lookup_elem(&unwind_processes, &tgid);

	if (known) {
		*layout = *(volatile u64 *)&known->layout;
		if (*(volatile u64 *)&known->seal == unwind_seal(image, *layout))
			return true;
	}
	return false;
}

/* Whether the registers belong to a 32-bit program. */
static __always_inline bool regs_are_32_bit(struct pt_regs *regs)
{
#if defined(__TARGET_ARCH_x86)
	u16 cs = 0;

	if (REGS_SP(regs) >> 32)
		return false;
	bpf_probe_read_kernel(&cs, sizeof(cs),
			      (void *)regs + __builtin_offsetof(struct bpf_user_regs, cs));
	return cs == USER32_CS;
#else
	return regs_read(regs, pstate) & PSR_MODE32_BIT;
#endif
}

/* The start of a walk. */
struct unwind_start {
	u64 pc, sp, fp;
};

/* A step of the walk in an entry of scratches by the layout of the process. */
static __always_inline int unwind_step_by_tables(u32 scratch, u32 i)
{
	struct stack_scratch *s = bpf_map_lookup_elem(&scratches, &scratch);
	u32 zero = 0;
	struct unwind_cache *cache = bpf_map_lookup_elem(&unwind_cache, &zero);

	return !s || !cache || unwind_by_tables(i, &s->walk, &s->record, cache);
}

/* A step of the walk in an entry of scratches by frame pointers. */
static __always_inline int unwind_step_by_chain(u32 scratch, u32 i)
{
	struct stack_scratch *s = bpf_map_lookup_elem(&scratches, &scratch);

	return !s || unwind_by_chain(i, &s->walk, &s->record);
}

/* Returns 1 at the end of the walk. */
UNWIND_GLOBAL int unwind_next(u32 scratch, u32 i, bool by_layout)
{
	return by_layout && unwind != UNWIND_BY_FRAME_POINTERS ? unwind_step_by_tables(scratch, i)
							       : unwind_step_by_chain(scratch, i);
}

/* unwind_next() in a process with a language runtime, with the runtime's frames. */
UNWIND_GLOBAL int unwind_next_mixed(u32 scratch, u32 i, bool by_layout)
{
	struct stack_scratch *s = bpf_map_lookup_elem(&scratches, &scratch);
	int end;

	if (!s)
		return 1;
	if (by_layout && hotspot_has(s))
		return hotspot_step(scratch, i);
	runtime_note(s);
	end = unwind_next(scratch, i, by_layout);
	runtime_merge(scratch, i);
	return end;
}

/*
 * Steps to the end and returns the number of steps. A step is a global function, which the
 * verifier checks once rather than in each iteration. The loop is a global function, too:
 * otherwise, older verifiers follow its callers for each number of steps.
 */
UNWIND_GLOBAL int unwind_loop(u32 scratch, bool by_layout)
{
	struct stack_scratch *s = bpf_map_lookup_elem(&scratches, &scratch);
	bool runtime;
	u32 i;
	int end;

	if (!s)
		return 0;
	runtime = runtime_present(s);
	for (i = 0; i < MAX_DEPTH && i < max_depth; i++) {
		if (!__builtin_expect(runtime, 0))
			end = unwind_next(scratch, i, by_layout);
		else
			end = unwind_next_mixed(scratch, i, by_layout);
		if (end)
			return i + 1;
	}
	return i;
}

/*
 * Appends the user frames from the walk's position to the record in s. If by_layout
 * is set, the walk uses the process's layout; otherwise it follows frame pointers.
 * All registers are at the walk's regs.
 */
static __always_inline void walk_from(const struct unwind_start *at, struct stack_scratch *s,
				      bool by_layout)
{
	struct stack_record *rec = &s->record;
	struct unwind_walk *w = &s->walk;
	u32 first = rec->kernel_frames, frames;

	if (first > MAX_DEPTH)
		first = MAX_DEPTH;
	w->first = first;
	runtime_rewind(s);
	unwind_begin(w, at->pc, at->sp, at->fp);
	frames = unwind_loop(s->index, by_layout);
	if (by_layout && unwind_lacks_base(w)) {
		w->first = first;
		runtime_rewind(s);
		unwind_begin_with_base(w, at->pc, at->sp, at->fp);
		frames = unwind_loop(s->index, true);
	}
	rec->user_end = w->end;
	if (runtime_present(s)) {
		if (s->runtime.words)
			runtime_rest(s->index, frames);
		/* Native frames that end early tell more. */
		if (s->runtime.end && (w->end == END_COMPLETE || w->end == END_FRAME_POINTER))
			rec->user_end = s->runtime.end;
	}
	/* The merge advanced w->first by the words of the runtime's frames. */
	rec->user_frames = w->first - first + frames;
}

/* The register that holds Go's g, or 0. */
static __always_inline u64 label_register(struct unwind_walk *w)
{
	u64 g = 0;

#if defined(__TARGET_ARCH_arm64)
	unwind_register(w, 28, &g);
#endif
	return g;
}

/*
 * Appends the user frames of task, whose registers are regs, to the record in
 * s. For a task that is not current, the walk's copy has the stack.
 */
static __always_inline void walk_user_regs(struct task_struct *task, struct pt_regs *regs,
					   struct stack_scratch *s)
{
	struct unwind_start at = { REGS_PC(regs), REGS_SP(regs), REGS_FP(regs) };
	struct stack_record *rec = &s->record;
	struct unwind_walk *w = &s->walk;
	u32 tgid = task_tgid(task);
	u64 image, layout;
	bool laid_out;

	runtime_reset(s);
	w->regs = (u64)regs;
	w->by_signal = 0; /* runtime_walk() reads registers, too */
	if (unwind == UNWIND_BY_FRAME_POINTERS) {
		walk_from(&at, s, false);
		return;
	}
	image = epoch_image(task, rec->epoch);
	laid_out = unwind_layout(tgid, image, &w->layout);
	s->runtime_walk.low = at.sp;
	if (!w->copy && runtime_exists())
		runtime_walk(s->index, tgid, image, laid_out);
	if (!w->copy && labels_exist())
		rec->labels = label_walk(s->index, rec->epoch, image, label_register(w));
	if (laid_out) {
		walk_from(&at, s, true);
	} else {
		w->layout = 0;
		w->end = END_NOT_READY;
	}
	layout = hash_step(image, w->layout);
	if (w->end == END_NOT_READY) {
		u64 address = laid_out ? unwind_code(w) : 0;

		walk_from(&at, s, false);
		rec->user_end = END_NOT_READY;
		w->early = unwind_want(tgid, image, address, hash_step(layout, address >> 12),
				       UNWIND_COMPILES);
		return;
	}
	/*
	 * Code that was just mapped, or no code at all: such an address asks once in each
	 * layout.
	 */
	if (w->end == END_NO_MAPPING)
		w->early =
			unwind_want(tgid, image, 0, hash_step(layout, w->pc >> 12), UNWIND_TELLS);
	else if (runtime_present(s) && s->runtime.during & RUNTIME_BIT(RUNTIME_HOTSPOT) &&
		 !s->runtime_walk.process.hotspot.high)
		w->early = unwind_want(tgid, image, 0,
				       hash_step(image, bpf_ktime_get_ns() >> HOTSPOT_AGAIN),
				       UNWIND_TELLS);
}

/*
 * Appends the user frames of task, which is current, to the record in s, which
 * already contains the kernel frames.
 */
static __always_inline void walk_user(void *ctx, struct task_struct *task, struct stack_scratch *s)
{
	struct pt_regs *regs = task_regs(task);
	struct stack_record *rec = &s->record;

	if (regs_are_32_bit(regs)) {
		u32 first = rec->kernel_frames > MAX_DEPTH ? MAX_DEPTH : rec->kernel_frames;
		long n = bpf_get_stack(ctx, &rec->frames[first], max_depth * 8, BPF_F_USER_STACK);

		runtime_reset(s); /* snapshots copy it */
		rec->user_frames = stack_frames(n, &rec->user_end);
		return;
	}
	walk_user_regs(task, regs, s);
}

#endif
