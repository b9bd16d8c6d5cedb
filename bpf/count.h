/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Counts of interned stacks. There are two maps: programs write to the active
 * one while user space drains the other, after waiting for programs that were
 * running when the index flipped. Nothing is deleted from a map while programs
 * write to it: a recycled element would receive the increments of another key.
 *
 * An update may fail with -EBUSY in NMI context, and with -E2BIG in any
 * context. The sample then crosses the ring as a separate record.
 *
 * The family defines what is counted, and by which key.
 */
#ifndef FULGUR_COUNT_H
#define FULGUR_COUNT_H

#include "gate.h"
#include "kernel.h"
#include "loss.h"
#include "record.h"
#include "ring.h"
#include <bpf/bpf_helpers.h>

/*
 * The family defines the key, the value, and count_add(), which adds a value to another that other
 * CPUs update concurrently. Then it defines count_send() by COUNT_RECORD: it sends a single sample
 * that no map could take.
 */
struct count_key;
struct count_value;
static __always_inline void count_add(struct count_value *to, const struct count_value *add);
static __always_inline long count_send(const struct count_key *key, const struct count_value *add);

#define COUNT_RECORD                                                                               \
	struct event_record {                                                                      \
		u32 type;                                                                          \
		u32 pad;                                                                           \
		struct count_key key;                                                              \
		struct count_value value;                                                          \
	};                                                                                         \
	static __always_inline long count_send(const struct count_key *key,                        \
					       const struct count_value *add)                      \
	{                                                                                          \
		struct event_record event = {                                                      \
			.type = RECORD_EVENT,                                                      \
			.key = *key,                                                               \
			.value = *add,                                                             \
		};                                                                                 \
		return ring_send(&event, sizeof(event));                                           \
	}

/* Whether to count threads and CPUs separately. */
const volatile bool by_thread;
const volatile bool by_cpu;

volatile u32 active; /* index of the map that programs write */
u64 inserted[2]; /* insertions into each map, so that user space can flip in time */

struct counts {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct count_key);
	__type(value, struct count_value);
};

struct counts counts_0 SEC(".maps");
struct counts counts_1 SEC(".maps");

static __always_inline bool count_hit(void *counts, struct count_key *key,
				      const struct count_value *add)
{
	struct count_value *value = bpf_map_lookup_elem(counts, key);

	if (!value)
		return false;
	count_add(value, add);
	return true;
}

static __always_inline bool count_in(void *counts, u64 *keys, struct count_key *key,
				     const struct count_value *add)
{
	int err; /* before 5.12, helpers do not extend the sign */

	if (count_hit(counts, key, add))
		return true;
	err = bpf_map_update_elem(counts, key, add, BPF_NOEXIST);
	if (!err) {
		__sync_fetch_and_add(keys, 1);
		return true;
	}
	/* Another CPU inserted the key in between. */
	return err == -EEXIST && count_hit(counts, key, add);
}

static __always_inline void count(struct count_key *key, const struct count_value *add)
{
	bool counted;

	if (active == 0)
		counted = count_in(&counts_0, &inserted[0], key, add);
	else
		counted = count_in(&counts_1, &inserted[1], key, add);
	if (!counted)
		stat_add(count_send(key, add) ? STAT_LOST : STAT_EVENT, 1);
}

#endif
