/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Events of a timeline. If timeline is set, each event crosses the ring as a
 * record with its time, and the kernel counts nothing. A family of programs that
 * has events defines their record as struct timeline_event. Its first word is its
 * type, as in all records. The other families only have the variable.
 */
#ifndef FULGUR_EVENT_H
#define FULGUR_EVENT_H

#include "kernel.h"
#include "loss.h"
#include "record.h"
#include "ring.h"
#include <bpf/bpf_helpers.h>

const volatile bool timeline;

/* An event that does not fit into the ring is lost, and counted. */
static __always_inline void event_send(void *event, u64 size)
{
	if (ring_send(event, size))
		stat_add(STAT_LOST, 1);
}

#endif
