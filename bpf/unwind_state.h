/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The state of a walk of a user stack (unwind_walk.h). */
#ifndef FULGUR_UNWIND_STATE_H
#define FULGUR_UNWIND_STATE_H

#include "kernel.h"

/* How stacks are walked. */
enum unwind_mode {
	UNWIND_BY_FRAME_POINTERS = 0,
	UNWIND_BY_TABLES = 1,
	UNWIND_BY_BOTH = 2, /* each mapping selects one */
};

/* A function that the verifier checks once, for all callers. */
#define UNWIND_GLOBAL __attribute__((noinline))

/*
 * Bytes of memory to read at once; a power of two, and at most a page. A family may define another
 * number before its first include.
 */
#ifndef UNWIND_BLOCK_BYTES
#define UNWIND_BLOCK_BYTES 2048
#endif
#define UNWIND_NO_BLOCK 8 /* no block begins at this address */

/*
 * A copy of a stack consists of parts. Parts of the stack that cannot be read, such as unused pages
 * of a large array, take no room in it.
 */
#define STACK_PART 4096
#define STACK_SPAN 64 /* parts of the stack, from the lowest on, of which a copy has some */
#define STACK_PARTS 16 /* the most that a copy has */

/*
 * amd64's base register is kept from frame to frame only if the CFA was found
 * to be above it. Few stacks go through the dynamic loader's stubs for lazy
 * binding, and those are walked again.
 */
enum unwind_base {
	UNWIND_BASE_IGNORED = 0,
	UNWIND_BASE_UNKNOWN = 1,
	UNWIND_BASE_KNOWN = 2,
};
#define UNWIND_LOWEST 4096 /* no memory is mapped below, whatever mmap_min_addr is */

/* The state of a walk. */
struct unwind_walk {
	u64 pc, sp, fp;
	u64 layout;
	/*
	 * Whether all registers are known, and pc is the next instruction: in
	 * the interrupted frame and in one that a signal interrupted. Otherwise
	 * pc is a return address.
	 */
	u32 exact;
	u32 end; /* enum stack_end */
	u32 first; /* index in the record's frames of the walk's first */
	u32 by_signal; /* registers are in the signal frame at regs */
	u32 early; /* the walk would get further slightly later */
	u32 chained; /* set by a step by frame pointers */
	u32 inside; /* not at the entry of a function, though other walks are; see at_entry */
	u32 departed; /* the walk went elsewhere than to a caller since the last exact frame */
	u32 sp_unknown; /* sp may be below the stack pointer; see unwind_has_sp() */
	u64 regs; /* address of the registers of the last exact frame */
	u64 copy; /* copy of the stack of a task that is not current, or 0 */
	u64 copy_of; /* address of the first part of the stack */
	u8 places[STACK_SPAN]; /* of each part in the copy, counted from 1; 0 if it is not there */
	u64 base; /* the base register, if known */
	u64 base_state; /* enum unwind_base */
	u64 block_at; /* address of what is in block, or UNWIND_NO_BLOCK */
	u64 block[UNWIND_BLOCK_BYTES / 8];
};

#endif
