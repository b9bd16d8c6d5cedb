/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Waits: the state in which a thread leaves its CPU, and the kernel half of its stack while it
 * is off the CPU. That half does not change until the thread runs again.
 */
#ifndef FULGUR_WAIT_H
#define FULGUR_WAIT_H

#include "kernel.h"
#include "orc.h"
#include "scratch.h"
#include "stack.h"
#include "task.h"
#include <bpf/bpf_helpers.h>

/* Whether sched_switch passes the state of the previous thread. */
const volatile bool switch_has_state;

/* States as bits, with their letters in ps(1). */
enum state_class {
	STATE_RUNNABLE = 1 << 0, /* R */
	STATE_SLEEPING = 1 << 1, /* S */
	STATE_DISK_SLEEP = 1 << 2, /* D */
	STATE_STOPPED = 1 << 3, /* T */
	STATE_TRACED = 1 << 4, /* t */
	STATE_PARKED = 1 << 5, /* P */
	STATE_IDLE = 1 << 6, /* I */
	STATE_DEAD = 1 << 7, /* X */
	STATE_OTHER = 1 << 8,
};

const enum state_class *unused_state_class __attribute__((unused));

/* include/linux/sched.h */
#define TASK_INTERRUPTIBLE 0x0001
#define TASK_UNINTERRUPTIBLE 0x0002
#define TASK_STOPPED 0x0004
#define TASK_TRACED 0x0008
#define TASK_PARKED 0x0040
#define TASK_DEAD 0x0080
#define TASK_IDLE 0x0402

/* A global function, or older verifiers follow its callers for each class. */
__noinline u32 class_of(u32 state)
{
	if (state == 0)
		return STATE_RUNNABLE;
	if (state & TASK_INTERRUPTIBLE)
		return STATE_SLEEPING;
	if ((state & TASK_IDLE) == TASK_IDLE)
		return STATE_IDLE;
	if (state & TASK_UNINTERRUPTIBLE)
		return STATE_DISK_SLEEP;
	if (state & TASK_STOPPED)
		return STATE_STOPPED;
	if (state & TASK_TRACED)
		return STATE_TRACED;
	if (state & TASK_PARKED)
		return STATE_PARKED;
	if (state & TASK_DEAD)
		return STATE_DEAD;
	return STATE_OTHER;
}

/* The class of the state in which prev leaves its CPU. ctx has the arguments of sched_switch. */
static __always_inline u32 class_of_switch(const unsigned long long *ctx, bool preempt,
					   struct task_struct *prev)
{
	if (preempt)
		return STATE_RUNNABLE;
	if (switch_has_state)
		return class_of(ctx[3]);
	return class_of(task_state(prev)); /* perhaps it is already being woken: STATE_OTHER */
}

/* Whether task, which is off its CPU, was not woken. */
static __always_inline bool task_sleeps(struct task_struct *task)
{
	u32 state = class_of(task_state(task));

	return state != STATE_RUNNABLE && state != STATE_OTHER; /* TASK_WAKING */
}

/*
 * The ID of the kernel half of the stack of task, which is not running. It is
 * the same for all threads that wait in the same place.
 */
static __always_inline u64 kernel_half(struct task_struct *task, struct stack_scratch *scratch)
{
	struct stack_record *rec = &scratch->record;

	stack_begin(rec, NULL);
#if defined(__TARGET_ARCH_x86)
	if (orc_walk(task, scratch))
		return stack_intern(scratch);
#endif
	rec->kernel_frames = stack_frames(bpf_get_task_stack(task, rec->frames, max_depth * 8, 0),
					  &rec->kernel_end);
	return stack_intern(scratch);
}

#endif
