/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The target set: the tasks to measure. It is kept here rather than in the
 * attachments of the probes, so that threads and processes belong to it from
 * their first instruction to their last, however short-lived, and for every
 * kind of probe.
 *
 * The fork program runs in the context of the parent, and the free program
 * after an RCU grace period. Probes look up the set on any CPU and in any
 * context, including NMI. A task is freed later than its pid, which may have
 * been reused by then. So the set holds the start time of the owner.
 */
#ifndef FULGUR_TARGET_H
#define FULGUR_TARGET_H

#include "kernel.h"
#include "loss.h"
#include "record.h"
#include "task.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

enum target_mode {
	TARGET_ALL = 0, /* in fulgur's PID namespace */
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
	__type(value, u64); /* the owner's start_boottime; 0: the first task seen */
} target_ids SEC(".maps");

/*
 * The ID of the only member, if the set never gets another; else 0. It saves a lookup. User
 * space sets it after filling the set.
 */
volatile u32 target_only;
u64 target_only_start; /* as in target_ids */
#define TARGET_GONE (~(u64)0)

/* Whether the task or thread group with this ID and start is in the set. */
static __always_inline bool target_owns(u32 id, u64 start)
{
	u32 only = target_only;
	u64 *owner = &target_only_start;

	if (only) {
		if (id != only)
			return false;
	} else {
		owner = bpf_map_lookup_elem(&target_ids, &id);
		if (!owner)
			return false;
	}
	if (*owner == 0)
		*owner = start; /* several CPUs may, and then store the same */
	return *owner == start;
}

static __always_inline bool target_owns_process(struct task_struct *task)
{
	return target_owns(task_tgid(task), task_start(task_leader(task)));
}

/* Whether task is in the set, if there is one. */
static __always_inline bool target_lists(struct task_struct *task)
{
	switch (target) {
	case TARGET_PROCESSES:
		return target_owns_process(task);
	case TARGET_THREADS:
		return target_owns(task_pid(task), task_start(task));
	}
	return !task_is_outside(task);
}

/* Whether task, which is current, belongs to the target. */
static __always_inline bool target_has(struct task_struct *task)
{
	if (target == TARGET_CGROUP)
		return !task_is_outside(task) &&
		       bpf_current_task_under_cgroup(&target_cgroup, 0) == 1;
	return target_lists(task);
}

/* The ID of the cgroup in target_cgroup. */
const volatile u64 target_cgroup_id;

/* How many ancestors of a task's cgroup to check. */
#define MAX_CGROUP_DEPTH 64

static __always_inline bool target_has_in_cgroup(struct task_struct *task)
{
	struct cgroup_subsys_state *at = &task->cgroups->dfl_cgrp->self;
	int i;

	for (i = 0; i < MAX_CGROUP_DEPTH && at; i++) {
		if (at->cgroup->kn->id == target_cgroup_id)
			return true;
		at = at->parent;
	}
	return false;
}

/*
 * Whether task, which need not be current, belongs to the target. Unlike
 * target_has(), it is slow, and sleepable programs can call it.
 */
static __always_inline bool target_has_other(struct task_struct *task)
{
	if (target == TARGET_CGROUP)
		return !task_is_outside(task) && target_has_in_cgroup(task);
	return target_lists(task);
}

/*
 * Attached only if children belong to the target too. Runs in the context of the
 * parent, before the child runs; see unwind_fork().
 */
SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(target_fork, struct task_struct *child)
{
	struct task_struct *parent = current_task();
	u64 start = task_start(child);
	u32 id = task_tgid(child);

	if (task_leads(child) && target_owns(task_tgid(parent), process_start(parent)) &&
	    bpf_map_update_elem(&target_ids, &id, &start, BPF_ANY))
		stat_add(STAT_UNTRACKED, 1);
	return 0;
}

/*
 * Frees the entry. The exit would be too early: since Linux 6.16, it is reported before the
 * address space is torn down, which may take a tenth of a short life.
 */
SEC("tp_btf/sched_process_free")
int BPF_PROG(target_free, struct task_struct *task)
{
	u32 id = task_pid(task);

	if ((target == TARGET_THREADS || task_leads(task)) && target_owns(id, task_start(task))) {
		bpf_map_delete_elem(&target_ids, &id);
		target_only_start = TARGET_GONE; /* even if target_only is not set yet */
	}
	return 0;
}

#endif
