/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Labels of the code that runs: sets of keys and values that a program gives to a goroutine, or
 * to a thread (context.h).
 * labels_walk() reads the set of the current thread, and sends it once. A stack's ID includes
 * the ID of its set, so counts are by stack and set.
 *
 * The memory of the process may be forged. A process that changes its labels all the time
 * makes a new stack with each sample, so what it sends is limited. Beyond the limits, its
 * samples lose their labels, and count with their stack.
 */
#ifndef FULGUR_LABELS_H
#define FULGUR_LABELS_H

#include "context.h"
#include "hash.h"
#include "kernel.h"
#include "label_maps.h"
#include "label_set.h"
#include "loss.h"
#include "record.h"
#include "ring.h"
#include "seen.h"
#include "task.h"
#include "unwind_state.h"
#include <bpf/bpf_helpers.h>

/* IDs of sets that were sent: a table like seen. */
#define LABEL_SETS 4096
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, LABEL_SETS);
	__type(key, u32);
	__type(value, struct seen_set);
} labels_seen SEC(".maps");

/* The maximum number of IDs of stacks of a process in a generation. */
#define LABEL_STACKS 32768

/* Offsets in runtime.g, and in Go's maps up to 1.23. */
#define GO_G_M 48
#define GO_MAP_BUCKETS 4 /* maximum number of buckets to look at */
#define GO_MAP_SLOTS 8
#define GO_MAP_TAKEN 5 /* lowest hash of a slot that is taken */

/* Adds the labels in a slice. Returns the sum of their hashes. */
UNWIND_GLOBAL u64 label_slice(u32 scratch, u64 at)
{
	struct label_scratch *s = label_scratch(scratch);
	u64 hash = 0, array;
	u32 i;

	if (!s || !label_read(s->words, 16, at))
		return 0;
	array = s->words[0];
	for (i = 0; i < MAX_LABELS && i < s->words[1]; i++)
		hash += label_add(scratch, array + 32 * i, array + 32 * i + 16);
	return hash;
}

/* Adds the labels in a bucket of a map, whose order is random. */
UNWIND_GLOBAL u64 label_bucket(u32 scratch, u64 at)
{
	u64 hash = 0, taken = 0, keys = at + GO_MAP_SLOTS, values = keys + 16 * GO_MAP_SLOTS;
	u32 i;

	if (!label_read(&taken, sizeof(taken), at))
		return 0;
	for (i = 0; i < GO_MAP_SLOTS; i++) {
		if ((taken & 0xff) >= GO_MAP_TAKEN)
			hash += label_add(scratch, keys + 16 * i, values + 16 * i);
		taken >>= 8;
	}
	return hash;
}

/* Adds the labels in a map of Go up to 1.23: runtime.hmap. */
UNWIND_GLOBAL u64 label_map(u32 scratch, u64 at)
{
	struct label_scratch *s = label_scratch(scratch);
	u64 hash = 0, bits, buckets;
	u32 i;

	/* The labels are a pointer to the map, which is a pointer itself. */
	if (!s || !label_read(s->words, 8, at))
		return 0;
	if (!label_read(s->words, 24, s->words[0]))
		return 0;
	bits = s->words[1] >> 8 & 0xff;
	buckets = s->words[2];
	for (i = 0; i < GO_MAP_BUCKETS && (bits > 8 || i < 1U << bits); i++)
		hash += label_bucket(scratch, buckets + i * (8 + 32 * GO_MAP_SLOTS + 8));
	return hash;
}

/* The address of the labels of the goroutine whose g is at an address, or 0. */
static __always_inline u64 label_goroutine(const struct label_process *process, u64 g)
{
	u64 m, current, labels;

	/* While the runtime or C code runs, g is the thread's own one. */
	if (!label_read(&m, 8, g + GO_G_M) || !m ||
	    !label_read(&current, 8, m + process->current) || !current ||
	    !label_read(&g, 8, current + GO_G_M) || g != m ||
	    !label_read(&labels, 8, current + process->labels))
		return 0;
	return labels;
}

/* Sends the set in an entry of label_scratches, unless it was sent. Returns its ID, or 0. */
UNWIND_GLOBAL u64 label_send(u32 scratch, u32 tgid, u64 epoch, u64 hash)
{
	struct label_scratch *s = label_scratch(scratch);
	u64 size = __builtin_offsetof(struct label_record, labels);
	u64 id = hash_step(hash_step(epoch ^ generation, tgid), hash) | 1;
	u32 index = (id >> 32) % LABEL_SETS;
	struct label_process *process;
	struct seen_set *set;

	if (!s)
		return 0;
	set = bpf_map_lookup_elem(&labels_seen, &index);
	if (!set)
		return 0;
	if (seen_has(set, id))
		return id;
	process = bpf_map_lookup_elem(&label_processes, &tgid);
	if (!process)
		return 0;
	/* No stack could use a new set. */
	if (process->generation == generation && process->stacks >= LABEL_STACKS)
		return 0;
	size += s->record.count * sizeof(struct label) + s->record.context;
	if (!ring_allows(&process->sent, size))
		return 0;
	s->record.type = RECORD_LABELS;
	s->record.pid = tgid;
	s->record.id = id;
	s->record.epoch = epoch;
	barrier_var(size);
	size &= 0xfff;
	if (size > sizeof(s->record) || bpf_ringbuf_output(&ring, &s->record, size, ring_flags()))
		return 0;
	seen_add(set, id);
	return id;
}

/*
 * Reads and sends the labels of the current task, which runs a process image. Returns their
 * ID, or 0 if it has none. g is the register that holds Go's g, on processors with one.
 */
UNWIND_GLOBAL u64 label_walk(u32 scratch, u64 epoch, u64 image, u64 g)
{
	struct task_struct *task = current_task();
	struct label_scratch *s = label_scratch(scratch);
	struct label_process *process;
	u32 tgid = task_tgid(task);
	u64 labels, hash, id;

	if (!s)
		return 0;
	process = bpf_map_lookup_elem(&label_processes, &tgid);
	if (!process || process->image != image)
		return 0;
	__builtin_memcpy(&s->process, process, sizeof(s->process));
	s->record.count = 0;
	s->record.context = 0;
	if (s->process.kind >= LABELS_CONTEXT_OFFSET) {
		hash = context_read(scratch);
		goto send;
	}
	if (s->process.thread_offset &&
	    !label_read(&g, 8, task_thread_pointer(task) + (s64)s->process.thread_offset))
		return 0;
	labels = label_goroutine(&s->process, g);
	if (!labels)
		return 0;
	if (s->process.kind == LABELS_GO_SLICE)
		hash = label_slice(scratch, labels);
	else
		hash = label_map(scratch, labels);
send:
	if (!s->record.count && !s->record.context)
		return 0;
	id = label_send(scratch, tgid, epoch, hash);
	if (!id)
		stat_add(STAT_UNLABELED, 1);
	return id;
}

/* Whether any process has labels, so that label_walk() has something to look for. */
static __always_inline bool labels_exist(void)
{
	u32 zero = 0;
	const u32 *any;

	if (!read_labels)
		return false;
	any = bpf_map_lookup_elem(&label_any, &zero);
	return any && *any;
}

/*
 * Whether a stack with labels may have an ID. If the stack was not seen, it is to be sent, with
 * this many bytes.
 */
UNWIND_GLOBAL int label_stack(u32 tgid, u64 id, u64 bytes)
{
	struct label_process *process;
	struct seen_set *set = seen_stacks(id);

	if (!set)
		return 0;
	if (seen_has(set, id))
		return 1;
	process = bpf_map_lookup_elem(&label_processes, &tgid);
	/* The process has ended. The stack is a snapshot's, and few of those wait. */
	if (!process)
		return bpf_ringbuf_query(&ring, BPF_RB_AVAIL_DATA) <= ring_wakeup;
	if (process->generation != generation) {
		process->generation = generation;
		process->stacks = 0;
	}
	if (process->stacks >= LABEL_STACKS || !ring_allows(&process->sent, bytes))
		return 0;
	process->stacks++;
	return 1;
}

#endif
