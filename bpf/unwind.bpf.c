//go:build ignore

// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Not a probe: the maps that all walkers share, and the programs that
 * update their processes. Only these programs compute images; user space
 * does not.
 */

#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "label_maps.h"
#include "task.h"
#include "runtime_maps.h"
#include "unwind_maps.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Makes bpf2go generate Go types. */
const struct unwind_rule *unused_unwind_rule __attribute__((unused));
const struct unwind_mapping *unused_unwind_mapping __attribute__((unused));
const struct unwind_process *unused_unwind_process __attribute__((unused));
const struct unwind_page_state *unused_unwind_page_state __attribute__((unused));
const struct unwind_asking *unused_unwind_asking __attribute__((unused));
const struct unwind_request *unused_unwind_request __attribute__((unused));
const struct unwind_task *unused_unwind_task __attribute__((unused));
const struct label_process *unused_label_process __attribute__((unused));
const enum label_kind *unused_label_kind __attribute__((unused));
const struct runtime_process *unused_runtime_process __attribute__((unused));
const struct python_process *unused_python_process __attribute__((unused));
const struct v8_process *unused_v8_process __attribute__((unused));
const struct hotspot_heap *unused_hotspot_heap __attribute__((unused));
const struct hotspot_process *unused_hotspot_process __attribute__((unused));
const enum hotspot_bytes *unused_hotspot_bytes __attribute__((unused));
const enum runtime_kind *unused_runtime_kind __attribute__((unused));
const struct runtime_program *unused_runtime_program __attribute__((unused));
const struct runtime_range *unused_runtime_range __attribute__((unused));
const struct runtime_file *unused_runtime_file __attribute__((unused));
const enum runtime_program_limit *unused_runtime_program_limit __attribute__((unused));
const enum python_thread *unused_python_thread __attribute__((unused));
const enum python_entry *unused_python_entry __attribute__((unused));
const struct ruby_process *unused_ruby_process __attribute__((unused));
const enum runtime_local_model *unused_runtime_local_model __attribute__((unused));
const enum unwind_kind *unused_unwind_kind __attribute__((unused));
const enum unwind_chain *unused_unwind_chain __attribute__((unused));
const enum unwind_slot *unused_unwind_slot __attribute__((unused));
const enum unwind_rule_index *unused_unwind_rule_index __attribute__((unused));
const enum unwind_shift *unused_unwind_shift __attribute__((unused));
const enum unwind_rows *unused_unwind_rows __attribute__((unused));
const enum unwind_layout_bits *unused_unwind_layout_bits __attribute__((unused));
const enum hash_constant *unused_hash_constant __attribute__((unused));
const enum unwind_request_type *unused_unwind_request_type __attribute__((unused));

/* A process that runs a program; see task_image(). */
struct process {
	u32 id;
	u64 image;
};

/* Gives a child its parent's runtimes. */
static __always_inline void runtime_fork(const struct process *parent, const struct process *child)
{
	struct runtime_process *known = bpf_map_lookup_elem(&runtime_processes, &parent->id), copy;

	if (!known || known->image != parent->image)
		return;
	__builtin_memcpy(&copy, known, sizeof(copy));
	copy.image = child->image;
	bpf_map_update_elem(&runtime_processes, &child->id, &copy, BPF_ANY);
}

/* Gives a child its parent's labels. */
static __always_inline void label_fork(const struct process *parent, const struct process *child)
{
	struct label_process *known = bpf_map_lookup_elem(&label_processes, &parent->id), copy;

	if (!known || known->image != parent->image)
		return;
	__builtin_memcpy(&copy, known, sizeof(copy));
	copy.image = child->image;
	bpf_map_update_elem(&label_processes, &child->id, &copy, BPF_ANY);
}

/*
 * A child starts with its parent's address space, or a copy of it. Runs in the
 * context of the parent, before the child runs. Not at sched_process_fork: since Linux
 * 7.0, a program at that tracepoint can be preempted, and the kernel then skips it for
 * other forks on the CPU. Here, the kernel holds a lock of the scheduler.
 */
SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(unwind_fork, struct task_struct *child_task)
{
	struct task_struct *parent_task = current_task();
	struct unwind_process *known, copy;
	struct process parent, child;

	if (!task_leads(child_task))
		return 0;
	parent.id = task_tgid(parent_task);
	parent.image = process_image(parent_task);
	child.id = task_tgid(child_task);
	child.image = process_image(child_task);
	runtime_fork(&parent, &child);
	label_fork(&parent, &child);
	known = bpf_map_lookup_elem(&unwind_processes, &parent.id);
	if (!known)
		return 0;
	copy.layout = *(volatile u64 *)&known->layout;
	copy.seal = *(volatile u64 *)&known->seal;
	if (copy.seal != unwind_seal(parent.image, copy.layout))
		return 0;
	copy.seal = unwind_seal(child.image, copy.layout);
	bpf_map_update_elem(&unwind_processes, &child.id, &copy, BPF_ANY);
	return 0;
}

/* Frees the entry, unless the PID already has a new owner. */
SEC("tp_btf/sched_process_free")
int BPF_PROG(unwind_free, struct task_struct *task)
{
	struct runtime_process *runtime;
	struct label_process *labels;
	struct unwind_process *known;
	u32 id = task_pid(task);
	u64 image;

	if (!task_leads(task))
		return 0;
	image = process_image(task);
	known = bpf_map_lookup_elem(&unwind_processes, &id);
	if (known && known->seal == unwind_seal(image, known->layout))
		bpf_map_delete_elem(&unwind_processes, &id);
	runtime = bpf_map_lookup_elem(&runtime_processes, &id);
	if (runtime && runtime->image == image)
		bpf_map_delete_elem(&runtime_processes, &id);
	labels = bpf_map_lookup_elem(&label_processes, &id);
	if (labels && labels->image == image)
		bpf_map_delete_elem(&label_processes, &id);
	return 0;
}

/* Yields the image of every process. */
SEC("iter/task")
int unwind_tasks(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct unwind_task found = {};

	if (!task || !task_leads(task) || !task_has_user_stack(task))
		return 0;
	found.tgid = task_tgid(task);
	found.image = process_image(task);
	bpf_seq_write(ctx->meta->seq, &found, sizeof(found));
	return 0;
}
