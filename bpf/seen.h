/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What has been sent, so that it crosses the ring once: set-associative tables of IDs with racy
 * stores. An LRU map takes a lock that an NMI on the same CPU could wait for forever. A lost
 * store only sends a record again.
 */
#ifndef FULGUR_SEEN_H
#define FULGUR_SEEN_H

#include "kernel.h"
#include <bpf/bpf_helpers.h>

#define SEEN_WAYS 4
struct seen_set {
	u64 ids[SEEN_WAYS];
};

static __always_inline bool seen_has(const struct seen_set *set, u64 id)
{
	return set->ids[0] == id || set->ids[1] == id || set->ids[2] == id || set->ids[3] == id;
}

/* Adds an ID in place of another, chosen by bits that did not choose the set. */
static __always_inline void seen_add(struct seen_set *set, u64 id)
{
	set->ids[(id >> 60) % SEEN_WAYS] = id;
}

/* IDs of stacks. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 16384);
	__type(key, u32);
	__type(value, struct seen_set);
} seen SEC(".maps");

/*
 * Part of every ID. User space increments it after forgetting the stacks that
 * it received, so that each gets a new ID and is sent again.
 */
volatile u32 generation;

/* The number of sets minus one. The number is a power of two. */
const volatile u32 seen_mask = 16384 - 1;

/* The set that may have a stack's ID. */
static __always_inline struct seen_set *seen_stacks(u64 id)
{
	u32 index = id & seen_mask;

	return bpf_map_lookup_elem(&seen, &index);
}

#endif
