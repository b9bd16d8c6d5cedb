//go:build ignore

// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Time from one event to another, by the stack at the first: from the entry of a function
 * to its return, from a tracepoint to the next one of the same thread, or between two
 * events with the same value of a field. Each pair of events has its own maps.
 *
 * The time does not include the walk of the stack: it begins after it.
 */

#include "kernel.h"
#include <bpf/bpf_helpers.h>

/* The key of a count. tid and cpu are 0 if not distinguished. */
struct count_key {
	u64 id;
	u64 detail; /* field 0 or the attach point of the first event, 0 if not distinguished */
	u32 tid;
	u32 cpu;
};

struct count_value {
	u64 intervals;
	u64 time; /* ns */
};

static __always_inline void count_add(struct count_value *to, const struct count_value *add)
{
	__sync_fetch_and_add(&to->intervals, add->intervals);
	__sync_fetch_and_add(&to->time, add->time);
}

#include "hit.h"
#include "count.h"
#include "event.h"
#include "snapshot.h"
#include "target.h"
#include "unwind.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Which second event ends an interval. */
enum latency_match {
	MATCH_THREAD, /* the next one of the thread */
	MATCH_FIELD, /* the next one with the same field 0 */
	MATCH_FIELD_IN_PROCESS, /* likewise, of the same process */
	MATCH_FIELD_IN_THREAD, /* likewise, of the same thread */
	MATCH_USER_CALL, /* the return of this call of a function of a program */
	MATCH_KERNEL_CALL, /* likewise, of the kernel */
};

/* Numbers that user space needs. */
enum latency_limits {
	LATENCY_SLOTS = 64,
};

/* Makes bpf2go generate Go types. */
const enum latency_match *unused_latency_match __attribute__((unused));
const enum latency_limits *unused_latency_limits __attribute__((unused));

const volatile u32 match; /* enum latency_match */

/* Whether to distinguish field 0 of the first event. */
const volatile bool detailed;

/* Whether to distinguish the attach points of the first event. Not with detailed. */
const volatile bool by_point;

/*
 * Whether an event that would begin an interval again belongs to the one in progress.
 * Otherwise it replaces it.
 */
const volatile bool keeps_first;

/* The fields of the second event's places follow the first event's. */
const volatile u32 end_places;

/* Matches the beginning and the end of an interval. */
struct interval_key {
	u64 of; /* the thread (address of its task), or field 0 */
	u64 which; /* the call, the field or the process */
};

/* An interval in progress. */
struct interval {
	u64 since; /* CLOCK_MONOTONIC, ns */
	u64 id; /* of the stack */
	u64 detail;
	u32 pid; /* thread group */
	u32 tid;
	u32 cpu;
	u32 pad;
};

const struct interval *unused_interval __attribute__((unused));

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct interval_key);
	__type(value, struct interval);
} intervals SEC(".maps");

/* Histogram: slot n has the intervals of 2^n to 2^(n+1)-1 ns. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, LATENCY_SLOTS);
	__type(key, u32);
	__type(value, u64);
} histogram SEC(".maps");

/*
 * The calls of functions of the kernel in a thread. A call is matched by its depth, since
 * the stack pointer at a return depends on the kernel's way to trace returns.
 */
#define MAX_CALLS 16
struct calls {
	u64 depth;
	u64 sp[MAX_CALLS]; /* at the entries, outermost first */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, u64);
	__type(value, struct calls);
} calls SEC(".maps");

/* The stack pointer of a call. The verifier of 5.10 needs to see the limit in an index. */
static __always_inline u64 *calls_sp(struct calls *c, u64 depth)
{
	barrier_var(depth);
	return &c->sp[depth & (MAX_CALLS - 1)];
}

/* Bits of an offset in a kernel stack. */
#define KERNEL_STACK_SHIFT 14

/*
 * Forgets the innermost calls in a thread whose return was missed: a call from them would
 * have a lower stack pointer than theirs. Interrupts have their own stacks.
 */
__noinline int calls_forget(u64 task, u64 sp)
{
	struct calls *c = bpf_map_lookup_elem(&calls, &task);
	struct interval_key key = { .of = task };
	u64 i, last;

	if (!c || !sp)
		return 0;
	for (i = 0; i < MAX_CALLS; i++) {
		if (c->depth == 0 || c->depth > MAX_CALLS)
			break;
		key.which = c->depth - 1;
		last = *calls_sp(c, key.which);
		if (last >= sp || (last ^ sp) >> KERNEL_STACK_SHIFT)
			break;
		c->depth--;
		if (!bpf_map_delete_elem(&intervals, &key))
			stat_add(STAT_UNFINISHED, 1);
	}
	return 0;
}

/* Enters a call and returns its depth, or MAX_CALLS or more if it cannot be followed. */
static __always_inline u64 calls_enter(u64 task, u64 sp)
{
	static const struct calls none;
	struct calls *c = bpf_map_lookup_elem(&calls, &task);
	u64 depth;

	if (c) {
		calls_forget(task, sp);
	} else {
		bpf_map_update_elem(&calls, &task, &none, BPF_NOEXIST);
		c = bpf_map_lookup_elem(&calls, &task);
		if (!c)
			return MAX_CALLS;
	}
	depth = c->depth++;
	if (depth < MAX_CALLS)
		*calls_sp(c, depth) = sp;
	return depth;
}

/* Leaves the innermost call and returns its depth, as calls_enter(). */
static __always_inline u64 calls_leave(u64 task)
{
	struct calls *c = bpf_map_lookup_elem(&calls, &task);
	u64 depth;

	if (!c || !c->depth)
		return MAX_CALLS; /* the call began before the measurement */
	depth = --c->depth;
	if (!depth)
		bpf_map_delete_elem(&calls, &task);
	return depth;
}

/* Sets the key of an interval, except the depth of a call of the kernel. */
static __always_inline void key_of(struct interval_key *key, void *ctx, struct task_struct *task,
				   u64 field, enum context in)
{
	key->of = bpf_get_current_task();
	key->which = 0;
	switch (match) {
	case MATCH_FIELD:
		key->of = field;
		break;
	case MATCH_FIELD_IN_PROCESS:
		key->of = field;
		key->which = task_tgid(task);
		break;
	case MATCH_FIELD_IN_THREAD:
		key->which = field;
		break;
	case MATCH_USER_CALL:
		if (in == IN_PROGRAM)
			key->which = context_sp(ctx);
		break;
	}
}

/* Stores an interval that begins now. */
static __always_inline void store(const struct interval_key *key, struct interval *interval)
{
	int err; /* before 5.12, helpers do not extend the sign */

	interval->since = bpf_ktime_get_ns();
	err = bpf_map_update_elem(&intervals, key, interval, BPF_NOEXIST);
	if (err == -EEXIST) {
		if (keeps_first)
			return;
		stat_add(STAT_UNFINISHED, 1);
		err = bpf_map_update_elem(&intervals, key, interval, BPF_ANY);
	}
	if (err)
		stat_add(STAT_UNFOLLOWED, 1);
}

static __always_inline void begin_in(void *ctx, struct task_struct *task, u32 slot, u64 cookie,
				     u64 depth, enum context in)
{
	struct stack_scratch *scratch = stack_scratch(slot);
	struct interval interval = {};
	struct interval_key key;
	u32 place = cookie;
	u64 field = 0;

	if (!scratch || (filtered && !filter_passes(slot, place)) || !pace_allows(0, 1))
		return;
	if (detailed || (match >= MATCH_FIELD && match <= MATCH_FIELD_IN_THREAD))
		field = field_number(slot, place * PLACE_FIELDS);
	interval.id = hit_stack(ctx, task, scratch, in);
	if (detailed)
		interval.detail = field;
	else if (by_point)
		interval.detail = cookie >> 32;
	interval.pid = scratch->record.pid;
	interval.tid = scratch->record.tid;
	interval.cpu = bpf_get_smp_processor_id();
	key_of(&key, ctx, task, field, in);
	if (match == MATCH_KERNEL_CALL)
		key.which = depth;
	store(&key, &interval);
}

static __always_inline int begin(void *ctx, enum context in)
{
	struct task_struct *task = current_task();
	u64 cookie, depth = 0;
	u32 slot;

	if (!counting || !target_has(task))
		return 0;
	cookie = cookie_of(ctx, task);
	if (cookie == NO_COOKIE)
		return 0;
	if (match == MATCH_KERNEL_CALL && in == IN_KERNEL_FUNCTION) {
		/* Each call, even one that does not count: the return cannot know. */
		depth = calls_enter(bpf_get_current_task(), context_sp(ctx));
		if (depth >= MAX_CALLS) {
			stat_add(STAT_UNFOLLOWED, 1);
			return 0;
		}
	}
	slot = hit_claim(ctx);
	if (slot == SCRATCH_HITS)
		return 0;
	begin_in(ctx, task, slot, cookie, depth, in);
	hit_release(slot);
	return 0;
}

/* Field 0 of the second event. Returns false if there is no memory to read it. */
static __always_inline bool end_field(void *ctx, u32 place, u64 *field)
{
	u32 slot = hit_claim(ctx);

	if (slot == SCRATCH_HITS)
		return false;
	*field = field_number(slot, (end_places + place) * PLACE_FIELDS);
	hit_release(slot);
	return true;
}

static __always_inline u32 slot_of(u64 ns)
{
	u32 slot = 0;
	int shift;

#pragma unroll
	for (shift = 32; shift; shift /= 2) {
		if (ns >> shift) {
			ns >>= shift;
			slot += shift;
		}
	}
	return slot;
}

/*
 * Whether an interval belongs to a task, if it belongs to any. The kernel reuses the memory
 * of a thread that exited in an interval. A thread that executes a program takes the ID of
 * its process.
 */
static __always_inline bool belongs_to(const struct interval *interval, struct task_struct *task)
{
	u32 tid = task_pid(task);

	return match == MATCH_FIELD || match == MATCH_FIELD_IN_PROCESS || interval->tid == tid ||
	       interval->pid == tid;
}

static __always_inline int end(void *ctx, enum context in)
{
	u64 now = bpf_ktime_get_ns(), field = 0, cookie, *in_slot;
	struct task_struct *task = current_task();
	struct interval_key key;
	struct interval *interval;
	struct count_value value = { .intervals = 1 };
	struct count_key to = {};
	u32 slot;

	if (!counting)
		return 0;
	cookie = cookie_of(ctx, task);
	if (cookie == NO_COOKIE)
		return 0;
	if (match >= MATCH_FIELD && match <= MATCH_FIELD_IN_THREAD &&
	    !end_field(ctx, cookie, &field))
		return 0;
	key_of(&key, ctx, task, field, in);
	if (match == MATCH_USER_CALL)
		key.which -= RETURN_SIZE;
	if (match == MATCH_KERNEL_CALL) {
		key.which = calls_leave(bpf_get_current_task());
		if (key.which >= MAX_CALLS)
			return 0;
	}
	interval = bpf_map_lookup_elem(&intervals, &key);
	if (!interval || interval->since > now)
		return 0; /* none, or another CPU began one after this event */
	if (!belongs_to(interval, task)) {
		if (!bpf_map_delete_elem(&intervals, &key))
			stat_add(STAT_UNFINISHED, 1);
		return 0;
	}
	value.time = now - interval->since;
	to.id = interval->id;
	to.detail = interval->detail;
	if (by_thread)
		to.tid = interval->tid;
	if (by_cpu)
		to.cpu = interval->cpu;
	if (bpf_map_delete_elem(&intervals, &key))
		return 0; /* another CPU was faster */
	slot = slot_of(value.time);
	in_slot = bpf_map_lookup_elem(&histogram, &slot);
	if (in_slot)
		__sync_fetch_and_add(in_slot, 1);
	stat_add(STAT_SAMPLES, 1);
	count(&to, &value);
	return 0;
}

HIT_PROGRAMS(begin)
HIT_PROGRAMS(end)

/* The stack of an interval. Its snapshot has its ID. */
static __always_inline void snapshot_take(struct stack_scratch *scratch, const struct snapshot *s)
{
	stack_intern_as(scratch, s->weight);
}
