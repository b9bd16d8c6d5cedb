/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Hashes of words. Some of them user space computes, too.
 */
#ifndef FULGUR_HASH_H
#define FULGUR_HASH_H

#include "kernel.h"
#ifdef __bpf__
#include <bpf/bpf_helpers.h>
#endif

enum hash_constant {
	HASH_MULTIPLIER = 0x9e3779b97f4a7c15ULL, /* 2^64 divided by the golden ratio */
};

static __always_inline u64 hash_step(u64 hash, u64 word)
{
	hash = (hash ^ word) * HASH_MULTIPLIER;
	return hash ^ (hash >> 29);
}

#endif
