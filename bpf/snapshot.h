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

#define SNAPSHOT_PART 4096
#define SNAPSHOT_PARTS 8
#define SNAPSHOT_FEW_PARTS 3 /* enough for a program that has just started */

/* Bytes of a stack record with kernel frames only. */
#define SNAPSHOT_RECORD (__builtin_offsetof(struct stack_record, frames) + 8 * MAX_DEPTH)

struct snapshot {
	u32 type;
	u32 cpu;
	u64 weight; /* the sample's period */
	u64 image;
	u64 layout; /* set by user space; 0 if there is none */
	u64 copy_of; /* address of copy */
	u32 copied; /* valid bytes of copy */
	u32 point; /* the number of the attach point, 0 in other families */
	struct bpf_user_regs regs;
	u8 record[SNAPSHOT_RECORD]; /* a struct stack_record without user frames */
	struct runtime_stack runtime;
	u8 copy[SNAPSHOT_PARTS][SNAPSHOT_PART];
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

/* Fills in everything but the part of the copy beyond the given parts. */
static __always_inline void snapshot_fill(struct snapshot *s, struct task_struct *task, u64 image,
					  const struct stack_scratch *scratch, u32 point,
					  u64 weight, u32 parts)
{
	struct stack_record *rec = (struct stack_record *)s->record;
	struct pt_regs *regs = task_regs(task);
	u32 i;

	s->type = RECORD_SNAPSHOT;
	s->cpu = bpf_get_smp_processor_id();
	s->weight = weight;
	s->image = image;
	s->layout = 0;
	s->point = point;
	s->copy_of = REGS_SP(regs) & ~(u64)(SNAPSHOT_PART - 1);
	bpf_probe_read_kernel(&s->regs, sizeof(s->regs), regs);
	bpf_probe_read_kernel(s->record, sizeof(s->record), &scratch->record);
	rec->time = bpf_ktime_get_ns();
	bpf_probe_read_kernel(&s->runtime, sizeof(s->runtime), &scratch->runtime);
	for (i = 0; i < parts; i++)
		if (bpf_probe_read_user(s->copy[i], SNAPSHOT_PART,
					(void *)(s->copy_of + i * SNAPSHOT_PART)))
			break;
	s->copied = i * SNAPSHOT_PART;
}

/*
 * Sends a snapshot of the stack of task, which is current. It leaves half of
 * the ring to other records.
 */
static __always_inline bool
snapshot_send(struct task_struct *task, const struct stack_scratch *scratch, u32 point, u64 weight)
{
	struct pt_regs *regs = task_regs(task);
	u64 wakeup = BPF_RB_NO_WAKEUP, waiting = bpf_ringbuf_query(&ring, BPF_RB_AVAIL_DATA);
	u64 beyond =
		(REGS_SP(regs) & ~(u64)(SNAPSHOT_PART - 1)) + SNAPSHOT_FEW_PARTS * SNAPSHOT_PART;
	struct snapshot *s;
	u64 image;
	u8 byte;

	if (waiting > ring_wakeup)
		return false;
	if (waiting > ring_wakeup / 2)
		wakeup = BPF_RB_FORCE_WAKEUP;
	image = task_image(task);
	if (bpf_probe_read_user(&byte, 1, (void *)beyond)) {
		s = bpf_ringbuf_reserve(&ring,
					__builtin_offsetof(struct snapshot, copy) +
						SNAPSHOT_FEW_PARTS * SNAPSHOT_PART,
					0);
		if (!s)
			return false;
		snapshot_fill(s, task, image, scratch, point, weight, SNAPSHOT_FEW_PARTS);
	} else {
		s = bpf_ringbuf_reserve(&ring, sizeof(*s), 0);
		if (!s)
			return false;
		snapshot_fill(s, task, image, scratch, point, weight, SNAPSHOT_PARTS);
	}
	bpf_ringbuf_submit(s, wakeup);
	return true;
}

/* Walks the stack of a snapshot into scratch. */
static __always_inline void snapshot_walk(struct snapshot *s, struct stack_scratch *scratch)
{
	struct unwind_walk *w = &scratch->walk;
	struct unwind_start at;

	bpf_probe_read_kernel(&scratch->record, sizeof(s->record), s->record);
	bpf_probe_read_kernel(&scratch->runtime, sizeof(s->runtime), &s->runtime);
	/* The current task is not the process. */
	scratch->runtime.during = 0;
	scratch->runtime.code_size = 0;
	w->copy = (u64)s->copy;
	w->copy_of = s->copy_of;
	w->copied = s->copied;
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
