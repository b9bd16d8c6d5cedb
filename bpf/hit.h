/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Hits of an event: a set of tracepoints, of functions of the kernel or of a file, or of
 * places in code. The filter and the pace decide which hits count.
 *
 * The kernel runs programs at tracepoints and kprobes with preemption disabled, and
 * skips them if one already runs on the CPU. Since Linux 6.0, programs at uprobes can
 * be preempted by a thread that hits the same uprobe. So each run claims its own
 * scratch memory. A family includes this first, since it defines SCRATCHES.
 */
#ifndef FULGUR_HIT_H
#define FULGUR_HIT_H

/* Runs at the same time on one CPU, and the walk of a snapshot. */
enum scratch {
	SCRATCH_HIT = 0,
	SCRATCH_HITS = 4,
	SCRATCH_SNAPSHOT = SCRATCH_HITS,
	SCRATCH_MAX,
};
#define SCRATCHES SCRATCH_MAX

#include "field.h"
#include "gate.h"
#include "kernel.h"
#include "loss.h"
#include "record.h"
#include "scratch.h"
#include "snapshot.h"
#include "stack.h"
#include "task.h"
#include "unwind.h"
#include <bpf/bpf_helpers.h>

const volatile bool skip_kernel_stack;

/* Whether to filter hits. */
const volatile bool filtered;

/* Hits to count per second and CPU; 0: no limit. */
const volatile u64 max_rate;

struct pace {
	u64 second; /* in which hits were counted last */
	u64 counted; /* in that second */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct pace);
} paces SEC(".maps");

/* Which of the next hits of an event counts. */
struct turn {
	u64 hits; /* since the turn began */
	u64 chosen; /* the one that counts, from 0 */
};

const struct turn *unused_turn __attribute__((unused));

/* The turn of each event, by the number of its points. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct turn);
} turns SEC(".maps");

static __always_inline u64 context_sp(void *ctx)
{
#if defined(__TARGET_ARCH_x86)
	return ((struct bpf_user_regs *)ctx)->rsp;
#else
	return ((struct bpf_user_regs *)ctx)->sp;
#endif
}

static __always_inline u64 context_ip(void *ctx)
{
#if defined(__TARGET_ARCH_x86)
	return ((struct bpf_user_regs *)ctx)->rip;
#else
	return ((struct bpf_user_regs *)ctx)->pc;
#endif
}

/* The return address, at the entry of a function of a program and at its return instruction. */
static __always_inline u64 return_address(void *ctx)
{
	u64 ra = 0;

#if defined(__TARGET_ARCH_x86)
	bpf_probe_read_user(&ra, sizeof(ra), (void *)context_sp(ctx));
#else
	ra = ((struct bpf_user_regs *)ctx)->regs[30];
#endif
	return ra;
}

/*
 * Whether a return address is the one that a call had at its entry. Uretprobes, also those of
 * other programs, replace it with the start of a page.
 */
static __always_inline bool same_return(u64 ra, u64 had)
{
	return ra == had || !(ra & 4095) || !(had & 4095);
}

/* Bytes that a return takes from the stack. */
#if defined(__TARGET_ARCH_x86)
#define RETURN_SIZE 8
#else
#define RETURN_SIZE 0
#endif

/*
 * Whether this hit of an attach point counts. Of each turn, which is every hits long, one hit
 * counts. It is chosen at random, because code may hit the event from several callers in turn.
 * Each event has its own turns, because code may hit two events alternately.
 */
static __always_inline bool pace_allows(u32 point, u64 every)
{
	struct pace *pace;
	struct turn *turn;
	u32 zero = 0;
	u64 second;
	bool chosen;

	if (every > 1) {
		turn = bpf_map_lookup_elem(&turns, &point);
		if (!turn)
			return false;
		if (!turn->hits)
			turn->chosen = bpf_get_prandom_u32() % every;
		chosen = turn->hits == turn->chosen;
		turn->hits = turn->hits + 1 < every ? turn->hits + 1 : 0;
		if (!chosen)
			return false;
	}
	if (!max_rate)
		return true;
	pace = bpf_map_lookup_elem(&paces, &zero);
	if (!pace)
		return false;
	second = bpf_ktime_get_ns() / 1000000000;
	if (pace->second != second) {
		pace->second = second;
		pace->counted = 0;
	}
	if (pace->counted >= max_rate) {
		stat_add(STAT_LIMITED, every);
		return false;
	}
	pace->counted++;
	return true;
}

/*
 * Claims scratch memory for a run with context ctx. Returns its slot, or SCRATCH_HITS if
 * none is free. It uses increments alone: atomic operations that return a value need
 * Linux 5.12. Only the one run that sees its own increment alone gets the slot.
 */
static __always_inline u32 hit_claim(void *ctx)
{
	struct field_context *c;
	u32 slot;

	for (slot = SCRATCH_HIT; slot < SCRATCH_HITS; slot++) {
		c = field_context(slot);
		if (!c)
			return SCRATCH_HITS;
		__sync_fetch_and_add(&c->runs, 1);
		if (*(volatile u64 *)&c->runs == 1) {
			c->slot = slot;
			c->ctx = (u64)ctx;
			/* From memory, so that the verifier does not follow each slot. */
			return *(volatile u64 *)&c->slot;
		}
		__sync_fetch_and_add(&c->runs, -1);
	}
	stat_add(STAT_CROWDED, 1);
	return SCRATCH_HITS;
}

static __always_inline void hit_release(u32 slot)
{
	struct field_context *c = field_context(slot);

	if (!c)
		return;
	c->ctx = 0;
	__sync_fetch_and_add(&c->runs, -1);
}

static __always_inline struct stack_scratch *snapshot_scratch(void)
{
	return stack_scratch(SCRATCH_SNAPSHOT);
}

/* The kinds of contexts of programs. */
enum context {
	IN_TRACEPOINT,
	IN_KERNEL_FUNCTION,
	IN_PROGRAM,
	/* In a program, not at the entry or return of a function: a uretprobe is in the caller. */
	INSIDE_FUNCTION,
};

/*
 * Walks the stack of a hit into scratch. Returns whether to send a snapshot instead,
 * because the process has no unwind tables yet.
 */
static __always_inline bool hit_walk(void *ctx, struct task_struct *task,
				     struct stack_scratch *scratch, enum context in)
{
	struct stack_record *rec = &scratch->record;

	stack_begin(rec, task);
	bpf_get_current_comm(rec->comm, sizeof(rec->comm));
	if (in < IN_PROGRAM && !skip_kernel_stack)
		walk_kernel(ctx, rec);
	if (skip_user_stack || !task_has_user_stack(task))
		return false;
	scratch->walk.inside = in != IN_PROGRAM;
	walk_user(ctx, task, scratch);
	return snapshots && scratch->walk.early;
}

/*
 * Walks the stack of a hit and returns its ID. If a snapshot is sent instead, the ID is random,
 * and the stack gets it when the snapshot is walked.
 */
static __always_inline u64 hit_stack(void *ctx, struct task_struct *task,
				     struct stack_scratch *scratch, enum context in)
{
	u64 id;

	if (hit_walk(ctx, task, scratch, in)) {
		id = (u64)bpf_get_prandom_u32() << 32 | bpf_get_prandom_u32() | 1;
		if (snapshot_send(scratch->index, 0, id))
			return id;
	}
	return stack_intern(scratch);
}

/* Defines a program for each kind of event: handler_tracepoint() and so on. */
#define HIT_PROGRAMS(handler)                                                                      \
	SEC("tracepoint")                                                                          \
	int handler##_tracepoint(void *ctx)                                                        \
	{                                                                                          \
		return handler(ctx, IN_TRACEPOINT);                                                \
	}                                                                                          \
	SEC("kprobe")                                                                              \
	int handler##_kprobe(void *ctx)                                                            \
	{                                                                                          \
		return handler(ctx, IN_KERNEL_FUNCTION);                                           \
	}                                                                                          \
	SEC("kprobe")                                                                              \
	int handler##_uprobe(void *ctx)                                                            \
	{                                                                                          \
		return handler(ctx, IN_PROGRAM);                                                   \
	}                                                                                          \
	SEC("kprobe")                                                                              \
	int handler##_uretprobe(void *ctx)                                                         \
	{                                                                                          \
		return handler(ctx, INSIDE_FUNCTION);                                              \
	}

#endif
