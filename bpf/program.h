/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Language runtimes of processes that user space does not know yet. runtime_programs has an entry
 * for a program if another process has run it before, or if fulgur is about to start it as its
 * command. Samples of processes that user space knows do not need the entry.
 *
 * A program is found by the sizes of its segments, which the kernel keeps, and recognized by the
 * first bytes of its file in memory, with its headers and, in most files, its build ID. Neither
 * depends on paths or on device numbers, which differ between containers. If the runtime is in a
 * library, it is found in the dynamic loader's list. User space reads the frames of the other
 * runtimes' functions, so these have no entries.
 */
#ifndef FULGUR_PROGRAM_H
#define FULGUR_PROGRAM_H

#include "hash.h"
#include "kernel.h"
#include "record.h"
#include "runtime_frames.h"
#include "runtime_maps.h"
#include "scratch.h"
#include "task.h"
#include "unwind_state.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#define PROGRAM_LIBRARIES 32 /* maximum number of libraries to look at */

/* The hash of the file whose start is mapped at an address, or 0. */
UNWIND_GLOBAL u64 program_hash(u32 scratch, u64 at)
{
	struct stack_scratch *s = runtime_scratch(scratch);
	u64 *words, hash = 0;
	u32 i;

	if (!s)
		return 0;
	words = s->walk.block; /* not in use: the walk has not begun */
	if (!runtime_read(words, PROGRAM_HEAD, at))
		return 0;
#pragma clang loop unroll(disable)
	for (i = 0; i < PROGRAM_HEAD / 8; i++)
		hash = hash_step(hash, words[i]);
	return hash;
}

/* The fields of the dynamic loader's struct link_map. */
struct program_link {
	u64 bias; /* running less link-time addresses */
	u64 name;
	u64 dynamic; /* address of the dynamic section */
	u64 next;
};

/*
 * Looks at the library at cframe in the loader's list, and steps to the next one. Returns 1 at
 * the end of the search. If this library is the program's, its bias is then in frame.
 */
UNWIND_GLOBAL int program_library(u32 scratch, u64 key)
{
	struct stack_scratch *s = runtime_scratch(scratch);
	struct runtime_program *p = bpf_map_lookup_elem(&runtime_programs, &key);
	struct program_link link;
	struct runtime_walk *w;

	if (!s || !p)
		return 1;
	w = &s->runtime_walk;
	if (!w->cframe || !runtime_read(&link, sizeof(link), w->cframe))
		return 1;
	w->cframe = link.next;
	if (link.dynamic - link.bias != p->dynamic)
		return 0;
	if (program_hash(scratch, link.bias + p->library.head) != p->library.hash)
		return 0;
	w->frame = link.bias;
	return 1;
}

/* Finds the bias of the program's library. Returns whether it is loaded. */
static __always_inline bool program_libraries(u32 scratch, u64 key, u64 list)
{
	struct stack_scratch *s = runtime_scratch(scratch);
	struct runtime_walk *w;
	u32 i;

	if (!s)
		return false;
	w = &s->runtime_walk;
	w->frame = 0;
	/* struct r_debug: a version, then the first library. */
	if (!runtime_read(&list, 8, list) || !list || !runtime_read(&w->cframe, 8, list + 8))
		return false;
	for (i = 0; i < PROGRAM_LIBRARIES; i++)
		if (program_library(scratch, key))
			break;
	return w->frame;
}

/*
 * Adds a runtime of the current task's program to the process in scratch. program is the key of
 * the program. Returns 0 if the program is not known to have a runtime of this kind, or has not
 * loaded it yet.
 */
UNWIND_GLOBAL int program_runtime(u32 scratch, u64 program, u32 kind)
{
	struct stack_scratch *s = runtime_scratch(scratch);
	u64 key = hash_step(program, kind), bias, *words;
	struct runtime_program *p;
	struct runtime_walk *w;
	u32 i;

	if (!s)
		return 0;
	w = &s->runtime_walk;
	p = bpf_map_lookup_elem(&runtime_programs, &key);
	if (!p)
		return 0;
	bias = BPF_CORE_READ(current_task(), mm, end_code) - p->end;
	if (program_hash(scratch, bias + p->program.head) != p->program.hash)
		return 0;
	if (p->libraries) {
		if (!program_libraries(scratch, key, bias + p->libraries))
			return 0;
		bias = w->frame;
	}
	if (kind == RUNTIME_PYTHON)
		__builtin_memcpy(&w->process.python, &p->process.python, sizeof(w->process.python));
	else
		__builtin_memcpy(&w->process.ruby, &p->process.ruby, sizeof(w->process.ruby));
	w->process.kinds |= RUNTIME_BIT(kind & 31);
	words = (u64 *)&w->process;
#pragma clang loop unroll(disable)
	for (i = 0; i < PROGRAM_ADDRESSES; i++) {
		u64 at = p->addresses[i];

		barrier_var(at); /* keeps the bounds check before the pointer arithmetic */
		if (!at || at >= sizeof(w->process) / 8)
			break;
		words[at] += bias;
	}
	return 1;
}

/*
 * Sets the process in scratch by the program of the current task. Returns 0 if the program is
 * unknown, or has not loaded a runtime yet.
 */
UNWIND_GLOBAL int program_process(u32 scratch)
{
	struct stack_scratch *s = runtime_scratch(scratch);
	struct task_struct *task = current_task();
	u64 code, data, end, key;

	if (!s)
		return 0;
	code = BPF_CORE_READ(task, mm, end_code);
	data = BPF_CORE_READ(task, mm, start_data);
	end = BPF_CORE_READ(task, mm, end_data);
	key = hash_step(hash_step(0, data - code), end - code);
	s->runtime_walk.process.kinds = 0;
	program_runtime(scratch, key, RUNTIME_PYTHON);
	program_runtime(scratch, key, RUNTIME_RUBY);
	return s->runtime_walk.process.kinds != 0;
}

#endif
