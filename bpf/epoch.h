/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Images of processes (task.h) whose addresses changed their meaning. */
#ifndef FULGUR_EPOCH_H
#define FULGUR_EPOCH_H

#include "task.h"
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

/* Names what the process's addresses mean. */
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
