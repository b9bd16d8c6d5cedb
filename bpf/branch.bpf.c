//go:build ignore

// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Branch records: each overflow of a perf event sends the branches before it
 * to user space, as recorded by the PMU. User space selects the branches in
 * the event (branch_sample_type); this program only drops samples of tasks
 * outside the target.
 *
 * PMUs interrupt by NMI, where reserving ring space fails if the ring's lock
 * is held, by the interrupted code or another CPU. So every CPU has its own
 * ring.
 */

#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include "loss.h"
#include "target.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* The maximum number of records in a sample of any PMU. */
#define MAX_BRANCHES 64

/* struct perf_branch_entry, with its bit fields as a word. */
struct branch_entry {
	u64 from;
	u64 to;
	u64 flags;
};

/* A sample without its entries. */
struct branch_head {
	u64 time; /* CLOCK_MONOTONIC, ns */
	u32 pid; /* thread group */
	u32 pad;
};

/* Only the used prefix of entries, newest first, crosses the ring. */
struct branch_record {
	struct branch_head head;
	struct branch_entry entries[MAX_BRANCHES];
};

/* Makes bpf2go generate Go types. */
const struct branch_head *unused_branch_head __attribute__((unused));

struct ring {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 256 * 1024);
};

/* One for each CPU online at the start; later CPUs share them. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, u32);
	__array(values, struct ring);
} rings SEC(".maps");

const volatile u32 ring_count = 1; /* entries of rings */

/* The event records branches in the kernel, which kernel threads run, too. */
const volatile bool kernel_branches = false;

/* Half of a ring's size in bytes: the fill level that wakes the reader. */
const volatile u64 ring_wakeup = 128 * 1024;

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct branch_record);
} branch_scratch SEC(".maps");

static __always_inline long send(struct branch_record *rec, u64 size)
{
	u32 index = bpf_get_smp_processor_id() % ring_count;
	void *ring = bpf_map_lookup_elem(&rings, &index);
	u64 flags = BPF_RB_NO_WAKEUP;

	if (!ring)
		return -1;
	if (bpf_ringbuf_query(ring, BPF_RB_AVAIL_DATA) > ring_wakeup)
		flags = BPF_RB_FORCE_WAKEUP;
	return bpf_ringbuf_output(ring, rec, size, flags);
}

SEC("perf_event")
int branch(struct bpf_perf_event_data *ctx)
{
	struct task_struct *task = current_task();
	u64 size = __builtin_offsetof(struct branch_record, entries);
	struct branch_record *rec;
	u32 zero = 0;
	long bytes;

	stat_add(STAT_RUNS, 1);
	stat_add(STAT_PERIODS, ctx->sample_period);
	/* Leftover branches of other tasks would be attributed to this one. */
	if (!kernel_branches && task_flags(task) & PF_KTHREAD)
		return 0;
	if (!target_has(task))
		return 0;
	rec = bpf_map_lookup_elem(&branch_scratch, &zero);
	if (!rec)
		return 0;

	stat_add(STAT_SAMPLES, 1);
	bytes = bpf_read_branch_records(ctx, rec->entries, sizeof(rec->entries), 0);
	if (bytes <= 0) {
		stat_add(STAT_EMPTY, 1);
		return 0;
	}
	rec->head.time = bpf_ktime_get_ns();
	rec->head.pid = task_tgid(task);
	size += bytes;
	barrier_var(size); /* without this, the verifier of 6.1 loses the bound */
	if (size > sizeof(*rec) || send(rec, size))
		stat_add(STAT_LOST, 1);
	return 0;
}
