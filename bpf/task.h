/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Identity of the running task. A pid names nothing for long: the epoch tells
 * one process image from the next, so that equal addresses after exec or
 * after the pid was reused never meet an old stack.
 */
#ifndef FULGUR_TASK_H
#define FULGUR_TASK_H

#include "kernel.h"
#include <bpf/bpf_helpers.h>

/*
 * User space raises a process's entry here when something that the kernel
 * does not count as a new image changed the meaning of its addresses: an
 * executable mapping was replaced (dlclose and dlopen).
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, u32);
	__type(value, u32);
} remaps SEC(".maps");

/* Spares every sample the look-up while no process was remapped. */
volatile u32 any_remaps;

#define HASH_MULTIPLIER 0x9e3779b97f4a7c15ULL

static __always_inline u64 hash_step(u64 hash, u64 word)
{
	hash = (hash ^ word) * HASH_MULTIPLIER;
	return hash ^ (hash >> 29);
}

/* Names a process from one exec to the next. */
static __always_inline u64 task_image(struct task_struct *task)
{
	struct task_struct *leader = task->group_leader;

	return hash_step(hash_step(leader->start_boottime, leader->self_exec_id), task->tgid);
}

/* Names what the process's addresses mean. */
static __always_inline u64 task_epoch(struct task_struct *task)
{
	u64 epoch = task_image(task);
	u32 tgid = task->tgid;

	if (any_remaps) {
		u32 *n = bpf_map_lookup_elem(&remaps, &tgid);

		if (n)
			epoch = hash_step(epoch, *n);
	}
	return epoch;
}

/*
 * Kernel threads have no user stack, and io workers never ran the user code
 * that the registers saved at their creation point to.
 */
static __always_inline bool task_has_user_stack(struct task_struct *task)
{
	return !(task->flags & (PF_KTHREAD | PF_IO_WORKER | PF_USER_WORKER));
}

#endif
