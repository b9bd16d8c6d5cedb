//go:build ignore

// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Not a probe: what the programs need to use the IDs of fulgur's PID namespace; see task.h. User
 * space loads it only outside the initial PID namespace.
 */

#include "kernel.h"
#include "task.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* The namespace of the process that ran pidns_find. */
volatile u32 found_level;
volatile u64 found_address;

/* User space runs this once, before it loads other programs. */
SEC("raw_tp")
int pidns_find(void *ctx)
{
	struct pid *pid = BPF_CORE_READ(current_task(), thread_pid);
	struct upid number = {};

	found_level = BPF_CORE_READ(pid, level);
	bpf_probe_read_kernel(&number, sizeof(number),
			      (void *)pid + bpf_core_field_offset(struct pid, numbers) +
				      found_level * sizeof(number));
	found_address = (u64)number.ns;
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(pidns_exit, struct task_struct *task)
{
	struct exited_pid exited = { .start = task_start(task), .pid = task_pid(task) };
	u32 id = task_number(task, pid);

	if (exited.pid)
		bpf_map_update_elem(&exited_pids, &id, &exited, BPF_ANY);
	return 0;
}
