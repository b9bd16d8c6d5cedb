/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The set of labels of the current thread while it is read: scratch memory, and how labels get
 * into it from the memory of the process, which may be forged.
 */
#ifndef FULGUR_LABEL_SET_H
#define FULGUR_LABEL_SET_H

#include "hash.h"
#include "kernel.h"
#include "label_maps.h"
#include "scratch.h"
#include "unwind_state.h"
#include <bpf/bpf_helpers.h>

/* Whether to read labels. Otherwise the verifier removes the code. */
const volatile bool read_labels;

/*
 * The only key whose values are needed, padded with 0. A size of 0 means that all are needed.
 * Otherwise, other labels get empty values, so that sets that differ only in these are the
 * same.
 */
const volatile u16 label_key_size;
const volatile u64 label_key[LABEL_KEY / 8];
/* Whether to leave out the IDs of traces and spans. */
const volatile bool skip_trace_id, skip_span_id;

/* Scratch memory for sets, indexed like scratches. */
struct label_scratch {
	struct label_process process;
	struct label_record record;
	u64 words[6];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SCRATCHES);
	__type(key, u32);
	__type(value, struct label_scratch);
} label_scratches SEC(".maps");

static __always_inline struct label_scratch *label_scratch(u32 scratch)
{
	return read_labels ? bpf_map_lookup_elem(&label_scratches, &scratch) : NULL;
}

/* Reads user memory of the current task. */
static __always_inline bool label_read(void *to, u32 size, u64 addr)
{
	return bpf_probe_read_user(to, size, (void *)addr) == 0;
}

/* Reads the Go string whose header is at an address, and its length before truncation. */
static __always_inline bool label_text(u8 *to, u64 most, u64 at, u16 *size)
{
	u64 text[2] = {};
	u64 n;

	if (!label_read(text, sizeof(text), at))
		return false;
	n = text[1];
	*size = n > 0xffff ? 0xffff : n;
	if (n > most)
		n = most;
	barrier_var(n); /* keeps the bounds check before the call */
	n &= 0xff;
	if (n > most)
		return false;
	return !n || label_read(to, n, text[0]);
}

/* Whether the value of a label is needed. */
static __always_inline bool label_needed(const struct label *label)
{
	u64 differs = 0;
	u32 i;

	if (!label_key_size)
		return true;
	for (i = 0; i < LABEL_KEY / 8; i++)
		differs |= ((const u64 *)label->key)[i] ^ label_key[i];
	return label->key_size == label_key_size && !differs;
}

/* Adds the label whose key and value are strings at two addresses. Returns its hash. */
UNWIND_GLOBAL u64 label_add(u32 scratch, u64 key, u64 value)
{
	struct label_scratch *s = label_scratch(scratch);
	struct label *label;
	u64 hash = 0;
	u32 n, i;

	if (!s)
		return 0;
	n = s->record.count;
	barrier_var(n);
	if (n >= MAX_LABELS)
		return 0;
	label = &s->record.labels[n];
	__builtin_memset(label, 0, sizeof(*label));
	if (!label_text(label->key, LABEL_KEY, key, &label->key_size))
		return 0;
	if (label_needed(label) &&
	    !label_text(label->value, LABEL_VALUE, value, &label->value_size))
		return 0;
	s->record.count = n + 1;
#pragma clang loop unroll(disable)
	for (i = 0; i < sizeof(*label) / 8; i++)
		hash = hash_step(hash, ((u64 *)label)[i]);
	return hash;
}

#endif
