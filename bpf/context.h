/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The context of a thread: the IDs of the trace and span that it works on, and attributes. An
 * OpenTelemetry SDK publishes it in a record, to which the thread-local variable
 * otel_thread_ctx_v1 points. User space (internal/runtimes/threadctx) finds out how the variable
 * is accessed.
 *
 * A thread changes only its own record, so the record does not change while the thread is
 * interrupted. If it was interrupted during a change, the record is not valid.
 */
#ifndef FULGUR_CONTEXT_H
#define FULGUR_CONTEXT_H

#include "hash.h"
#include "kernel.h"
#include "label_maps.h"
#include "label_set.h"
#include "task.h"
#include "unwind_state.h"
#include <bpf/bpf_helpers.h>

/* Larger numbers of modules are something else. */
#define CONTEXT_MODULES (1 << 16)

/* The words of a context. */
#define CONTEXT_WORDS (sizeof(struct thread_context) / 8)

/*
 * The address of an offset in the thread-local storage of a module, for the current thread, or 0
 * if the thread has none yet. The vector of modules of a thread is glibc's dtv_t or musl's dtv.
 */
static __always_inline u64 context_in_module(struct label_scratch *s, u64 thread, u64 module,
					     u64 offset)
{
	const struct label_process *p = &s->process;
	bool glibc = p->module_shift == 4;
	u64 vector, last, block;

	if (!module || module >= CONTEXT_MODULES ||
	    !label_read(&vector, 8, thread + (s64)p->vector) ||
	    !label_read(&last, 8, vector - (glibc ? 16 : 0)) || module > last ||
	    !label_read(&block, 8, vector + (module << (p->module_shift & 7))))
		return 0;
	/* glibc marks storage that the thread has not used yet as odd. */
	return !block || block & 1 ? 0 : block + offset;
}

/* The address of the variable of the current thread, or 0. Its place may not be known yet. */
static __always_inline u64 context_variable(struct label_scratch *s)
{
	u64 thread = task_thread_pointer(current_task());
	const struct label_process *p = &s->process;
	u64 *words = s->words, argument;

	if (p->kind == LABELS_CONTEXT_OFFSET)
		return thread + p->offset;
	if (!label_read(words, 8, p->slot) || !words[0])
		return 0;
	if (p->kind == LABELS_CONTEXT_SLOT)
		return thread + words[0] + p->offset;
	if (p->kind == LABELS_CONTEXT_MODULE)
		return context_in_module(s, thread, words[0], p->offset);
	if (!label_read(&argument, 8, p->slot + 8))
		return 0;
	if (p->kind == LABELS_CONTEXT_INDEX)
		return context_in_module(s, thread, words[0], argument);
	/*
	 * The argument of the descriptor's function is an offset from the thread pointer, or the
	 * address of the module's number and an offset in it.
	 */
	if ((s64)argument > 0 && label_read(words, 16, argument) && words[0] < CONTEXT_MODULES)
		return context_in_module(s, thread, words[0], words[1] + p->offset);
	return thread + argument + p->offset;
}

/*
 * Puts the current thread's context into the record in an entry of label_scratches. Returns its
 * hash.
 */
UNWIND_GLOBAL u64 context_read(u32 scratch)
{
	struct label_scratch *s = label_scratch(scratch);
	u32 header = __builtin_offsetof(struct thread_context, attributes);
	struct thread_context *c;
	u64 at, hash = 0, *words;
	u32 n, i;

	if (!s)
		return 0;
	c = (struct thread_context *)s->record.labels;
	words = (u64 *)c;
	at = context_variable(s);
	if (!at || !label_read(&at, 8, at) || !at || !label_read(c, header, at) || c->valid != 1)
		return 0;
	/* What follows the attributes must be 0 for the hash. */
	c->valid = 0;
	c->flags = 0;
	__builtin_memset(c->attributes, 0, 4);
	n = c->size;
	if (n > CONTEXT_ATTRIBUTES)
		n = CONTEXT_ATTRIBUTES;
#pragma clang loop unroll(disable)
	for (i = (header + 4) / 8; i < CONTEXT_WORDS && 8 * i < header + n; i++)
		words[i] = 0;
	barrier_var(n); /* keeps the bounds check before the call */
	n &= 0x3ff;
	if (n > CONTEXT_ATTRIBUTES)
		return 0;
	if (n && !label_read(c->attributes, n, at + header))
		return 0;
	if (skip_trace_id)
		words[0] = words[1] = 0;
	if (skip_span_id)
		words[2] = 0;
	if (!n && !words[0] && !words[1] && !words[2])
		return 0;
#pragma clang loop unroll(disable)
	for (i = 0; i < CONTEXT_WORDS && 8 * i < header + n; i++)
		hash = hash_step(hash, words[i]);
	s->record.context = header + n;
	return hash;
}

#endif
