/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Distributions of times. Each octave has 8 slots, so a slot is at most an eighth of its times
 * wide: 64 to 71 ns, 72 to 79 ns. Times below 16 ns have a slot each.
 *
 * Several CPUs may add to a histogram at the same time, and programs may be interrupted by others
 * that add to it.
 */
#ifndef FULGUR_HISTOGRAM_H
#define FULGUR_HISTOGRAM_H

#include "kernel.h"
#ifdef __bpf__
#include <bpf/bpf_helpers.h>
#endif

enum histogram_limits {
	HISTOGRAM_SHIFT = 3, /* log2 of the slots of an octave */
	HISTOGRAM_OCTAVE = 1 << HISTOGRAM_SHIFT,
	HISTOGRAM_SLOTS = (64 - HISTOGRAM_SHIFT + 1) * HISTOGRAM_OCTAVE,
	HISTOGRAM_MAXIMA = 4,
};

/* Makes bpf2go generate Go types. */
const enum histogram_limits *unused_histogram_limits __attribute__((unused));

/* The longest time, as far as one of several concurrent writers knows. */
struct histogram_maximum {
	u64 ns;
	u64 writers; /* that try to write ns */
};

struct histogram {
	u64 slots[HISTOGRAM_SLOTS];
	u64 sum; /* ns */
	struct histogram_maximum maxima[HISTOGRAM_MAXIMA];
};

const struct histogram *unused_histogram __attribute__((unused));

/* The slot of a time. */
static __always_inline u32 histogram_slot(u64 ns)
{
	u64 rest = ns;
	u32 log = 0;
	int shift;

	if (ns < HISTOGRAM_OCTAVE)
		return ns;
#pragma unroll
	for (shift = 32; shift; shift /= 2) {
		if (rest >> shift) {
			rest >>= shift;
			log += shift;
		}
	}
	log -= HISTOGRAM_SHIFT;
	return (log + 1) * HISTOGRAM_OCTAVE + ((ns >> log) & (HISTOGRAM_OCTAVE - 1));
}

/*
 * Notes a time if it is the longest. Atomic operations that return a value need Linux 5.12, so
 * this uses increments alone: the writer that sees its own increment alone writes, another one
 * tries the next place. User space takes the longest of all places. If more writers than places
 * meet, a time is left out, which user space notices unless it is in the same slot.
 */
static __always_inline void histogram_note(struct histogram *h, u64 ns)
{
	struct histogram_maximum *m;
	int i;

#pragma unroll
	for (i = 0; i < HISTOGRAM_MAXIMA; i++) {
		m = &h->maxima[i];
		if (*(volatile u64 *)&m->ns >= ns)
			return;
		__sync_fetch_and_add(&m->writers, 1);
		if (*(volatile u64 *)&m->writers == 1) {
			if (*(volatile u64 *)&m->ns < ns)
				*(volatile u64 *)&m->ns = ns;
			__sync_fetch_and_add(&m->writers, -1);
			return;
		}
		__sync_fetch_and_add(&m->writers, -1);
	}
}

#ifdef __bpf__
static __always_inline void histogram_add(struct histogram *h, u64 ns)
{
	u32 slot = histogram_slot(ns);

	barrier_var(slot); /* the verifier of 5.10 needs to see the limit */
	if (slot >= HISTOGRAM_SLOTS)
		return;
	__sync_fetch_and_add(&h->slots[slot], 1);
	__sync_fetch_and_add(&h->sum, ns);
	histogram_note(h, ns);
}
#endif

#endif
