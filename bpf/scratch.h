/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Per-CPU memory for walking stacks, too large for a BPF stack. A family has an
 * entry for each of its programs that may interrupt another on the same CPU. If
 * there are several, it defines SCRATCHES before its first include.
 *
 * Global functions take only scalars, since Linux 5.10 supports no others. They
 * get an entry's index and look it up again.
 */
#ifndef FULGUR_SCRATCH_H
#define FULGUR_SCRATCH_H

#include "kernel.h"
#include "record.h"
#include "runtime_maps.h"
#include "unwind_state.h"
#include <bpf/bpf_helpers.h>

#ifndef SCRATCHES
#define SCRATCHES 1
#endif

/* Maximum frames of each half. User space never sets it above MAX_DEPTH. */
const volatile u32 max_depth = MAX_DEPTH;

/* The parts of a stack to copy. */
struct stack_plan {
	u64 span; /* where to look for them, in parts */
	u64 beyond; /* the same, once a part was not there */
	u64 image; /* of the process */
	u64 n;
	u8 parts[STACK_PARTS]; /* STACK_SPAN after the last */
};

struct stack_scratch {
	u32 index; /* its own */
	u32 sent; /* whether the last stack_intern() sent the record */
	struct stack_record record;
	struct unwind_walk walk;
	struct stack_plan plan;
	struct runtime_stack runtime;
	struct runtime_walk runtime_walk;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SCRATCHES);
	__type(key, u32);
	__type(value, struct stack_scratch);
} scratches SEC(".maps");

static __always_inline struct stack_scratch *stack_scratch(u32 index)
{
	struct stack_scratch *s = bpf_map_lookup_elem(&scratches, &index);

	if (s)
		s->index = index;
	return s;
}

#endif
