/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The target set: which tasks a probe is for. It is kept here, not in the
 * probes' attachments, so that threads and processes belong to it from their
 * first instruction, however short they live, and for every kind of probe.
 *
 * The fork and exit programs run in the context of the task concerned, while
 * probes look the set up on any CPU and in any context, NMI included; only the
 * programs and user space change it.
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

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, u32);
	__type(value, u8);
} target_ids SEC(".maps");

/* Whether task, which is current, belongs to the target. */
static __always_inline bool target_has(struct task_struct *task)
{
	u32 id;

	switch (target) {
	case TARGET_CGROUP:
		return bpf_current_task_under_cgroup(&target_cgroup, 0) == 1;
	case TARGET_PROCESSES:
		id = task->tgid;
		return bpf_map_lookup_elem(&target_ids, &id);
	case TARGET_THREADS:
		id = task->pid;
		return bpf_map_lookup_elem(&target_ids, &id);
	}
	return true;
}

/* Attached only if children belong to the target, too. */
SEC("tp_btf/sched_process_fork")
int BPF_PROG(target_fork, struct task_struct *parent, struct task_struct *child)
{
	u32 from = parent->tgid, to = child->tgid;
	u8 one = 1;

	if (from != to && bpf_map_lookup_elem(&target_ids, &from) &&
	    bpf_map_update_elem(&target_ids, &to, &one, BPF_ANY))
		stat_add(STAT_UNTRACKED);
	return 0;
}

/* A pid that is free again must not bring its next owner into the target. */
SEC("tp_btf/sched_process_exit")
int BPF_PROG(target_exit, struct task_struct *task)
{
	u32 id = target == TARGET_THREADS ? task->pid : task->tgid;

	if (target == TARGET_THREADS || task->signal->live.counter == 0)
		bpf_map_delete_elem(&target_ids, &id);
	return 0;
}

#endif
