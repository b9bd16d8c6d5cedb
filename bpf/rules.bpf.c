//go:build ignore

// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Not a probe: the tables of rules, which all probes share, and the programs that note which
 * program a process runs; see rules.h.
 */

#include "kernel.h"
#include "rules.h"
#include "task.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Makes bpf2go generate Go types. */
const struct rule_process *unused_rule_process __attribute__((unused));
const struct rule_task *unused_rule_task __attribute__((unused));

/* What rules need to know of a process. */
struct rule_task {
	u64 image;
	u64 cgroup;
	u64 program;
	u32 tgid;
	u32 pad;
};

static __always_inline void note_program(struct task_struct *leader, u64 program, u64 flags)
{
	struct rule_process noted = { .start = task_start(leader), .program = program };
	u32 id = task_number(leader, tgid);

	/* If there is no room, the end of the process has no program. */
	if (program)
		bpf_map_update_elem(&rules_processes, &id, &noted, flags);
}

/* Runs in the context of the parent, before the child runs; see unwind_fork(). */
SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(rules_fork, struct task_struct *child)
{
	if (task_leads(child))
		note_program(child, rules_program(current_task()), BPF_ANY);
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(rules_exec, struct task_struct *task)
{
	note_program(task, program_key(task), BPF_ANY);
	return 0;
}

/* Frees the entry, unless the ID already has a new owner. */
SEC("tp_btf/sched_process_free")
int BPF_PROG(rules_free, struct task_struct *task)
{
	struct rule_process *known;
	u32 id = task_number(task, tgid);

	known = task_leads(task) ? bpf_map_lookup_elem(&rules_processes, &id) : NULL;
	if (known && known->start == task_start(task))
		bpf_map_delete_elem(&rules_processes, &id);
	return 0;
}

/* Notes the programs of all processes, and yields the processes. */
SEC("iter/task")
int rules_tasks(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct rule_task found = {};

	if (!task || !task_leads(task) || !task_has_user_stack(task))
		return 0;
	found.image = process_image(task);
	found.cgroup = task_cgroup(task);
	found.program = program_key(task);
	found.tgid = task_tgid(task);
	note_program(task, found.program, BPF_NOEXIST);
	if (found.tgid)
		bpf_seq_write(ctx->meta->seq, &found, sizeof(found));
	return 0;
}
