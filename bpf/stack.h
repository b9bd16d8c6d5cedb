/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Interned stacks. A stack is walked into scratch and identified by a hash of
 * the process epoch, the task's name, its cgroup and its labels if asked for, what rules
 * have yet to decide, its frames and the reasons for their ends. Its frames cross the ring once, in
 * a record that may count the first sample. Later samples only change counts.
 *
 * Everything here may be interrupted in NMI context on the same CPU, but not by
 * the same family: if that samples by NMI, it is not interrupted by itself (the
 * kernel rejects recursion of perf_event programs). Other families have their
 * own scratch. Other CPUs run it concurrently.
 */
#ifndef FULGUR_STACK_H
#define FULGUR_STACK_H

#include "epoch.h"
#include "hash.h"
#include "kernel.h"
#include "label_set.h"
#include "labels.h"
#include "loss.h"
#include "record.h"
#include "ring.h"
#include "scratch.h"
#include "seen.h"
#include "task.h"
#include <bpf/bpf_helpers.h>

const volatile bool skip_user_stack;

/* Whether stacks in different cgroups are different stacks. */
const volatile bool by_cgroup;

/* Begins the record of a stack of task, or of no particular task if NULL. */
static __always_inline void stack_begin(struct stack_record *rec, struct task_struct *task)
{
	rec->pid = task ? task_tgid(task) : 0;
	rec->tid = task ? task_pid(task) : 0;
	rec->epoch = task ? task_epoch(task) : 0;
	rec->cgroup = by_cgroup && task ? task_cgroup(task) : 0;
	rec->labels = 0;
	__builtin_memset(&rec->match, 0, sizeof(rec->match));
	rec->time = 0;
	rec->kernel_frames = 0;
	rec->kernel_end = END_NONE;
	rec->user_frames = 0;
	rec->user_end = END_NONE;
	rec->first.weight = 0;
	((u64 *)rec->comm)[0] = 0;
	((u64 *)rec->comm)[1] = 0;
}

/* Whether the interrupted code was user code. */
static __always_inline bool regs_in_user(struct bpf_perf_event_data *ctx)
{
#if defined(__TARGET_ARCH_x86)
	return ctx->regs.cs & 3;
#else
	return (ctx->regs.pstate & 0xf) == 0;
#endif
}

/* Converts the result of bpf_get_stack into a number of frames and an end. */
static __always_inline u16 stack_frames(long bytes, u8 *end)
{
	u64 n = (u64)bytes / 8;

	if (bytes <= 0) {
		*end = bytes == 0 ? END_FRAME_POINTER : END_FAULT;
		return 0;
	}
	*end = n >= max_depth ? END_DEPTH : END_FRAME_POINTER;
	return n > MAX_DEPTH ? MAX_DEPTH : n;
}

static __always_inline void walk_kernel(void *ctx, struct stack_record *rec)
{
	long n = bpf_get_stack(ctx, rec->frames, max_depth * 8, 0);

	rec->kernel_frames = stack_frames(n, &rec->kernel_end);
}

/*
 * Hashes a block of frames of a stack, from first on. It is a global function, which the
 * verifier checks once. In a loop, it would check each block.
 */
#define HASH_BLOCK 32
__noinline u64 stack_hash(u32 scratch, u32 first, u64 hash)
{
	const struct stack_scratch *s = bpf_map_lookup_elem(&scratches, &scratch);
	const struct stack_record *rec;
	u32 frames, i;

	if (!s)
		return 0;
	rec = &s->record;
	frames = rec->kernel_frames + rec->user_frames;
	for (i = 0; i < HASH_BLOCK && first < MAX_FRAME_WORDS && first < frames; i++)
		hash = hash_step(hash, rec->frames[first++]);
	return hash;
}

/*
 * A global function, which the verifier checks once rather than on every path
 * to it. This loads several times faster.
 */
__noinline u64 stack_id(u32 scratch)
{
	const struct stack_scratch *s = bpf_map_lookup_elem(&scratches, &scratch);
	const struct stack_record *rec;
	const u64 *comm;
	u32 frames, i;
	u64 hash;

	if (!s)
		return 0;
	rec = &s->record;
	comm = (const u64 *)rec->comm;
	frames = rec->kernel_frames + rec->user_frames;
	hash = hash_step(rec->epoch ^ generation, comm[0]);
	hash = hash_step(hash, comm[1]);
	hash = hash_step(hash, (u64)rec->kernel_frames << 32 | rec->user_frames << 16 |
				       rec->kernel_end << 8 | rec->user_end);
	if (by_cgroup)
		hash = hash_step(hash, rec->cgroup);
	if (read_labels)
		hash = hash_step(hash, rec->labels);
	if (rec->match.rules) {
		hash = hash_step(hash, rec->match.rules);
		hash = hash_step(hash_step(hash, rec->match.group), rec->match.program);
	}
	for (i = 0; i < MAX_FRAME_WORDS && i < frames; i += HASH_BLOCK)
		hash = stack_hash(scratch, i, hash);
	hash ^= hash >> 32;
	return hash ? hash : 1; /* 0 is an empty entry of seen */
}

/* The bits of a stack record's size, which is less than the room in scratch. */
#define MAX_STACK_RECORD 0x1fff

/*
 * Sends the stack in s with its ID. Its frames reach user space before the ID is
 * marked as seen, and the ID is marked before a map counts it. If the ring is
 * full, the ID stays unmarked and the next sample tries again.
 */
static __always_inline u64 stack_intern_as(struct stack_scratch *s, u64 id)
{
	u64 size = __builtin_offsetof(struct stack_record, frames);
	struct stack_record *rec = &s->record;
	struct seen_set *set;
	u64 flags;

	s->sent = 0;
	set = seen_stacks(id);
	if (!set)
		return id;
	if (seen_has(set, id))
		return id;

	rec->type = RECORD_STACK;
	rec->id = id;
	if (!rec->time)
		rec->time = bpf_ktime_get_ns();
	size += 8 * (rec->kernel_frames + rec->user_frames);
	flags = s->runtime.urgent ? BPF_RB_FORCE_WAKEUP : ring_flags();
	/*
	 * The size is bounded after all other calls: otherwise it is spilled before its use,
	 * and the verifier of 6.1 loses its bound.
	 */
	barrier_var(size);
	size &= MAX_STACK_RECORD;
	if (size > sizeof(*rec) || bpf_ringbuf_output(&ring, rec, size, flags)) {
		stat_add(STAT_RETRY, 1);
		return id;
	}
	s->sent = 1;
	seen_add(set, id);
	return id;
}

/* Identifies the stack in s, and sends it. */
static __always_inline u64 stack_intern(struct stack_scratch *s)
{
	struct stack_record *rec = &s->record;
	u64 id = stack_id(s->index);

	if (read_labels && rec->labels &&
	    !label_stack(rec->pid, id,
			 __builtin_offsetof(struct stack_record, frames) +
				 8 * (rec->kernel_frames + rec->user_frames))) {
		stat_add(STAT_UNLABELED, 1);
		rec->labels = 0;
		id = stack_id(s->index);
	}
	return stack_intern_as(s, id);
}

#endif
