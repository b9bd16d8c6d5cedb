/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The walker of user stacks (unwind_walk.h) in the kernel. It runs in any
 * context, NMI included: it takes no locks and changes no hash, and what it
 * lacks it asks user space for through a ring.
 */
#ifndef FULGUR_UNWIND_H
#define FULGUR_UNWIND_H

#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include "stack.h"
#include "unwind_walk.h"

const volatile u32 unwind; /* enum unwind_mode */

/* What it takes to walk a stack. Each family has its own; see stack.h. */
struct stack_scratch {
	struct stack_record record;
	struct unwind_walk walk;
};

static __always_inline bool unwind_read(void *to, u32 size, u64 addr)
{
	return bpf_probe_read_user(to, size, (void *)addr) == 0;
}

#if defined(__TARGET_ARCH_x86)
/* Where DWARF's registers are, in words, in struct pt_regs and in signal frames. */
static const u8 pt_regs_words[16] = { 10, 12, 11, 5, 13, 14, 4, 19, 9, 8, 7, 6, 3, 2, 1, 0 };
static const u8 signal_words[16] = { 13, 12, 14, 11, 9, 8, 10, 15, 0, 1, 2, 3, 4, 5, 6, 7 };
#endif

static __always_inline bool unwind_register(struct unwind_walk *w, u32 number, u64 *value)
{
	u64 at = w->regs;

#if defined(__TARGET_ARCH_x86)
	if (number >= 16)
		return false;
	at += 8 * (w->by_signal ? signal_words[number] : pt_regs_words[number]);
#else
	if (number >= 32)
		return false;
	at += 8 * number;
#endif
	if (w->by_signal)
		return bpf_probe_read_user(value, sizeof(*value), (void *)at) == 0;
	return bpf_probe_read_kernel(value, sizeof(*value), (void *)at) == 0;
}

static __always_inline const struct unwind_mapping *unwind_mapping_at(u32 index)
{
	return bpf_map_lookup_elem(&unwind_mappings, &index);
}

static __always_inline const struct unwind_rule *unwind_rule_at(u32 index)
{
	return bpf_map_lookup_elem(&unwind_rules, &index);
}

/*
 * The bits that a code address can have. The others may sign a return address
 * on arm64; code is above 48 bits only for who asks for that.
 */
static __always_inline u64 unwind_pc_bits(void)
{
#if defined(__TARGET_ARCH_arm64)
	return (1ULL << 48) - 1;
#else
	return ~FRAME_EXACT;
#endif
}

static __always_inline enum unwind_mode unwind_by(void)
{
	return unwind;
}

/* User space waits for requests: they are rare and each delays stacks. */
static __always_inline bool unwind_ask(u32 type, u32 id, u64 image)
{
	struct unwind_request request = {
		.type = type,
		.id = id,
		.image = image,
		.time = bpf_ktime_get_ns(),
	};

	return bpf_ringbuf_output(&unwind_requests, &request, sizeof(request),
				  BPF_RB_FORCE_WAKEUP) == 0;
}

static __always_inline const u32 *unwind_page_at(u32 page)
{
	struct unwind_page_state *state = bpf_map_lookup_elem(&unwind_page_states, &page);
	void *inner = bpf_map_lookup_elem(&unwind_pages, &page);
	u32 zero = 0;

	if (!state)
		return NULL;
	if (!inner) {
		if (!state->asked && unwind_ask(UNWIND_WANT_PAGE, page, 0))
			state->asked = 1;
		return NULL;
	}
	if (!state->used)
		state->used = 1;
	return bpf_map_lookup_elem(inner, &zero);
}

/* Asks for the layout of a process, once for each key. */
static __always_inline void unwind_want(u32 tgid, u64 image, u64 key)
{
	u32 index = key % UNWIND_ASKED;
	u64 *asked = bpf_map_lookup_elem(&unwind_asked, &index);

	if (asked && *asked != key && unwind_ask(UNWIND_WANT_PROCESS, tgid, image))
		*asked = key;
}

/* The layout of the task's process, or false if user space has yet to lay it out. */
static __always_inline bool unwind_layout(struct task_struct *task, u64 image, u64 *layout)
{
	u32 tgid = task->tgid;
	struct unwind_process *known = bpf_map_lookup_elem(&unwind_processes, &tgid);

	if (known) {
		/* In this order, the opposite of what an update writes them in. */
		*layout = *(volatile u64 *)&known->layout;
		if (*(volatile u64 *)&known->image == image)
			return true;
	}
	unwind_want(tgid, image, image);
	return false;
}

/* Whether the registers are those of a 32-bit program. */
static __always_inline bool regs_are_32_bit(struct pt_regs *regs)
{
#if defined(__TARGET_ARCH_x86)
	u16 cs = 0;

	if (regs->sp >> 32)
		return false;
	bpf_probe_read_kernel(&cs, sizeof(cs),
			      (void *)regs + __builtin_offsetof(struct bpf_user_regs, cs));
	return cs == USER32_CS;
#else
	return regs->pstate & PSR_MODE32_BIT;
#endif
}

/*
 * Appends the user frames of task, which is current, to rec, whose kernel frames
 * are there already. w is scratch.
 */
static __always_inline void walk_user(struct task_struct *task, struct stack_record *rec,
				      struct unwind_walk *w)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	struct unwind_loop loop = { .walk = w, .record = rec };
	u32 first = rec->kernel_frames, zero = 0;
	u64 image;

	if (first > MAX_DEPTH)
		first = MAX_DEPTH;
	if (regs_are_32_bit(regs)) {
		long n = bpf_get_task_stack(task, &rec->frames[first], max_depth * 8,
					    BPF_F_USER_STACK);

		rec->user_frames = stack_frames(n, &rec->user_end);
		return;
	}
	w->first = first;
	w->regs = (u64)regs;
	unwind_begin(w, REGS_PC(regs), REGS_SP(regs), REGS_FP(regs));
	if (unwind == UNWIND_BY_FRAME_POINTERS) {
		rec->user_frames = bpf_loop(max_depth, unwind_by_chain, &loop, 0);
		rec->user_end = w->end;
		return;
	}
	loop.cache = bpf_map_lookup_elem(&unwind_cache, &zero);
	if (!loop.cache)
		return;
	image = task_image(task);
	if (unwind_layout(task, image, &w->layout)) {
		rec->user_frames = bpf_loop(max_depth, unwind_by_tables, &loop, 0);
		if (unwind_lacks_base(w)) {
			unwind_begin_with_base(w, REGS_PC(regs), REGS_SP(regs), REGS_FP(regs));
			rec->user_frames = bpf_loop(max_depth, unwind_by_tables, &loop, 0);
		}
		rec->user_end = w->end;
		/* Code that was just mapped, or none: an address that is none asks once
		 * in each layout. */
		if (w->end == END_NO_MAPPING)
			unwind_want(task->tgid, image,
				    hash_step(hash_step(image, w->layout), w->pc >> 12));
	} else {
		rec->user_frames = bpf_loop(max_depth, unwind_by_chain, &loop, 0);
		rec->user_end = END_NOT_READY;
	}
}

#endif
