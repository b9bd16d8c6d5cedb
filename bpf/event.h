/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Events of a timeline. Where one is asked for, each thing that happens crosses
 * the ring by itself, with its time, and nothing is counted in the kernel. What an
 * event tells is the family's struct timeline_event, whose first word is its type
 * as with all records.
 */
#ifndef FULGUR_EVENT_H
#define FULGUR_EVENT_H

#include "stack.h"

const volatile bool timeline;

/* An event that the ring has no room for is lost, and counted. */
static __always_inline void event_send(void *event, u64 size)
{
	if (ring_send(event, size))
		stat_add(STAT_LOST, 1);
}

#endif
