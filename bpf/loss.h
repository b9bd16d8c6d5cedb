/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Counters of samples and losses. They are per CPU, but still updated
 * atomically: an NMI between a plain load and store would lose its own
 * increment.
 */
#ifndef FULGUR_LOSS_H
#define FULGUR_LOSS_H

#include "record.h"
#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, STAT_MAX);
	__type(key, u32);
	__type(value, u64);
} stats SEC(".maps");

static __always_inline void stat_add(u32 index, u64 add)
{
	u64 *n = bpf_map_lookup_elem(&stats, &index);

	if (n)
		__sync_fetch_and_add(n, add);
}

#endif
