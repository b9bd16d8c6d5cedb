/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Epochs of process images (task.h) whose addresses changed meaning. */
#ifndef FULGUR_EPOCH_H
#define FULGUR_EPOCH_H

#include "hash.h"
#include "kernel.h"
#include "task.h"
#include <bpf/bpf_helpers.h>

/*
 * User space increments a process's entry when its addresses change meaning
 * without a new image in the kernel's view: when an executable mapping is
 * replaced (dlclose and dlopen).
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, u32);
	__type(value, u32);
} remaps SEC(".maps");

/* Avoids the lookup in every sample while no process was remapped. */
volatile u32 any_remaps;

/* The image of a task with this epoch. Without remaps, they are equal. */
static __always_inline u64 epoch_image(struct task_struct *task, u64 epoch)
{
	return any_remaps ? task_image(task) : epoch;
}

/* Identifies the meaning of the process's addresses. */
static __always_inline u64 task_epoch(struct task_struct *task)
{
	u64 epoch = task_image(task);
	u32 tgid = task_tgid(task);

	if (any_remaps) {
		u32 *n = bpf_map_lookup_elem(&remaps, &tgid);

		if (n)
			epoch = hash_step(epoch, *n);
	}
	return epoch;
}

#endif
