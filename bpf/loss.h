/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Counters of samples and losses. They are per CPU, but stat_add() still updates
 * them atomically: an NMI between a plain load and store would lose its own
 * increment.
 */
#ifndef FULGUR_LOSS_H
#define FULGUR_LOSS_H

#include "kernel.h"
#include "record.h"
#include <bpf/bpf_helpers.h>

struct stats {
	u64 n[STAT_MAX];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct stats);
} stats SEC(".maps");

/* The counters of this CPU. */
static __always_inline struct stats *cpu_stats(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&stats, &zero);
}

static __always_inline void stat_add(enum stat index, u64 add)
{
	struct stats *s = cpu_stats();

	if (s)
		__sync_fetch_and_add(&s->n[index], add);
}

#endif
