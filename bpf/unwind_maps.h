/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Unwind tables and the processes they are for: what user space writes (package
 * internal/unwind/...) and the walker (unwind.h) reads. unwind.bpf.c owns the
 * maps; every family of probes is loaded with the same ones.
 *
 * The tables of all files lie in one space of 32-bit words, cut into pages, so
 * that a page is what is loaded and evicted. A file has two runs of words in it:
 * blocks, for every 1 KiB of code the first of its rows, and rows, an address
 * within the block (upper 10 bits) and the index of a rule (lower 22 bits). If
 * no row of its block is at or below an address, the row before them is in
 * force.
 */
#ifndef FULGUR_UNWIND_MAPS_H
#define FULGUR_UNWIND_MAPS_H

#include "kernel.h"

enum unwind_shift {
	UNWIND_BLOCK_SHIFT = 10, /* code per block, log2 of bytes */
	UNWIND_PAGE_SHIFT = 14, /* words per page, log2 */
};
#define UNWIND_PAGE_WORDS (1 << UNWIND_PAGE_SHIFT)
#define UNWIND_RULE_BITS (32 - UNWIND_BLOCK_SHIFT)
#define UNWIND_CACHE_SHIFT 12 /* entries, log2; 32 KiB is the most of a per-CPU value */
#define UNWIND_ASKED 1024

/* How to find the caller's frame: Kind in internal/unwind/rule.go. */
enum unwind_kind {
	UNWIND_NONE = 0,
	UNWIND_UNSUPPORTED = 1,
	UNWIND_END = 2,
	UNWIND_SP = 3, /* arg: words from the saved base register to the CFA, or 0 */
	UNWIND_FP = 4, /* the same */
	UNWIND_REGISTER = 5,
	UNWIND_DEREF_SP = 6,
	UNWIND_DEREF_FP = 7,
	UNWIND_PLT = 8,
	UNWIND_SIGNAL = 9,
	/* By the chain of frame pointers; arg: enum unwind_chain. */
	UNWIND_CHAIN = 10,
	UNWIND_SWITCH = 11,
	/* cfa: from the thread pointer to g; fp: curg in runtime.m; ra: sched.bp in runtime.g */
	UNWIND_GOROUTINE = 12,
	UNWIND_INDEXED = 13,
};

/* What is known of a chain of frame pointers: the values of Rule.Arg for KindChain in rule.go. */
enum unwind_chain {
	UNWIND_CHAIN_ANY = 0,
	/* It may lead to another stack, as in Go: the frame need not be above this one. */
	UNWIND_CHAIN_STACKS = 1,
	/* The saved frame pointer and the return address are at the end of the frame. */
	UNWIND_CHAIN_AT_END = 2,
};

/* Where the caller's register is saved: the values of Slot in rule.go. */
enum unwind_slot {
	UNWIND_SAME = 0,
	UNWIND_AT_CFA = 1,
	UNWIND_AT_SP = 2,
	UNWIND_AT_FP = 3,
	UNWIND_IN_REGISTER = 4,
	UNWIND_UNKNOWN = 5,
};

#define UNWIND_BASE_LOST 255 /* BaseLost in rule.go */

/* Rule in rule.go, with the same layout. */
struct unwind_rule {
	s32 cfa, fp, ra;
	u8 kind; /* enum unwind_kind */
	u8 arg;
	u8 fp_slot, ra_slot; /* enum unwind_slot */
};

/* The first entries of unwind_rules. */
enum unwind_rule_index {
	UNWIND_RULE_NONE = 0, /* the zero rule */
	UNWIND_RULE_CHAIN = 1, /* UNWIND_CHAIN */
	UNWIND_RULE_CHAIN_GO = 2, /* UNWIND_CHAIN with UNWIND_CHAIN_STACKS */
	UNWIND_RULE_CHAIN_AT_END = 3, /* UNWIND_CHAIN with UNWIND_CHAIN_AT_END */
	UNWIND_RULE_UNREAD = 4, /* code that is not analyzed yet */
	UNWIND_RULE_FIRST = 5, /* of the tables */
};

/*
 * A mapping of executable memory, or the part of one that a segment describes. The block of an
 * address is the word blocks + (address - bias >> UNWIND_BLOCK_SHIFT), modulo 2^32. The first
 * row of the block is the word rows plus what that word contains.
 */
struct unwind_mapping {
	u64 start, end;
	u64 bias; /* address less link-time address */
	u32 blocks;
	u32 rows; /* or enum unwind_rows */
	u32 fallback; /* rule where the table has the zero rule */
	u32 pad;
};

/* In place of rows. */
enum unwind_rows {
	UNWIND_NO_TABLE = 0xffffffffU, /* the fallback applies to all of the mapping */
	UNWIND_PENDING = 0xfffffffeU, /* the table is not made yet */
	UNWIND_LATE = 0xfffffffdU, /* neither, and stacks do not wait for it */
};

/*
 * The mappings of a process, in unwind_mappings, sorted and without overlaps. They are
 * immutable; a process gets another layout in a single store. The cache takes equal addresses
 * in layouts with different salts for different ones. So layouts share a salt only if each
 * address means the same code in all of them.
 */
enum unwind_layout_bits {
	UNWIND_LAYOUT_FIRST_BITS = 24, /* index of the first mapping; the lowest bits */
	UNWIND_LAYOUT_COUNT_BITS = 16, /* how many; the next bits */
	UNWIND_LAYOUT_SALT_BITS = 24, /* the highest bits */
};

struct unwind_process {
	u64 seal; /* unwind_seal */
	u64 layout;
};

/* A page's state for clock and walker; separate words avoid lost stores. */
struct unwind_page_state {
	u32 used; /* set by the walker, cleared by user space */
	u32 asked; /* set by the walker when it sent a request, cleared by user space */
};

enum unwind_request_type {
	UNWIND_WANT_PROCESS = 1, /* process id has no layout, or one of another image */
	UNWIND_WANT_PAGE = 2, /* page id is missing */
	UNWIND_WANT_TABLE = 3, /* process id has no table for an address */
};

/* The last request, by hash. */
struct unwind_asking {
	u64 key;
	u64 time; /* CLOCK_MONOTONIC, ns */
};

/* A request of the walker, in unwind_requests. */
struct unwind_request {
	u32 type; /* enum unwind_request_type */
	u32 id; /* thread group or page */
	u64 image; /* of the process */
	u64 address; /* of UNWIND_WANT_TABLE */
	u64 time; /* CLOCK_MONOTONIC, ns */
};

/* A result of the task iterator, for a process that has a user stack. */
struct unwind_task {
	u32 tgid;
	u32 pad;
	u64 image;
};

/* Cached rules of addresses: a tag of 40 bits, the index of the rule in 24. */
struct unwind_cache {
	u64 entries[1 << UNWIND_CACHE_SHIFT];
};

#ifdef __bpf__
#include "hash.h"
#include <bpf/bpf_helpers.h>

/*
 * Binds a layout to its image: it computes the seal of an image, and the image of a seal. The
 * kernel writes the words of an entry in any order, and may reuse an entry for another process
 * during a read. A mix of two entries matches no image.
 */
static __always_inline u64 unwind_seal(u64 image_or_seal, u64 layout)
{
	return image_or_seal ^ layout * HASH_MULTIPLIER;
}

struct unwind_page {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__uint(value_size, 4 * UNWIND_PAGE_WORDS);
};

/* An empty slot is a page that is not loaded. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, u32);
	__array(values, struct unwind_page);
} unwind_pages SEC(".maps");

/* As many as unwind_pages. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct unwind_page_state);
} unwind_page_states SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, UNWIND_RULE_FIRST);
	__type(key, u32);
	__type(value, struct unwind_rule);
} unwind_rules SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct unwind_mapping);
} unwind_mappings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, u32); /* thread group */
	__type(value, struct unwind_process);
} unwind_processes SEC(".maps");

/*
 * Recent requests, by hash: images without a layout, and pages of addresses outside
 * of a layout's mappings. Set an entry to zero to allow the request again. A request
 * is not repeated unless another one displaces it.
 *
 * The last entry is different: its time says that user space has answered all earlier
 * requests.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, UNWIND_ASKED + 1);
	__type(key, u32);
	__type(value, struct unwind_asking);
} unwind_asked SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 64 * 1024);
} unwind_requests SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct unwind_cache);
} unwind_cache SEC(".maps");

#endif
#endif
