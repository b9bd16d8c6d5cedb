//go:build ignore

// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Hits of an event by stack, or each with its fields in a timeline. Each event has its own
 * maps.
 */

#include "hit.h"
#include "count.h"
#include "event.h"
#include "kernel.h"
#include "snapshot.h"
#include "target.h"
#include "unwind.h"
#include <bpf/bpf_helpers.h>

/* The key of a count. tid, cpu and point are 0 if not distinguished. */
struct count_key {
	u64 id;
	u32 tid;
	u32 cpu;
	u32 point; /* the number in the attach cookie */
	u32 pad;
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

COUNT_RECORD

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Makes bpf2go generate Go types. */
const enum field_from *unused_field_from __attribute__((unused));
const enum field_string *unused_field_string __attribute__((unused));
const enum field_compare *unused_field_compare __attribute__((unused));
const enum field_limits *unused_field_limits __attribute__((unused));

/* Whether to sum field 0 of each place. */
const volatile bool weighed;

/* Count one of this many hits on each CPU, with this weight. */
const volatile u64 every = 1;

/* A hit, for timelines. Only the used part of text crosses the ring. */
struct timeline_event {
	u32 type;
	u32 texts; /* which fields have a text, a bit for each */
	u64 time; /* CLOCK_MONOTONIC, ns */
	u64 id;
	u64 cookie; /* of the attach point */
	u32 pid; /* thread group */
	u32 tid;
	u64 numbers[SHOWN_FIELDS];
	u64 text[SHOWN_FIELDS][FIELD_TEXT / 8];
};

const struct timeline_event *unused_timeline_event __attribute__((unused));

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SCRATCH_HITS);
	__type(key, u32);
	__type(value, struct timeline_event);
} hit_events SEC(".maps");

/* Reads the fields of a hit into its event. Returns the number of texts. */
__noinline u32 hit_fields(u32 slot, u32 place)
{
	struct timeline_event *event = bpf_map_lookup_elem(&hit_events, &slot);

	if (!event)
		return 0;
	return show_fields(slot, place, &event->texts, event->numbers, event->text, true);
}

/* The bits of an event's size. */
#define MAX_HIT_EVENT 0x3ff

static __always_inline void hit_send(void *ctx, struct task_struct *task, u32 slot, u64 cookie,
				     enum context in)
{
	u64 size = __builtin_offsetof(struct timeline_event, text);
	struct timeline_event *event = bpf_map_lookup_elem(&hit_events, &slot);
	struct stack_scratch *scratch = stack_scratch(slot);
	u32 texts;

	if (!event || !scratch)
		return;
	event->type = RECORD_TIMELINE;
	event->time = bpf_ktime_get_ns();
	event->cookie = cookie;
	event->pid = task_tgid(task);
	event->tid = task_pid(task);
	texts = hit_fields(slot, cookie);
	event->id = hit_stack(ctx, task, scratch, in);
	size += FIELD_TEXT * texts;
	barrier_var(size);
	size &= MAX_HIT_EVENT;
	if (size <= sizeof(*event))
		event_send(event, size);
}

static __always_inline void take(struct stack_scratch *scratch, u32 cpu, u32 point, u64 weight)
{
	struct count_value value = { .hits = every, .weight = weight };
	struct count_key key = { .id = stack_intern(scratch), .point = point };

	if (by_thread)
		key.tid = scratch->record.tid;
	if (by_cpu)
		key.cpu = cpu;
	count(&key, &value);
}

/* What a hit adds to the sum of a field. Negative values are error numbers. */
static __always_inline u64 weight_of(u32 slot, u32 place)
{
	s64 value = field_number(slot, place * PLACE_FIELDS);

	if (value >= 0)
		return (u64)value * every;
	stat_add(STAT_NEGATIVE, 1);
	return 0;
}

static __always_inline void snapshot_take(struct stack_scratch *scratch, const struct snapshot *s)
{
	if (timeline)
		stack_intern_as(scratch, s->weight);
	else
		take(scratch, s->cpu, s->point, s->weight);
}

static __always_inline void hit_in(void *ctx, struct task_struct *task, u32 slot, u64 cookie,
				   enum context in)
{
	struct stack_scratch *scratch = stack_scratch(slot);
	u32 place = cookie, point = cookie >> 32;
	u64 weight = 0;

	if (!scratch || (filtered && !filter_passes(slot, place)) || !pace_allows(point, every))
		return;
	stat_add(STAT_SAMPLES, every);
	if (timeline) {
		hit_send(ctx, task, slot, cookie, in);
		return;
	}
	if (weighed)
		weight = weight_of(slot, place);
	if (hit_walk(ctx, task, scratch, in) && snapshot_send(slot, point, weight))
		return;
	take(scratch, bpf_get_smp_processor_id(), point, weight);
}

static __always_inline int hit(void *ctx, enum context in)
{
	struct task_struct *task = current_task();
	u64 cookie;
	u32 slot;

	if (!gate_is_open() || !target_has(task))
		return 0;
	cookie = cookie_of(ctx, task);
	if (cookie == NO_COOKIE)
		return 0;
	slot = hit_claim(ctx);
	if (slot == SCRATCH_HITS)
		return 0;
	hit_in(ctx, task, slot, cookie, in);
	hit_release(slot);
	return 0;
}

HIT_PROGRAMS(hit)
