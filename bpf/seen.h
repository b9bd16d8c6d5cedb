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

#endif
