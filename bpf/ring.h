/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The ring of records, which all programs of a family write. */
#ifndef FULGUR_RING_H
#define FULGUR_RING_H

#include "kernel.h"
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

#endif
