/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Samples whose walk needs a layout or tables that user space has not made yet. The
 * registers and the top of the stack, which a walk needs, cross the ring. Once the
 * tables are made, possibly after the process ended, user space hands the
 * snapshot back, to be walked and counted like a new sample. The family defines
 * snapshot_scratch() and snapshot_take().
 */
#ifndef FULGUR_SNAPSHOT_H
#define FULGUR_SNAPSHOT_H

#include "kernel.h"
#include "record.h"
#include "ring.h"
#include "runtime_maps.h"
#include "scratch.h"
#include "task.h"
#include "unwind.h"
#include "unwind_state.h"
#include <bpf/bpf_helpers.h>

/*
 * The room for parts in a snapshot: for a program that has just started, for most others, for a
 * stack whose end is not known, and for large frames.
 */
#define SNAPSHOT_FEW_PARTS 3
#define SNAPSHOT_SOME_PARTS 6
#define SNAPSHOT_MANY_PARTS 8
#define SNAPSHOT_MOST_PARTS STACK_PARTS
/* Below the stack pointer, a function's last instructions still find the saved registers. */
#define SNAPSHOT_BELOW 128

/* Bytes of a stack record with kernel frames only. */
#define SNAPSHOT_RECORD (__builtin_offsetof(struct stack_record, frames) + 8 * MAX_DEPTH)

struct snapshot {
	u32 type;
	u32 cpu;
	u64 weight; /* the sample's period */
	u64 image;
	u64 layout; /* set by user space; 0 if there is none */
	u64 copy_of; /* as in struct unwind_walk */
	u8 parts[STACK_PARTS]; /* as in struct stack_plan */
	u32 copied; /* bytes of copy */
	u32 point; /* the number of the attach point; in oncpu.bpf.c, that of running threads */
	u64 inside; /* the same */
	struct bpf_user_regs regs;
	u8 record[SNAPSHOT_RECORD]; /* a struct stack_record without user frames */
	struct runtime_stack runtime;
	u8 copy[SNAPSHOT_MOST_PARTS][STACK_PART];
};

/* Whether user space hands snapshots back. */
const volatile bool snapshots;

/* The snapshots from user space. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct snapshot);
} snapshot_back SEC(".maps");

/*
 * The parts from the stack pointer of the current task to the end of its stack, or 0 if that is too
 * far away, or not known, as for a coroutine.
 */
static __always_inline u64 snapshot_span(struct task_struct *task, u64 sp)
{
	u64 top = BPF_CORE_READ(task, mm, start_stack);

	if (top - sp >= STACK_SPAN * STACK_PART) {
		/* C libraries keep a thread's own variables above its stack. */
		top = task_thread_pointer(task);
#if defined(__TARGET_ARCH_x86)
		u64 self;

		/* The thread pointer of Go leads elsewhere. */
		if (bpf_probe_read_user(&self, sizeof(self), (void *)top) || self != top)
			return 0;
#endif
	}
	if (top - sp >= STACK_SPAN * STACK_PART)
		return 0;
	return top / STACK_PART - sp / STACK_PART + 1;
}

/*
 * Whether a read of memory failed, 0 or 1, without a branch: verifiers would follow both ways in
 * each iteration of a loop.
 */
static __always_inline u64 read_failed(long result)
{
	barrier_var(result);
	return (u64)result >> 63;
}

/*
 * Plans the copy of the stack of the current task from an address on, and returns the number of
 * parts. If the span is not known, the stack ends at the first part that cannot be read, at the
 * latest. All but the loop's counter is in memory: for registers, verifiers would follow each
 * value.
 */
UNWIND_GLOBAL u64 snapshot_plan(u32 index, u64 from, u64 span)
{
	struct stack_scratch *scratch = bpf_map_lookup_elem(&scratches, &index);
	struct stack_plan *plan;
	u32 i;
	u8 byte;

	if (!scratch)
		return 0;
	plan = &scratch->plan;
	plan->n = 0;
	plan->span = span ? span : SNAPSHOT_MANY_PARTS;
	plan->beyond = span;
	__builtin_memset(plan->parts, STACK_SPAN, sizeof(plan->parts));
	for (i = 0; i < STACK_SPAN; i++) {
		u64 n = *(volatile u64 *)&plan->n, failed;

		if (n >= STACK_PARTS || i >= *(volatile u64 *)&plan->span)
			break;
		failed =
			read_failed(bpf_probe_read_user(&byte, 1, (void *)(from + i * STACK_PART)));
		plan->parts[n] = i | failed * STACK_SPAN;
		plan->n = n + 1 - failed;
		if (i) /* the first part may be below the stack */
			plan->span &= plan->beyond | (failed - 1);
	}
	return plan->n;
}

/* Fills in everything but the copy beyond the given parts. */
static __always_inline void snapshot_fill(struct snapshot *s, struct task_struct *task,
					  const struct stack_scratch *scratch, u32 point,
					  u64 weight, u64 from, u32 parts)
{
	struct stack_record *rec = (struct stack_record *)s->record;
	const struct stack_plan *plan = &scratch->plan;
	struct pt_regs *regs = task_regs(task);
	u32 i;

	s->type = RECORD_SNAPSHOT;
	s->cpu = bpf_get_smp_processor_id();
	s->weight = weight;
	s->image = scratch->plan.image;
	s->layout = 0;
	s->point = point;
	s->inside = scratch->walk.inside;
	s->copy_of = from;
	s->copied = plan->n < parts ? plan->n * STACK_PART : parts * STACK_PART;
	bpf_probe_read_kernel(&s->regs, sizeof(s->regs), regs);
	bpf_probe_read_kernel(s->record, sizeof(s->record), &scratch->record);
	rec->time = bpf_ktime_get_ns();
	bpf_probe_read_kernel(&s->runtime, sizeof(s->runtime), &scratch->runtime);
	__builtin_memset(s->parts, STACK_SPAN, sizeof(s->parts));
	for (i = 0; i < parts; i++) {
		u64 part = plan->parts[i];

		if (part >= STACK_SPAN)
			continue;
		/* The stack may have lost it meanwhile. */
		s->parts[i] = part | STACK_SPAN * read_failed(bpf_probe_read_user(
							  s->copy[i], STACK_PART,
							  (void *)(from + part * STACK_PART)));
	}
}

/*
 * Sends a snapshot with room for a constant number of parts, while some bytes of the ring are
 * waiting. Large snapshots are rare, so each wakes user space, which makes room.
 */
static __always_inline bool snapshot_submit(struct task_struct *task,
					    const struct stack_scratch *scratch, u32 point,
					    u64 weight, u64 from, u32 parts, u64 waiting)
{
	struct snapshot *s;

	s = bpf_ringbuf_reserve(&ring,
				__builtin_offsetof(struct snapshot, copy) + parts * STACK_PART, 0);
	if (!s)
		return false;
	snapshot_fill(s, task, scratch, point, weight, from, parts);
	if (parts == SNAPSHOT_MOST_PARTS || waiting > ring_wakeup / 2)
		bpf_ringbuf_submit(s, BPF_RB_FORCE_WAKEUP);
	else
		bpf_ringbuf_submit(s, BPF_RB_NO_WAKEUP);
	return true;
}

/*
 * Sends a snapshot of the stack of the current task, with what an entry of scratches has of it. It
 * leaves half of the ring to other records, and most of the rest to snapshots of ordinary size. It
 * is a global function, which the verifier checks once rather than on every path to it.
 */
UNWIND_GLOBAL int snapshot_send(u32 index, u32 point, u64 weight)
{
	struct stack_scratch *scratch = bpf_map_lookup_elem(&scratches, &index);
	struct task_struct *task = current_task();
	u64 sp = REGS_SP(task_regs(task)) - SNAPSHOT_BELOW, from = sp & ~(u64)(STACK_PART - 1);
	u64 waiting = bpf_ringbuf_query(&ring, BPF_RB_AVAIL_DATA), parts;

	if (!snapshots || !scratch || waiting > ring_wakeup)
		return false;
	scratch->plan.image = task_image(task);
	parts = snapshot_plan(index, from, snapshot_span(task, sp));
	if (parts <= SNAPSHOT_FEW_PARTS)
		return snapshot_submit(task, scratch, point, weight, from, SNAPSHOT_FEW_PARTS,
				       waiting);
	if (parts <= SNAPSHOT_SOME_PARTS)
		return snapshot_submit(task, scratch, point, weight, from, SNAPSHOT_SOME_PARTS,
				       waiting);
	if (parts > SNAPSHOT_MANY_PARTS && waiting <= ring_wakeup / 4 &&
	    snapshot_submit(task, scratch, point, weight, from, SNAPSHOT_MOST_PARTS, waiting))
		return true;
	return snapshot_submit(task, scratch, point, weight, from, SNAPSHOT_MANY_PARTS, waiting);
}

/* Walks the stack of a snapshot into scratch. */
static __always_inline void snapshot_walk(struct snapshot *s, struct stack_scratch *scratch)
{
	struct unwind_walk *w = &scratch->walk;
	struct unwind_start at;
	u32 i;

	bpf_probe_read_kernel(&scratch->record, sizeof(s->record), s->record);
	bpf_probe_read_kernel(&scratch->runtime, sizeof(s->runtime), &s->runtime);
	/* The current task is not the process. */
	scratch->runtime.during = 0;
	scratch->runtime.code_size = 0;
	w->copy = (u64)s->copy;
	w->copy_of = s->copy_of;
	__builtin_memset(w->places, 0, sizeof(w->places));
	for (i = 0; i < STACK_PARTS; i++) {
		u64 part = s->parts[i];

		barrier_var(part); /* keeps the bounds check before the pointer arithmetic */
		if (part < STACK_SPAN)
			w->places[part] = i + 1;
	}
	w->inside = s->inside;
	w->regs = (u64)&s->regs;
	w->layout = s->layout;
#if defined(__TARGET_ARCH_x86)
	at = (struct unwind_start){ s->regs.rip, s->regs.rsp, s->regs.rbp };
#else
	at = (struct unwind_start){ s->regs.pc, s->regs.sp, s->regs.regs[29] };
#endif
	walk_from(&at, scratch, s->layout);
	if (!s->layout)
		scratch->record.user_end = END_NOT_READY;
}

/*
 * The address without a table at which the last walk by a layout ended, or 0. User space
 * makes the table and hands the snapshot back once more, or at last without a layout.
 */
volatile u64 snapshot_lacks;

/* The family defines where to walk the stack of a snapshot, and what to do with the result. */
static __always_inline struct stack_scratch *snapshot_scratch(void);
static __always_inline void snapshot_take(struct stack_scratch *scratch, const struct snapshot *s);

/* Processes a snapshot. User space runs it, on any CPU. */
SEC("raw_tp")
int snapshot_again(void *ctx)
{
	struct stack_scratch *scratch = snapshot_scratch();
	struct snapshot *s;
	u32 zero = 0;

	s = bpf_map_lookup_elem(&snapshot_back, &zero);
	if (!s || !scratch)
		return 0;
	snapshot_walk(s, scratch);
	snapshot_lacks = 0;
	if (s->layout && scratch->walk.end == END_NOT_READY)
		snapshot_lacks = unwind_code(&scratch->walk);
	else
		snapshot_take(scratch, s);
	return 0;
}

#endif
