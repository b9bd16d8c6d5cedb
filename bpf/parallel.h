/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The number of the target's threads that run at a moment: those that the CPUs are running. The
 * kernel itself knows them, so there is no count to keep between samples, which could be wrong
 * after threads began, ended or moved while nobody looked.
 *
 * Other CPUs switch threads meanwhile. In interrupts and NMIs, RCU keeps the task that another CPU
 * was running, so it is not freed while its fields are read.
 */
#ifndef FULGUR_PARALLEL_H
#define FULGUR_PARALLEL_H

#include "kernel.h"
#include "target.h"
#include "task.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

/* How many CPUs there may be. */
const volatile u32 possible_cpus = 1;

/* The address of each CPU's run queue, or 0 before the CPU is first online. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} run_queues SEC(".maps");

/*
 * Notes the run queue of the CPU on which it runs. User space runs it once on each CPU. Not all
 * kernels have the symbols of variables, so this starts from the current task.
 */
SEC("raw_tp")
int find_run_queue(void *ctx)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	u32 cpu = bpf_get_smp_processor_id();
	struct rq *rq;
	u64 *found;

	found = bpf_map_lookup_elem(&run_queues, &cpu);
	if (!found || !bpf_core_field_exists(task->se.cfs_rq))
		return 0;
	rq = BPF_CORE_READ(task, se.cfs_rq, rq);
	*found = BPF_CORE_READ(rq, curr) == task ? (u64)rq : 0;
	return 0;
}

static __always_inline bool target_has_copied_cgroup(struct task_struct *task)
{
	struct cgroup_subsys_state *at = (void *)BPF_CORE_READ(task, cgroups, dfl_cgrp) +
					 bpf_core_field_offset(struct cgroup, self);
	int i;

	for (i = 0; i < MAX_CGROUP_DEPTH && at; i++) {
		if (BPF_CORE_READ(at, cgroup, kn, id) == target_cgroup_id)
			return true;
		at = BPF_CORE_READ(at, parent);
	}
	return false;
}

/* The same as target_has_other(), for a task that the verifier does not know. */
static __always_inline bool target_has_copied(struct task_struct *task)
{
	struct task_struct *of = task;
	u32 id;

	switch (target) {
	case TARGET_ALL:
		return true; /* and those outside, which are samples, too */
	case TARGET_CGROUP:
		return target_has_copied_cgroup(task);
	case TARGET_PROCESSES:
		of = BPF_CORE_READ(task, group_leader);
	}
	id = pid_level ? namespaced_pid(of) : copied_number(of, pid);
	return target_owns(id, copied_number(of, start_boottime));
}

/* Whether a CPU runs a thread of the target. A global function, which the verifier checks once. */
__noinline u32 cpu_runs_target(u32 cpu)
{
	const u64 *found = bpf_map_lookup_elem(&run_queues, &cpu);
	struct task_struct *task;

	if (!found || !*found)
		return 0;
	task = BPF_CORE_READ((struct rq *)*found, curr);
	return copied_number(task, pid) && target_has_copied(task); /* 0 is idle */
}

/*
 * The number of the target's threads that run, with the current one, which is one of them, on this
 * CPU. In an NMI during a switch, the run queue may already have the next one.
 */
static __always_inline u32 running_threads(u32 this_cpu)
{
	u32 running = 1, cpu;

	for (cpu = 0; cpu < possible_cpus; cpu++)
		if (cpu != this_cpu)
			running += cpu_runs_target(cpu);
	return running;
}

#endif
