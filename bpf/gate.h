/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The gate of a run: hits and samples of all its sources count only while it is open. User space
 * opens it when all programs of the run are attached, and closes it before it detaches the first
 * one, since each takes tens of milliseconds. All sources share this map, so all of them measure
 * the same time.
 *
 * User space writes each word once. So the hits of a thread that find the gate open are
 * consecutive, even if the thread changes CPUs: if it calls two functions in turn, their numbers of
 * hits differ by one at most.
 */
#ifndef FULGUR_GATE_H
#define FULGUR_GATE_H

#include "kernel.h"
#include <bpf/bpf_helpers.h>

struct gate_times {
	u64 began; /* when it was opened, CLOCK_MONOTONIC in ns; 0 if not yet */
	u64 ended; /* when it was closed, likewise */
};

volatile struct gate_times gate SEC(".data.gate");

static __always_inline bool gate_is_open(void)
{
	return gate.began && !gate.ended;
}

#endif
