//go:build ignore

// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Soft interrupts: the number and duration of handler runs by vector and stack. The
 * stack is the stack of the interrupted code, of the system call that raised the
 * interrupt, or of ksoftirqd.
 *
 * A CPU handles one soft interrupt at a time, so the start is stored per CPU, and
 * the programs share scratch memory. The stack is the same before and after the
 * handler. It is walked after the end is noted, so that the walk does not count.
 */

#include "count.h"
#include "event.h"
#include "kernel.h"
#include "target.h"
#include "unwind.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

/* The key of a count. tid and cpu are 0 if not distinguished. */
struct count_key {
	u64 id;
	u32 vector;
	u32 tid; /* of the interrupted thread */
	u32 cpu;
	u32 pad;
};

struct count_value {
	u64 times;
	u64 duration; /* ns */
};

static __always_inline void count_add(struct count_value *to, const struct count_value *add)
{
	__sync_fetch_and_add(&to->times, add->times);
	__sync_fetch_and_add(&to->duration, add->duration);
}

COUNT_RECORD

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* When the current soft interrupt of this CPU began, CLOCK_MONOTONIC in ns; 0: none. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} begun SEC(".maps");

SEC("tp_btf/softirq_entry")
int BPF_PROG(softirq_entry, unsigned int vector)
{
	u32 zero = 0;
	u64 *since = bpf_map_lookup_elem(&begun, &zero);

	if (since && gate_is_open())
		*since = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/softirq_exit")
int BPF_PROG(softirq_exit, unsigned int vector)
{
	u64 now = bpf_ktime_get_ns();
	struct task_struct *task = current_task();
	struct count_value value = { .times = 1 };
	struct count_key key = { .vector = vector };
	struct stack_scratch *scratch;
	struct stack_record *rec;
	u32 zero = 0;
	u64 *since = bpf_map_lookup_elem(&begun, &zero);

	if (!since || !*since || !gate_is_open())
		return 0;
	value.duration = now - *since;
	*since = 0;
	if (!target_has(task))
		return 0;
	scratch = stack_scratch(0);
	if (!scratch)
		return 0;
	rec = &scratch->record;
	stat_add(STAT_SAMPLES, 1);
	stack_begin(rec, task);
	bpf_get_current_comm(rec->comm, sizeof(rec->comm));
	walk_kernel(ctx, rec);
	if (!skip_user_stack && task_has_user_stack(task))
		walk_user(ctx, task, scratch);
	key.id = stack_intern(scratch);
	if (by_thread)
		key.tid = task_pid(task);
	if (by_cpu)
		key.cpu = bpf_get_smp_processor_id();
	count(&key, &value);
	return 0;
}
