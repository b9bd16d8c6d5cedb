/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The ring of records, which all programs of a family write. */
#ifndef FULGUR_RING_H
#define FULGUR_RING_H

#include "kernel.h"
#include "record.h"
#include <bpf/bpf_helpers.h>

/* Half of the ring's size in bytes: the fill level that wakes the reader. */
const volatile u64 ring_wakeup = 512 * 1024;

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1024 * 1024);
} ring SEC(".maps");

/* Below half full, small records do not wake the reader, which polls. */
static __always_inline u64 ring_flags(void)
{
	if (bpf_ringbuf_query(&ring, BPF_RB_AVAIL_DATA) > ring_wakeup)
		return BPF_RB_FORCE_WAKEUP;
	return BPF_RB_NO_WAKEUP;
}

static __always_inline long ring_send(void *record, u64 size)
{
	return bpf_ringbuf_output(&ring, record, size, ring_flags());
}

/*
 * Bytes that a process may send in a window of time, of code and of labels each. So a process that
 * makes new ones all the time does not crowd out other processes' stacks.
 */
#define RING_WINDOW_SHIFT 27 /* ns, log2 */
#define RING_WINDOW_BYTES (128 * 1024)

/* Whether a process may send bytes now. Half of the ring is for other records. */
static __always_inline bool ring_allows(struct ring_budget *sent, u64 bytes)
{
	u64 window = bpf_ktime_get_ns() >> RING_WINDOW_SHIFT;

	if (bpf_ringbuf_query(&ring, BPF_RB_AVAIL_DATA) > ring_wakeup)
		return false;
	if (sent->window != window) {
		sent->window = window;
		sent->bytes = 0;
	}
	if (sent->bytes + bytes > RING_WINDOW_BYTES)
		return false;
	sent->bytes += bytes;
	return true;
}

#endif
