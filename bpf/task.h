/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Tasks: the current one, and the fields of a task, on every kernel. Before
 * 5.11 the verifier does not know the type of the current task, so its fields
 * are copied rather than loaded.
 *
 * A pid is reused. The epoch distinguishes process images, so that equal
 * addresses after an exec or in another process with the same pid are never
 * mixed with an old stack.
 */
#ifndef FULGUR_TASK_H
#define FULGUR_TASK_H

#include "hash.h"
#include "kernel.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

/* Whether the kernel has a helper function, which the loader resolves. */
#define has_helper(name) bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_##name)

/* Whether a number in a task has the same size as in kernel.h. */
#define same_size(task, field) (bpf_core_field_size((task)->field) == sizeof((task)->field))

/*
 * A number in a task, of any size. Most have the size in kernel.h, and need one load. All other
 * code is in one place, since the verifier takes long to remove each piece that cannot run.
 */
#define task_number(task, field)                                                                   \
	(has_helper(get_current_task_btf) && same_size(task, field)                                \
		 ? (task)->field                                                                   \
		 : BPF_CORE_READ_BITFIELD_PROBED(task, field))

/* The same, for a task that the verifier does not know. */
#define copied_number(task, field)                                                                 \
	(same_size(task, field) ? BPF_CORE_READ(task, field)                                       \
				: BPF_CORE_READ_BITFIELD_PROBED(task, field))

/* A pointer in a task. */
#define task_pointer(task, field)                                                                  \
	(has_helper(get_current_task_btf) ? (task)->field : BPF_CORE_READ(task, field))

static __always_inline struct task_struct *current_task(void)
{
	if (has_helper(get_current_task_btf))
		return bpf_get_current_task_btf();
	return (void *)bpf_get_current_task();
}

static __always_inline struct task_struct *task_leader(struct task_struct *task)
{
	return task_pointer(task, group_leader);
}

/* Its start time. Together with its pid or tgid, this is unique. */
static __always_inline u64 task_start(struct task_struct *task)
{
	return task_number(task, start_boottime);
}

/*
 * fulgur's PID namespace, unless it is the initial one: its level, and its address in the kernel.
 * IDs of tasks are those in this namespace, as in user space; tasks outside of it have 0.
 */
const volatile u32 pid_level;
const volatile u64 pid_namespace;

/* A task that has exited in fulgur's PID namespace; see exited_pids. */
struct exited_pid {
	u64 start; /* of the task */
	u32 pid;
};

/*
 * Tasks that have exited, by their ID in the initial namespace. The kernel takes the other IDs
 * away before the task runs for the last time, and long before it is freed. Entries are not
 * deleted, since several programs need them when the task is freed. pidns.bpf.c adds them.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1); /* user space replaces the map */
	__type(key, u32);
	__type(value, struct exited_pid);
} exited_pids SEC(".maps");

/*
 * The ID of task in fulgur's PID namespace, or 0. The kernel's helper for this,
 * bpf_get_ns_current_pid_tgid(), fails for tasks in descendant namespaces.
 */
static __noinline u32 namespaced_pid(struct task_struct *task)
{
	struct pid *pid = BPF_CORE_READ(task, thread_pid);
	struct upid number = {};
	struct exited_pid *exited;
	u32 id;

	if (pid) {
		if (BPF_CORE_READ(pid, level) < pid_level)
			return 0;
		bpf_probe_read_kernel(&number, sizeof(number),
				      (void *)pid + bpf_core_field_offset(struct pid, numbers) +
					      pid_level * sizeof(number));
		return (u64)number.ns == pid_namespace ? number.nr : 0;
	}
	id = copied_number(task, pid);
	exited = bpf_map_lookup_elem(&exited_pids, &id);
	return exited && exited->start == copied_number(task, start_boottime) ? exited->pid : 0;
}

static __always_inline u32 task_pid(struct task_struct *task)
{
	return pid_level ? namespaced_pid(task) : task_number(task, pid);
}

/* The ID of its thread group. */
static __always_inline u32 task_tgid(struct task_struct *task)
{
	return pid_level ? namespaced_pid(task_leader(task)) : task_number(task, tgid);
}

/* Whether task is the first of its thread group. */
static __always_inline bool task_leads(struct task_struct *task)
{
	return task_number(task, pid) == task_number(task, tgid);
}

/* Whether task is the idle task of a CPU. */
static __always_inline bool task_is_idle(struct task_struct *task)
{
	return task_number(task, pid) == 0;
}

/* Whether task is outside of fulgur's PID namespace. */
static __always_inline bool task_is_outside(struct task_struct *task)
{
	return pid_level && !task_tgid(task);
}

static __always_inline u32 task_flags(struct task_struct *task)
{
	return task_number(task, flags);
}

/* Bits of include/linux/sched.h; 0 while it is running or runnable. */
static __always_inline u32 task_state(struct task_struct *task)
{
	struct task_struct___state *old = (void *)task;

	if (bpf_core_field_exists(task->__state))
		return task_number(task, __state);
	return bpf_core_field_exists(old->state) ? task_number(old, state) : 0;
}

/* Whether task is running, or being switched to or from. */
static __always_inline bool task_on_cpu(struct task_struct *task)
{
	return task_number(task, on_cpu);
}

#if defined(__TARGET_ARCH_x86)
/* For kernels without bpf_task_pt_regs(), and without KASAN, which doubles the size. */
#define THREAD_SIZE (16 * 1024)
#endif

/* The registers of task in user space, which are at the top of its kernel stack. */
static __always_inline struct pt_regs *task_regs(struct task_struct *task)
{
#if defined(__TARGET_ARCH_x86)
	if (!has_helper(task_pt_regs))
		return BPF_CORE_READ(task, stack) + THREAD_SIZE -
		       bpf_core_type_size(struct pt_regs);
#endif
	return (struct pt_regs *)bpf_task_pt_regs(task);
}

/* The value of a register. */
#define regs_read(regs, name) (has_helper(task_pt_regs) ? (regs)->name : BPF_CORE_READ(regs, name))
#if defined(__TARGET_ARCH_x86)
#define REGS_PC(regs) regs_read(regs, ip)
#define REGS_SP(regs) regs_read(regs, sp)
#define REGS_FP(regs) regs_read(regs, bp)
#else
#define REGS_PC(regs) regs_read(regs, pc)
#define REGS_SP(regs) regs_read(regs, sp)
#define REGS_FP(regs) regs_read(regs, regs[29])
#endif

/* Whether the current task is in a system call of the 32-bit interface. */
static __always_inline bool task_in_32_bit_call(struct task_struct *task)
{
#if defined(__TARGET_ARCH_x86)
	return task_number(task, thread_info.status) & TS_COMPAT;
#else
	return regs_read(task_regs(task), pstate) & PSR_MODE32_BIT;
#endif
}

static __always_inline void task_comm(struct task_struct *task, u8 comm[16])
{
	if (has_helper(get_current_task_btf)) {
		/* Ten times as fast as bpf_get_current_comm. */
		((u64 *)comm)[0] = ((const u64 *)task->comm)[0];
		((u64 *)comm)[1] = ((const u64 *)task->comm)[1];
	} else {
		bpf_core_read(comm, 16, &task->comm);
	}
}

/*
 * The user-space thread pointer of task, as the kernel last saved it. A thread sets it when
 * it begins, and does not change it.
 */
static __always_inline u64 task_thread_pointer(struct task_struct *task)
{
#if defined(__TARGET_ARCH_x86)
	return task_number(task, thread.fsbase);
#else
	return task_number(task, thread.uw.tp_value);
#endif
}

/*
 * The ID of its cgroup in the version 2 hierarchy, the inode number of the
 * cgroup's directory. A task keeps its cgroup until it is freed.
 */
static __always_inline u64 task_cgroup(struct task_struct *task)
{
	if (has_helper(get_current_task_btf))
		return task->cgroups->dfl_cgrp->kn->id;
	return BPF_CORE_READ(task, cgroups, dfl_cgrp, kn, id);
}

/* Identifies a process from one exec to the next. */
static __always_inline u64 task_image(struct task_struct *task)
{
	struct task_struct *leader = task_leader(task);

	return hash_step(hash_step(task_start(leader), task_number(leader, self_exec_id)),
			 task_tgid(task));
}

/*
 * The start of the process of task.
 *
 * This copies pointers rather than loading them, since the verifier takes milliseconds for
 * each instruction that loads a pointer from a task: it searches all types of the kernel for
 * a name, since Linux 6.2. The copies take longer in each run of a program.
 */
static __always_inline u64 process_start(struct task_struct *task)
{
	struct task_struct *leader = BPF_CORE_READ(task, group_leader);

	return copied_number(leader, start_boottime);
}

/* The same as task_image(), for programs that run rarely; see process_start(). */
static __always_inline u64 process_image(struct task_struct *task)
{
	struct task_struct *leader = BPF_CORE_READ(task, group_leader);

	return hash_step(hash_step(copied_number(leader, start_boottime),
				   copied_number(leader, self_exec_id)),
			 task_tgid(task));
}

/*
 * Kernel threads have no user stack. I/O workers never ran the user code to
 * which the registers saved at their creation point.
 */
static __always_inline bool task_has_user_stack(struct task_struct *task)
{
	return !(task_flags(task) & (PF_KTHREAD | PF_IO_WORKER | PF_USER_WORKER));
}

#endif
