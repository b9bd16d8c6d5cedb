/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The target set: which tasks a probe is for. It is kept here, not in the
 * probes' attachments, so that threads and processes belong to it from their
 * first instruction, however short they live, and for every kind of probe.
 *
 * The programs here change it, and user space at the start. Probes look it up
 * on any CPU and in any context, NMI included.
 */
#ifndef FULGUR_TARGET_H
#define FULGUR_TARGET_H

#include "loss.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

enum target_mode {
	TARGET_ALL = 0,
	TARGET_CGROUP = 1, /* target_cgroup and the groups below it */
	TARGET_PROCESSES = 2, /* thread groups in target_ids */
	TARGET_THREADS = 3, /* threads in target_ids */
};

const volatile u32 target; /* enum target_mode */

struct {
	__uint(type, BPF_MAP_TYPE_CGROUP_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u32);
} target_cgroup SEC(".maps");

/*
 * When the task with an id began (start_boottime), so that an id's next owner
 * is no target; 0, which user space puts for the tasks it was given, stands
 * for whoever has the id.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, u32);
	__type(value, u64);
} target_ids SEC(".maps");

static __always_inline bool target_lists(u32 id, u64 start)
{
	u64 *listed = bpf_map_lookup_elem(&target_ids, &id);

	return listed && (*listed == 0 || *listed == start);
}

/* Whether task, which is current, belongs to the target. */
static __always_inline bool target_has(struct task_struct *task)
{
	switch (target) {
	case TARGET_CGROUP:
		return bpf_current_task_under_cgroup(&target_cgroup, 0) == 1;
	case TARGET_PROCESSES:
		return target_lists(task->tgid, task->group_leader->start_boottime);
	case TARGET_THREADS:
		return target_lists(task->pid, task->start_boottime);
	}
	return true;
}

/* Attached only if children belong to the target, too. */
SEC("tp_btf/sched_process_fork")
int BPF_PROG(target_fork, struct task_struct *parent, struct task_struct *child)
{
	u32 from = parent->tgid, to = child->tgid;
	u64 start = child->start_boottime;

	if (from != to && target_lists(from, parent->group_leader->start_boottime) &&
	    bpf_map_update_elem(&target_ids, &to, &start, BPF_ANY))
		stat_add(STAT_UNTRACKED, 1);
	return 0;
}

/*
 * A task is let go of when nothing is left of it, not when it begins to exit:
 * tearing down a big address space is its time, too. By then its id may be
 * another's.
 */
SEC("tp_btf/sched_process_free")
int BPF_PROG(target_free, struct task_struct *task)
{
	u32 id = task->pid, process = task->tgid;

	if ((target == TARGET_THREADS || id == process) && target_lists(id, task->start_boottime))
		bpf_map_delete_elem(&target_ids, &id);
	return 0;
}

#endif
