/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The target set: which tasks a probe is for. Probes that are attached to the
 * target's tasks alone (perf events) run with TARGET_ALL.
 */
#ifndef FULGUR_TARGET_H
#define FULGUR_TARGET_H

#include "kernel.h"
#include <bpf/bpf_helpers.h>

enum target_mode {
	TARGET_ALL = 0,
	TARGET_CGROUP = 1,
};

const volatile u32 target; /* enum target_mode */

struct {
	__uint(type, BPF_MAP_TYPE_CGROUP_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u32);
} target_cgroup SEC(".maps");

/* Descendants of the cgroup belong to it, as they do for the kernel. */
static __always_inline bool target_has_current(void)
{
	if (target == TARGET_CGROUP)
		return bpf_current_task_under_cgroup(&target_cgroup, 0) == 1;
	return true;
}

#endif
