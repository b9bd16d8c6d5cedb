/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Interned stacks. A stack is walked into scratch and named by a hash over the
 * process epoch, the task's name, its frames and why they end. Its body
 * crosses the ring once; afterwards only counts change.
 *
 * Everything here may be interrupted on the same CPU by the same program
 * family in NMI context only if that family samples by NMI and then not by
 * itself (the kernel refuses recursion of perf_event programs); other families
 * have scratch of their own. Other CPUs run it at the same time.
 */
#ifndef FULGUR_STACK_H
#define FULGUR_STACK_H

#include "epoch.h"
#include "loss.h"
#include "record.h"
#include "scratch.h"
#include <bpf/bpf_helpers.h>

/* Frames of each half that are kept; user space never sets it above MAX_DEPTH. */
const volatile u32 max_depth = MAX_DEPTH;

const volatile bool skip_user_stack;

/* Half of the ring's size in bytes: the fill at which the reader is woken. */
const volatile u64 ring_wakeup = 512 * 1024;

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1024 * 1024);
} ring SEC(".maps");

/*
 * Ids whose body was sent: a set-associative table with racy stores, because
 * an LRU map takes a lock that an NMI on the same CPU would wait for for ever.
 * A lost store only sends a body again.
 */
#define SEEN_WAYS 4
struct seen_set {
	u64 ids[SEEN_WAYS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 16384);
	__type(key, u32);
	__type(value, struct seen_set);
} seen SEC(".maps");

/*
 * Part of every id. User space raises it when it has forgotten the bodies it
 * got: what is seen then has another id, and its body crosses once more.
 */
volatile u32 generation;

/* The number of sets less one; the number is a power of two. */
const volatile u32 seen_mask = 16384 - 1;

/* Small records are worth a copy, not a wake-up: the reader comes by itself. */
static __always_inline u64 ring_flags(void)
{
	if (bpf_ringbuf_query(&ring, BPF_RB_AVAIL_DATA) > ring_wakeup)
		return BPF_RB_FORCE_WAKEUP;
	return BPF_RB_NO_WAKEUP;
}

static __always_inline long ring_send(void *record, u64 size)
{
	return bpf_ringbuf_output(&ring, record, size, ring_flags());
}

/* Begins the record of a stack of task, or with NULL, of no task's in particular. */
static __always_inline void stack_begin(struct stack_record *rec, struct task_struct *task)
{
	rec->pid = task ? task_tgid(task) : 0;
	rec->tid = task ? task_pid(task) : 0;
	rec->epoch = task ? task_epoch(task) : 0;
	rec->time = 0;
	rec->kernel_frames = 0;
	rec->kernel_end = END_NONE;
	rec->user_frames = 0;
	rec->user_end = END_NONE;
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

/* Turns what bpf_get_stack returned into a number of frames and an end. */
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
 * A function of its own, which the verifier looks at once and not on every
 * path that leads to it: loading takes a fraction of the time.
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
	for (i = 0; i < 2 * MAX_DEPTH && i < frames; i++)
		hash = hash_step(hash, rec->frames[i]);
	hash ^= hash >> 32;
	return hash ? hash : 1; /* 0 is an empty entry of seen */
}

/* All bits of a stack record's size, which is less than what scratch has room for. */
#define MAX_STACK_RECORD 0xfff

/*
 * Names the stack in s and sees to it that its body reaches user space
 * before the id is marked as seen, and the id is marked before it is counted.
 * If the ring is full the id stays unmarked and the next sample tries again.
 */
static __always_inline u64 stack_intern(struct stack_scratch *s)
{
	u64 size = __builtin_offsetof(struct stack_record, frames);
	u64 id = stack_id(s->index), flags;
	struct stack_record *rec = &s->record;
	struct seen_set *set;
	u32 index = id & seen_mask;

	set = bpf_map_lookup_elem(&seen, &index);
	if (!set)
		return id;
	if (set->ids[0] == id || set->ids[1] == id || set->ids[2] == id || set->ids[3] == id)
		return id;

	rec->type = RECORD_STACK;
	rec->id = id;
	if (!rec->time)
		rec->time = bpf_ktime_get_ns();
	size += 8 * (rec->kernel_frames + rec->user_frames);
	flags = ring_flags();
	/*
	 * Looked at after all other calls, so that it is not kept in memory between
	 * here and its use, or 6.1's verifier does not see what bounds it.
	 */
	barrier_var(size);
	size &= MAX_STACK_RECORD;
	if (size > sizeof(*rec) || bpf_ringbuf_output(&ring, rec, size, flags))
		stat_add(STAT_RETRY, 1);
	else
		/* The victim is chosen by bits that did not choose the set. */
		set->ids[(id >> 60) % SEEN_WAYS] = id;
	return id;
}

#endif
