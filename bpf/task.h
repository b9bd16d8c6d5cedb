/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Identity of the running task. A pid names nothing for long: the epoch tells
 * one process image from the next, so that equal addresses after exec or
 * after the pid was reused never meet an old stack.
 */
#ifndef FULGUR_TASK_H
#define FULGUR_TASK_H

#include "kernel.h"

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

/*
 * Kernel threads have no user stack, and io workers never ran the user code
 * that the registers saved at their creation point to.
 */
static __always_inline bool task_has_user_stack(struct task_struct *task)
{
	return !(task->flags & (PF_KTHREAD | PF_IO_WORKER | PF_USER_WORKER));
}

#endif
