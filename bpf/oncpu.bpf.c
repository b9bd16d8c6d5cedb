//go:build ignore

// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * On-CPU sampling: each overflow of a perf event counts the current stack. There are two programs:
 * oncpu_parallel also divides each sample by the number of running threads of the target.
 */

/* Samples may interrupt the walk of a snapshot. */
enum scratch {
	SCRATCH_SAMPLE,
	SCRATCH_SNAPSHOT,
	SCRATCH_MAX,
};
#define SCRATCHES SCRATCH_MAX

#include "count.h"
#include "event.h"
#include "kernel.h"
#include "parallel.h"
#include "rules.h"
#include "snapshot.h"
#include "target.h"
#include "unwind.h"
#include <bpf/bpf_helpers.h>

/* The key of a count. tid and cpu are 0 if not counted separately. */
struct count_key {
	u64 id;
	u32 tid;
	u32 cpu;
};

struct count_value {
	u64 samples;
	u64 weight; /* sum of the samples' periods */
	u64 elapsed; /* the same, each divided by the number of running threads */
};

static __always_inline void count_add(struct count_value *to, const struct count_value *add)
{
	__sync_fetch_and_add(&to->samples, add->samples);
	__sync_fetch_and_add(&to->weight, add->weight);
	if (add->elapsed)
		__sync_fetch_and_add(&to->elapsed, add->elapsed);
}

COUNT_RECORD

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Makes bpf2go generate Go types. */
const struct rule_match *unused_rule_match __attribute__((unused));
const struct stack_record *unused_stack_record __attribute__((unused));
const struct code_head *unused_code_head __attribute__((unused));
const struct label *unused_label __attribute__((unused));
const struct label_record *unused_label_record __attribute__((unused));
const struct thread_context *unused_thread_context __attribute__((unused));
const enum stack_end *unused_stack_end __attribute__((unused));
const enum record_type *unused_record_type __attribute__((unused));
const enum frame_bit *unused_frame_bit __attribute__((unused));
const enum stat *unused_stat __attribute__((unused));
const enum target_mode *unused_target_mode __attribute__((unused));
const enum unwind_mode *unused_unwind_mode __attribute__((unused));

const volatile bool include_idle;
const volatile bool skip_kernel_stack;

/* A sample, for timelines. */
struct timeline_event {
	u32 type;
	u32 cpu;
	u64 time; /* CLOCK_MONOTONIC, ns */
	u64 id;
	u64 weight; /* its period */
	u32 pid; /* thread group */
	u32 tid;
};

const struct timeline_event *unused_timeline_event __attribute__((unused));
const struct snapshot *unused_snapshot __attribute__((unused));

/* Takes a sample while a number of threads of the target run, 0 if they are not counted. */
static __always_inline void take(struct stack_scratch *scratch, u32 cpu, u32 running, u64 weight)
{
	struct count_value value = { .samples = 1, .weight = weight };
	struct stack_record *rec = &scratch->record;
	struct count_key key = {};

	if (by_thread)
		key.tid = rec->tid;
	if (by_cpu)
		key.cpu = cpu;
	if (running)
		value.elapsed = weight / running;
	else if (!timeline)
		rec->first = (struct stack_count){ key.tid, key.cpu, weight };
	key.id = stack_intern(scratch);
	if (timeline) {
		struct timeline_event event = {
			.type = RECORD_TIMELINE,
			.cpu = cpu,
			.time = rec->time ? rec->time : bpf_ktime_get_ns(),
			.id = key.id,
			.weight = weight,
			.pid = rec->pid,
			.tid = rec->tid,
		};

		event_send(&event, sizeof(event));
		return;
	}
	/*
	 * In a program with many paths, most stacks occur only once. The record counts that
	 * sample, so such a stack takes no entry in the map. With a weight of 0, it counts none,
	 * nor with running threads, for which it has no room.
	 */
	if (!scratch->sent || !rec->first.weight)
		count(&key, &value);
}

static __always_inline struct stack_scratch *snapshot_scratch(void)
{
	return stack_scratch(SCRATCH_SNAPSHOT);
}

static __always_inline void snapshot_take(struct stack_scratch *scratch, const struct snapshot *s)
{
	take(scratch, s->cpu, s->point, s->weight);
}

enum rule_limit {
	RULES_SLOWER = 8, /* rules that lower the rate of samples */
};

const enum rule_limit *unused_rule_limit __attribute__((unused));
const struct thinned *unused_thinned __attribute__((unused));

/*
 * The rules that lower the rate of samples, each alone, and the number of samples of which one is
 * taken. The first that matches counts.
 */
const volatile u64 rules_slower[RULES_SLOWER];
volatile u32 rules_one_in[RULES_SLOWER];

/* Samples that were not taken. The next one that is taken also has their weight. */
struct thinned {
	u64 samples;
	u64 weight;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, RULES_SLOWER);
	__type(key, u32);
	__type(value, struct thinned);
} rules_thinned SEC(".maps");

/*
 * The weight of a sample of a process that rules match, with the weight of those that were not
 * taken on this CPU, or 0 if it is not taken. So the sum of weights stays the same.
 */
static __always_inline u64 thin(u64 rules, u64 weight)
{
	struct thinned *left;
	u32 i;

#pragma unroll
	for (i = 0; i < RULES_SLOWER && rules_slower[i]; i++)
		if (rules & rules_slower[i])
			goto found;
	return weight;
found:
	left = bpf_map_lookup_elem(&rules_thinned, &i);
	if (!left || i >= RULES_SLOWER)
		return weight;
	weight += left->weight;
	if (++left->samples < rules_one_in[i]) {
		left->weight = weight;
		return 0;
	}
	left->samples = left->weight = 0;
	return weight;
}

static __always_inline int sample(struct bpf_perf_event_data *ctx, bool parallel)
{
	u32 cpu = bpf_get_smp_processor_id(), running = 0;
	struct task_struct *task = current_task();
	u64 weight = ctx->sample_period, surely = 0;
	enum rule_verdict verdict;
	struct stack_scratch *scratch;
	struct rule_match match;
	struct stack_record *rec;
	struct stats *stats;
	bool outside;

	/*
	 * Only this program changes these counters, and it does not interrupt itself. An atomic
	 * addition would stall until its cache line arrives.
	 */
	stats = cpu_stats();
	if (!stats)
		return 0;
	stats->n[STAT_RUNS]++;
	stats->n[STAT_PERIODS] += weight;
	if (task_is_idle(task) && !include_idle) {
		stats->n[STAT_IDLE_PERIODS] += weight;
		return 0;
	}
	outside = target == TARGET_ALL && task_is_outside(task);
	/* The counters above are compared with those of the perf events. */
	if (!gate_is_open() || !(outside || target_has(task)))
		return 0;
	/* Rules that include processes name none outside. */
	verdict = !outside	  ? rules_judge(task, &match, &surely)
		  : rules_include ? VERDICT_LEAVE
				  : VERDICT_MEASURE;
	if (verdict == VERDICT_LEAVE) {
		stats->n[STAT_EXCLUDED]++;
		stats->n[STAT_EXCLUDED_PERIODS] += weight;
		return 0;
	}
	/* The samples of a process that may be excluded later stand for no others. */
	if (verdict == VERDICT_MEASURE)
		weight = thin(surely, weight);
	if (!weight) {
		stats->n[STAT_THINNED]++;
		return 0;
	}
	scratch = stack_scratch(SCRATCH_SAMPLE);
	if (!scratch)
		return 0;
	rec = &scratch->record;
	if (parallel)
		running = running_threads(cpu);

	stats->n[STAT_SAMPLES]++;
	if (outside) {
		/* All are the same stack, without frames. */
		stack_begin(rec, NULL);
		__builtin_memcpy(rec->comm, "[outside]", sizeof("[outside]"));
		take(scratch, cpu, running, weight);
		return 0;
	}
	stack_begin(rec, task);
	if (verdict == VERDICT_OPEN)
		rec->match = match;
	task_comm(task, rec->comm);
	if (!skip_kernel_stack && !regs_in_user(ctx))
		walk_kernel(ctx, rec);
	if (!skip_user_stack && task_has_user_stack(task)) {
		walk_user(ctx, task, scratch);
		if (snapshots && scratch->walk.early &&
		    snapshot_send(SCRATCH_SAMPLE, running, weight))
			return 0;
	}
	take(scratch, cpu, running, weight);
	return 0;
}

SEC("perf_event")
int oncpu(struct bpf_perf_event_data *ctx)
{
	return sample(ctx, false);
}

SEC("perf_event")
int oncpu_parallel(struct bpf_perf_event_data *ctx)
{
	return sample(ctx, true);
}
