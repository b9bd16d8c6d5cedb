/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The processes with labels, which user space (internal/runtimes/golabels) provides, and the
 * records of sets of labels.
 */
#ifndef FULGUR_LABEL_MAPS_H
#define FULGUR_LABEL_MAPS_H

#include "kernel.h"
#include "record.h"

/* Maximum number of labels in a set, and of bytes of keys and values. */
#define MAX_LABELS 16
#define LABEL_KEY 64
#define LABEL_VALUE 128

/*
 * The context of a thread, byte-packed: OpenTelemetry's OTEP 4947, "Thread Context". It should
 * have at most 640 bytes; the rest is not read.
 */
#define CONTEXT_ATTRIBUTES 612
struct thread_context {
	u8 trace_id[16];
	u8 span_id[8];
	u8 valid; /* 1, or the rest means nothing */
	u8 flags;
	u16 size; /* of attributes */
	u8 attributes[CONTEXT_ATTRIBUTES]; /* each one a key's index, a size, a value */
};

/* How a process keeps its labels. */
enum label_kind {
	LABELS_GO_MAP = 1, /* Go up to 1.23 */
	LABELS_GO_SLICE = 2,
	/*
	 * In the context of each thread, see context.h. The thread-local variable that points to
	 * it is at:
	 */
	LABELS_CONTEXT_OFFSET = 3, /* an offset from the thread pointer */
	LABELS_CONTEXT_SLOT = 4, /* the offset in a slot of the linkage table */
	LABELS_CONTEXT_DESCRIPTOR = 5, /* the result of a TLS descriptor in a slot */
	LABELS_CONTEXT_MODULE = 6, /* an offset in the module whose number is in a slot */
	LABELS_CONTEXT_INDEX = 7, /* the offset in the slot, in the module whose number is in it */
};

/* A process with labels. */
struct label_process {
	u64 image; /* the process image that the entry is for */
	s32 thread_offset; /* of g from the thread pointer; 0 if it is in a register */
	u16 current; /* offset of curg in runtime.m */
	u16 labels; /* offset of labels in runtime.g */
	u32 kind; /* enum label_kind */
	s32 vector; /* of the address of a thread's vector of modules from the thread pointer */
	u32 module_shift; /* log2 of the size of an entry of the vector */
	u64 slot; /* its address */
	u64 offset; /* to add to the variable's place */
	/* What it has sent, see labels.h. Stores are racy. */
	u32 generation;
	u64 stacks;
	struct ring_budget sent;
};

/* A label. The rest of its texts is 0. */
struct label {
	u16 key_size, value_size; /* before truncation */
	u32 pad;
	u8 key[LABEL_KEY];
	u8 value[LABEL_VALUE];
};

/* A set of labels, sent before the first stack that has it. Only the used prefix is sent. */
struct label_record {
	u32 type;
	u32 pid;
	u64 id;
	u64 epoch; /* identity of the process image */
	u32 count;
	u32 context; /* size of the thread context that takes the place of labels, or 0 */
	struct label labels[MAX_LABELS];
};

#ifdef __bpf__
#include <bpf/bpf_helpers.h>

/* Processes with labels. All families share it, like the maps in unwind_maps.h. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, u32); /* thread group */
	__type(value, struct label_process);
} label_processes SEC(".maps");

/* Whether label_processes had an entry since the start, which saves look-ups in it. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u32);
} label_any SEC(".maps");

#endif
#endif
