//go:build ignore

// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Hits of an event by stack. The event is a set of tracepoints, of functions of the
 * kernel or of a file, or of places in code. Each event has its own maps.
 *
 * The kernel runs programs at tracepoints and kprobes with preemption disabled, and
 * skips them if one already runs on the CPU. Since Linux 6.0, programs at uprobes can
 * be preempted by a thread that hits the same uprobe. So each run claims its own
 * scratch memory.
 */

#include "kernel.h"
#include <bpf/bpf_helpers.h>

/* The key of a count. tid and cpu are 0 if not distinguished. */
struct count_key {
	u64 id;
	u32 tid;
	u32 cpu;
};

struct count_value {
	u64 hits;
	u64 weight; /* sum of the field that is weighed */
};

static __always_inline void count_add(struct count_value *to, const struct count_value *add)
{
	__sync_fetch_and_add(&to->hits, add->hits);
	__sync_fetch_and_add(&to->weight, add->weight);
}

/* Runs at the same time on one CPU, and the walk of a snapshot. */
enum scratch {
	SCRATCH_HIT = 0,
	SCRATCH_HITS = 4,
	SCRATCH_SNAPSHOT = SCRATCH_HITS,
	SCRATCH_MAX,
};
#define SCRATCHES SCRATCH_MAX

#include "count.h"
#include "event.h"
#include "snapshot.h"
#include "target.h"
#include "unwind.h"
#include "field.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Makes bpf2go generate Go types. */
const enum field_from *unused_field_from __attribute__((unused));
const enum field_string *unused_field_string __attribute__((unused));
const enum field_compare *unused_field_compare __attribute__((unused));
const enum field_limits *unused_field_limits __attribute__((unused));

/* Whether to count. Set after all probes are attached. */
volatile bool counting;

const volatile bool skip_kernel_stack;

/* Whether to filter hits, and whether to sum field 0 of their place. */
const volatile bool filtered;
const volatile bool weighed;

/* Count one of this many hits on each CPU, with this weight. */
const volatile u64 every = 1;

/* Hits to count per second and CPU; 0: no limit. */
const volatile u64 max_rate;

struct pace {
	u64 skipped; /* hits since the last that counted */
	u64 second; /* in which hits were counted last */
	u64 counted; /* in that second */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct pace);
} paces SEC(".maps");

/* Whether this hit is one of those to count. */
static __always_inline bool pace_allows(void)
{
	u32 zero = 0;
	struct pace *pace = bpf_map_lookup_elem(&paces, &zero);
	u64 second;

	if (!pace)
		return false;
	if (every > 1) {
		if (++pace->skipped < every)
			return false;
		pace->skipped = 0;
	}
	if (!max_rate)
		return true;
	second = bpf_ktime_get_ns() / 1000000000;
	if (pace->second != second) {
		pace->second = second;
		pace->counted = 0;
	}
	if (pace->counted >= max_rate) {
		stat_add(STAT_LIMITED, 1);
		return false;
	}
	pace->counted++;
	return true;
}

static __always_inline void take(struct stack_scratch *scratch, u32 cpu, u64 weight)
{
	struct count_value value = { .hits = every, .weight = weight };
	struct count_key key = { .id = stack_intern(scratch) };

	if (by_thread)
		key.tid = scratch->record.tid;
	if (by_cpu)
		key.cpu = cpu;
	count(&key, &value);
}

/* The sum of a field grows by this. Negative values are error numbers. */
static __always_inline u64 weight_of(u32 slot, u32 place)
{
	s64 value = field_number(slot, place * PLACE_FIELDS);

	if (value >= 0)
		return (u64)value * every;
	stat_add(STAT_NEGATIVE, 1);
	return 0;
}

static __always_inline void hit_in(void *ctx, struct task_struct *task, u32 slot, bool in_kernel)
{
	struct stack_scratch *scratch = stack_scratch(slot);
	u32 place = place_of(ctx);
	struct stack_record *rec;
	u64 weight = 0;

	if (!scratch || (filtered && !filter_passes(slot, place)) || !pace_allows())
		return;
	rec = &scratch->record;
	stat_add(STAT_SAMPLES, every);
	if (weighed)
		weight = weight_of(slot, place);
	stack_begin(rec, task);
	bpf_get_current_comm(rec->comm, sizeof(rec->comm));
	if (in_kernel && !skip_kernel_stack)
		walk_kernel(ctx, rec);
	if (!skip_user_stack && task_has_user_stack(task)) {
		walk_user(ctx, task, scratch);
		if (snapshots && scratch->walk.early && snapshot_send(task, scratch, weight))
			return;
	}
	take(scratch, bpf_get_smp_processor_id(), weight);
}

/*
 * Counts a hit. Claims scratch memory by increments alone: atomic operations that
 * return a value need Linux 5.12. Only the one run that sees its own increment alone
 * gets the slot.
 */
static __always_inline int hit(void *ctx, bool in_kernel)
{
	struct task_struct *task = current_task();
	struct field_context *c = NULL;
	u32 slot;

	if (!counting || !target_has(task))
		return 0;
	for (slot = SCRATCH_HIT; slot < SCRATCH_HITS; slot++) {
		c = field_context(slot);
		if (!c)
			return 0;
		__sync_fetch_and_add(&c->runs, 1);
		if (*(volatile u64 *)&c->runs == 1) {
			c->slot = slot;
			break;
		}
		__sync_fetch_and_add(&c->runs, -1);
	}
	if (slot == SCRATCH_HITS) {
		stat_add(STAT_CROWDED, 1);
		return 0;
	}
	c->ctx = (u64)ctx;
	/* From memory, so that the verifier does not follow each slot. */
	slot = *(volatile u64 *)&c->slot;
	hit_in(ctx, task, slot, in_kernel);
	c = field_context(slot);
	if (c)
		__sync_fetch_and_add(&c->runs, -1);
	return 0;
}

SEC("tracepoint")
int count_tracepoint(void *ctx)
{
	return hit(ctx, true);
}

SEC("kprobe")
int count_kprobe(void *ctx)
{
	return hit(ctx, true);
}

SEC("kprobe")
int count_uprobe(void *ctx)
{
	return hit(ctx, false);
}

/* Processes a snapshot. User space runs it, on any CPU. */
SEC("raw_tp")
int count_again(void *ctx)
{
	struct stack_scratch *scratch = stack_scratch(SCRATCH_SNAPSHOT);
	struct snapshot *s;
	u32 zero = 0;

	s = bpf_map_lookup_elem(&snapshot_back, &zero);
	if (!s || !scratch)
		return 0;
	snapshot_walk(s, scratch);
	take(scratch, s->cpu, s->weight);
	return 0;
}
