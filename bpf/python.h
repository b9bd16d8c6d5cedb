/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Frames of CPython 3.9 to 3.15. The interpreter keeps a chain of frames for each thread.
 * From 3.10 on, each call from C to Python leaves an object in the native frame of the
 * interpreter's function: a frame without code (from 3.12 on), or a C frame that points to
 * the Python frames. The object's address shows which native frame runs which Python frames.
 * Symbols do not show it, since compilers split that function. See docs/languages.md.
 *
 * Data in the process may be forged, or change during the walk. So code is valid only if its
 * type is PyCode_Type, and a thread's state only if it names the thread.
 */
#ifndef FULGUR_PYTHON_H
#define FULGUR_PYTHON_H

#include "hash.h"
#include "kernel.h"
#include "loss.h"
#include "record.h"
#include "runtime_frames.h"
#include "runtime_maps.h"
#include "scratch.h"
#include "task.h"
#include "unwind_state.h"
#include <bpf/bpf_helpers.h>

/* Steps of a search in the lists of interpreters and threads: in each call, and most calls. */
#define PYTHON_SEARCH_EACH 32
#define PYTHON_SEARCHES 32
#define PYTHON_SEARCHES_AGAIN 4 /* if each sample of a thread searches */
/* How long a thread without a state stays so: ns, log2. */
#define PYTHON_ABSENCE_SHIFT 25
#define PYTHON_ABSENCE_BITS 2 /* of enum python_absence */
#define PYTHON_PTHREAD 4096 /* larger than glibc's and musl's struct pthread for arm64 */
#define PYTHON_BOUND_GILSTATE (1 << 3) /* in the status of a thread's state */
/* Frames per turn of a loop. The verifier follows each turn, and each frame of one turn. */
#define PYTHON_FRAMES_EACH 16
#define PYTHON_TURNS (2 * MAX_RUNTIME_FRAMES / PYTHON_FRAMES_EACH + 1)
#define PYTHON_SKIP_EACH 32
#define PYTHON_SKIP_TURNS 32
#define PYTHON_OWNED_BY_C 3 /* owner of frames without code; larger owners, too */
#define PYTHON_THREAD_STATE 4096 /* larger than a thread's state */

/* The fields of a str: see PyASCIIObject in CPython's unicodeobject.h. */
#define PYTHON_STRING_LENGTH 16
#define PYTHON_STRING_STATE 32
#define PYTHON_BYTES_SIZE 16
#define PYTHON_BYTES 32

/* struct pthread of glibc for amd64, from 2.21 on: the values of pthread keys. */
#define GLIBC_KEYS 0x310 /* offset of the first block */
#define GLIBC_BLOCK 32 /* number of keys in a block */

/* Reads the value of a pthread key of the thread with a thread pointer. */
static __always_inline bool glibc_key(u64 thread_pointer, u32 key, u64 *value)
{
	u64 block = thread_pointer + GLIBC_KEYS;

	*value = 0;
	if (key >= 32 * GLIBC_BLOCK)
		return false;
	if (key >= GLIBC_BLOCK &&
	    !runtime_read(&block, 8, block + 16 * GLIBC_BLOCK + 8 * (key / GLIBC_BLOCK)))
		return false;
	return !block || runtime_read(value, 8, block + 16 * (key % GLIBC_BLOCK) + 8);
}

/*
 * Reads what PyGILState_GetThisThreadState() returns, which does not change while the thread has
 * released the lock. Returns false if it is not known how.
 */
static __always_inline bool python_gilstate(const struct python_process *p, u64 thread_pointer,
					    u64 *state)
{
	u64 at;
	struct {
		u32 initialized, key;
	} key;

	*state = 0;
	if (p->thread == PYTHON_BY_KEY) {
		if (!runtime_read(&key, sizeof(key), p->runtime + p->key))
			return false;
		return key.initialized != 1 || glibc_key(thread_pointer, key.key, state);
	}
	if (p->thread != PYTHON_BY_LOCAL)
		return false;
	at = runtime_local(&p->local, thread_pointer);
	return at && runtime_read(state, 8, at);
}

/*
 * Whether a state is the current thread's: it has the address of the C library's struct pthread,
 * which on arm64 is before the thread pointer. Programs may run a state in another thread than the
 * one that made it. So with w->top, a state is the thread's if its C frame is on the thread's
 * stack.
 */
static __always_inline bool python_owns(const struct runtime_walk *w, u64 state)
{
	const struct python_process *p = &w->process.python;
	u64 id;

	if (!state)
		return false;
	if (w->top)
		return runtime_read(&id, 8, state + p->thread_cframe) && id >= w->low &&
		       id < w->top;
	if (!runtime_read(&id, 8, state + p->thread_id))
		return false;
#if defined(__TARGET_ARCH_x86)
	return id == w->thread_pointer;
#else
	return w->thread_pointer - id <= PYTHON_PTHREAD;
#endif
}

/* Whether a state is in its interpreter's list. If CPython frees it, it no longer is. */
static __always_inline bool python_linked(const struct python_process *p, u64 state)
{
	u64 words[3], at; /* previous state, next one, interpreter */

	if (!runtime_read(words, sizeof(words), state + p->thread_next - 8))
		return false;
	if (words[0])
		return runtime_read(&at, 8, words[0] + p->thread_next) && at == state;
	return runtime_read(&at, 8, words[2] + p->threads) && at == state;
}

/* The kept state of a thread, enum python_absence, or 0. */
static __always_inline u64 python_kept(u64 thread)
{
	u32 index = (thread >> 32) % PYTHON_STATE_SETS, i;
	struct python_state_set *set = bpf_map_lookup_elem(&python_states, &index);

	for (i = 0; set && i < PYTHON_STATE_WAYS; i++)
		if (set->of[i].thread == thread)
			return set->of[i].state;
	return 0;
}

/* Keeps the state of a thread. */
static __always_inline void python_keep(u64 thread, u64 state)
{
	u32 index = (thread >> 32) % PYTHON_STATE_SETS, i, way = (thread >> 60) % PYTHON_STATE_WAYS;
	struct python_state_set *set = bpf_map_lookup_elem(&python_states, &index);

	if (!set)
		return;
	for (i = 0; i < PYTHON_STATE_WAYS; i++)
		if (set->of[i].thread == thread)
			way = i;
	barrier_var(way); /* keeps the bounds check before the pointer arithmetic */
	if (way >= PYTHON_STATE_WAYS)
		return;
	if (set->of[way].thread == thread && set->of[way].state == state)
		return;
	set->of[way].thread = thread;
	set->of[way].state = state;
}

/*
 * Looks whether a state is the current thread's, and notes it. A thread may have one in each
 * interpreter. From 3.12 on, one of them has a mark. Before, it is the one that runs the
 * innermost frames: its C frame has the lowest address. In 3.9, which has no C frames, it is the
 * newest interpreter's, which is the first one in the list.
 */
UNWIND_GLOBAL int python_consider(u32 scratch, u64 state)
{
	struct stack_scratch *s = runtime_scratch(scratch);
	struct python_process *p;
	struct runtime_walk *w;
	u64 frame = 0, cframe = 0;
	u8 status = 0;

	if (!s)
		return 1;
	w = &s->runtime_walk;
	p = &w->process.python;
	if (!python_owns(w, state))
		return 0;
	if (p->thread_status) {
		if (!runtime_read(&status, 1, state + p->thread_status) ||
		    !(status & PYTHON_BOUND_GILSTATE))
			return 0;
		w->thread = state;
		return 1;
	}
	if (p->thread_cframe && !runtime_read(&cframe, 8, state + p->thread_cframe))
		return 0;
	if (!runtime_read(&frame, 8,
			  p->thread_frame ? state + p->thread_frame : cframe + p->cframe_frame))
		return 0;
	if (!frame) {
		w->idle = state;
	} else if (!w->thread || cframe < w->innermost) {
		w->thread = state;
		w->innermost = cframe;
	}
	return 0;
}

/* Takes the next step of a search. Returns 1 at its end. */
UNWIND_GLOBAL int python_search_step(u32 scratch)
{
	struct stack_scratch *s = runtime_scratch(scratch);
	struct python_process *p;
	struct runtime_walk *w;
	u64 at;

	if (!s)
		return 1;
	w = &s->runtime_walk;
	p = &w->process.python;
	at = w->listed;
	if (at)
		return python_consider(scratch, at) ||
		       !runtime_read(&w->listed, 8, at + p->thread_next);
	at = w->interpreter;
	w->searched = !at;
	return !at || !runtime_read(&w->listed, 8, at + p->threads) ||
	       !runtime_read(&w->interpreter, 8, at + p->interpreter_next);
}

/* Takes the next steps of a search. Returns 1 at its end. */
UNWIND_GLOBAL int python_search_steps(u32 scratch)
{
	u32 i;

	for (i = 0; i < PYTHON_SEARCH_EACH; i++)
		if (python_search_step(scratch))
			return 1;
	return 0;
}

/*
 * Finds the state of the current thread, even if it has released the lock. w->thread is then its
 * address, or 0. Returns 1 if only a search can find it.
 *
 * Up to 3.11, PyGILState_GetThisThreadState() returns the first state that the thread has had.
 * If there are several interpreters, it may run another one: the one that holds the lock, if that
 * is the thread's own. If the thread has released the lock, its states must be compared.
 */
UNWIND_GLOBAL int python_find_thread(u32 scratch)
{
	struct stack_scratch *s = runtime_scratch(scratch);
	u64 interpreters[2] = {}, state = 0, now;
	struct task_struct *task = current_task();
	struct python_process *p;
	struct runtime_walk *w;
	bool owned;

	if (!s)
		return 0;
	w = &s->runtime_walk;
	p = &w->process.python;
	w->thread = 0;
	w->several = 0;
	w->top = 0;
	w->thread_pointer = task_thread_pointer(task);
	if (python_gilstate(p, w->thread_pointer, &state) && !state)
		return 0; /* a thread without Python */
	owned = python_owns(w, state);
	if (!p->holder && owned)
		goto found;
	/* The first interpreter and the main one, which is the last one. */
	if (!runtime_read(interpreters, sizeof(interpreters), p->runtime + p->interpreters))
		return 0;
	w->several = p->holder && interpreters[0] != interpreters[1];
	if (owned && !w->several)
		goto found;
	/* glibc and musl keep struct pthread above a thread's stack, but not above the main
	 * thread's, which is near the end of the address space. */
	if (w->several && p->thread_cframe)
		w->top = w->low < w->thread_pointer ? w->thread_pointer : -1;
	w->key = hash_step(w->image, task_pid(task)) | 1;
	if (p->holder && runtime_read(&state, 8, p->runtime + p->holder) && python_owns(w, state)) {
		python_keep(w->key, state);
		goto found;
	}
	now = bpf_ktime_get_ns() >> PYTHON_ABSENCE_SHIFT;
	w->kept = python_kept(w->key);
	if (w->kept & PYTHON_ABSENT) {
		if (!w->several && w->kept >> PYTHON_ABSENCE_BITS == now) {
			if (w->kept & PYTHON_UNSEARCHED)
				stat_add(STAT_UNSEARCHED, 1);
			return 0;
		}
		w->kept = 0;
	}
	w->interpreter = interpreters[0];
	w->listed = 0;
	w->idle = 0;
	w->innermost = 0;
	w->searched = 0;
	if (w->kept && !python_linked(p, w->kept))
		w->kept = 0;
	if (w->kept && !w->several)
		python_consider(scratch, w->kept);
	if (!w->thread)
		w->thread = w->idle;
	return !w->thread;
found:
	w->thread = state;
	return 0;
}

/* Keeps the result of a search. */
UNWIND_GLOBAL int python_searched(u32 scratch)
{
	struct stack_scratch *s = runtime_scratch(scratch);
	struct runtime_walk *w;
	u64 now;

	if (!s)
		return 0;
	w = &s->runtime_walk;
	if (w->kept && w->several && !w->searched)
		python_consider(scratch, w->kept);
	if (!w->thread)
		w->thread = w->idle;
	if (w->thread) {
		python_keep(w->key, w->thread);
		return 0;
	}
	if (!w->searched)
		stat_add(STAT_UNSEARCHED, 1);
	now = bpf_ktime_get_ns() >> PYTHON_ABSENCE_SHIFT;
	if (!w->several)
		python_keep(w->key, now << PYTHON_ABSENCE_BITS | PYTHON_ABSENT |
					    (w->searched ? 0 : PYTHON_UNSEARCHED));
	return 0;
}

/* Searches all interpreters for the current thread's state. */
static __always_inline void python_search(u32 scratch)
{
	struct stack_scratch *s = runtime_scratch(scratch);
	u32 most, i;

	if (!s)
		return;
	most = s->runtime_walk.several ? PYTHON_SEARCHES_AGAIN : PYTHON_SEARCHES;
	for (i = 0; i < PYTHON_SEARCHES && i < most; i++)
		if (python_search_steps(scratch))
			break;
	python_searched(scratch);
}

/* Finds the innermost frame. */
UNWIND_GLOBAL int python_begin(u32 scratch)
{
	struct stack_scratch *s = runtime_scratch(scratch);
	struct runtime_walk *w;
	struct python_process *p;

	if (!s)
		return 1;
	w = &s->runtime_walk;
	p = &w->process.python;
	w->frame = 0;
	w->cframe = 0;
	w->retried = 0;
	if (!w->thread)
		return 1;
	if (p->thread_cframe && !runtime_read(&w->cframe, 8, w->thread + p->thread_cframe))
		return 1;
	if (p->thread_frame)
		return !runtime_read(&w->frame, 8, w->thread + p->thread_frame);
	return !runtime_read(&w->frame, 8, w->cframe + p->cframe_frame);
}

/*
 * Reads the length and width of the str at an address, its hash (-1 if not computed yet), and
 * the address of its text.
 */
static __always_inline bool python_string(const struct python_process *p, u64 at,
					  struct code_text *text, u64 *address, u64 *hash)
{
	u64 words[3]; /* length, hash, state */
	u32 state, width;

	if (!runtime_read(words, sizeof(words), at + PYTHON_STRING_LENGTH))
		return false;
	*hash = words[1];
	state = words[2];
	width = state >> 2 & 7;
	if (!(state & 1 << 5) || (width != 1 && width != 2 && width != 4))
		return false; /* its text is elsewhere */
	text->length = words[0] > 0xffff ? 0xffff : words[0];
	text->width = width;
	*address = at + (state & 1 << 6 ? p->string_ascii : p->string_compact);
	return true;
}

/* Mixes the str at an address into a hash. */
UNWIND_GLOBAL u64 python_hash_string(u32 scratch, u64 at, u64 hash)
{
	struct stack_scratch *s = runtime_scratch(scratch);
	struct code_text text = {};
	u64 address = 0, known = -1;

	if (!s || !python_string(&s->runtime_walk.process.python, at, &text, &address, &known))
		return hash;
	if (known != -1ULL)
		return hash_step(hash, known); /* known for all names in compiled files */
	return runtime_hash_text(scratch, address, (u64)text.length * text.width, hash);
}

/*
 * A check that distinguishes code from earlier code at the same address. From 3.12 on, code
 * has a unique number for this.
 */
static __always_inline u32 python_check(u32 scratch, struct runtime_walk *w)
{
	struct python_process *p = &w->process.python;
	u64 hash;

	if (p->code_version)
		return RUNTIME_AT(w->code_words, u32, p->code_version);
	hash = hash_step(RUNTIME_AT(w->code_words, u32, p->code_line),
			 RUNTIME_AT(w->code_words, u64, p->code_lines));
	hash = python_hash_string(scratch, RUNTIME_AT(w->code_words, u64, p->code_file), hash);
	hash = python_hash_string(scratch, RUNTIME_AT(w->code_words, u64, p->code_name), hash);
	return hash >> 32;
}

/* Sends the code in code_words, which is at an address. */
UNWIND_GLOBAL int python_send(u32 scratch, u64 address, u32 check)
{
	struct stack_scratch *s = runtime_scratch(scratch);
	struct code_record *rec = bpf_map_lookup_elem(&code_scratch, &scratch);
	struct python_process *p;
	struct runtime_walk *w;
	u64 at = 0, size, lines, table, hash;

	if (!s || !rec)
		return 0;
	w = &s->runtime_walk;
	p = &w->process.python;
	rec->head.pid = w->tgid;
	rec->head.epoch = s->record.epoch;
	rec->head.address = address;
	rec->head.check = check;
	rec->head.kind = RUNTIME_PYTHON;
	rec->head.version = p->minor;
	rec->head.first_line = RUNTIME_AT(w->code_words, u32, p->code_line);

	if (!python_string(p, RUNTIME_AT(w->code_words, u64, p->code_name), &rec->head.name, &at,
			   &hash))
		return 0;
	size = (u64)rec->head.name.length * rec->head.name.width;
	if (size > CODE_TEXT)
		size = CODE_TEXT;
	barrier_var(size);
	size &= 0x1ff;
	if (size > CODE_TEXT || bpf_probe_read_user(rec->head.name_text, size, (void *)at))
		return 0;

	rec->head.file.length = 0;
	if (python_string(p, RUNTIME_AT(w->code_words, u64, p->code_file), &rec->head.file, &at,
			  &hash)) {
		size = (u64)rec->head.file.length * rec->head.file.width;
		if (size > CODE_TEXT)
			size = CODE_TEXT;
		barrier_var(size);
		size &= 0x1ff;
		if (size > CODE_TEXT || bpf_probe_read_user(rec->head.file_text, size, (void *)at))
			rec->head.file.length = 0;
	}

	lines = 0;
	table = RUNTIME_AT(w->code_words, u64, p->code_lines);
	if (!runtime_read(&lines, 8, table + PYTHON_BYTES_SIZE))
		lines = 0;
	if (lines > CODE_LINES)
		lines = CODE_LINES;
	barrier_var(lines);
	lines &= 0x7fff;
	if (lines > CODE_LINES ||
	    bpf_probe_read_user(rec->line_table, lines, (void *)(table + PYTHON_BYTES)))
		lines = 0;
	code_send(scratch, code_key(&s->record, address, check), lines);
	return 0;
}

/* The frame's position in its code plus 1, in the line table's unit; 0 if unknown. */
static __always_inline u32 python_position(struct runtime_walk *w, u64 code)
{
	struct python_process *p = &w->process.python;
	s64 at;

	if (p->code_bytes)
		at = (s64)(RUNTIME_AT(w->frame_words, u64, p->frame_position) - code -
			   p->code_bytes) >>
		     1;
	else
		at = RUNTIME_AT(w->frame_words, s32, p->frame_position);
	return at < 0 || at >= FRAME_ENTERED - 1 ? 0 : at + 1;
}

/* Reads the frame that comes next in the chain. */
static __always_inline bool python_next(struct runtime_walk *w)
{
	struct python_process *p = &w->process.python;
	u64 size = p->frame_size;

	barrier_var(size);
	size &= 0x7f;
	if (!w->frame || size > sizeof(w->frame_words) ||
	    bpf_probe_read_user(w->frame_words, size, (void *)w->frame))
		return false;
	return true;
}

/* Ends a group after the frame in w if C called that frame. */
static __always_inline bool python_group(struct stack_scratch *s)
{
	struct runtime_walk *w = &s->runtime_walk;
	struct python_process *p = &w->process.python;
	u64 entry = w->cframe;

	switch (p->entry) {
	case PYTHON_ENTRY_MARKED:
		/* is_entry is before owner. */
		if (!RUNTIME_AT(w->frame_words, u8, p->frame_owner - 1))
			return true;
		break;
	case PYTHON_ENTRY_EACH:
		break;
	case PYTHON_ENTRY_FUNCTION:
		return runtime_group(&s->runtime, 0);
	default:
		return true;
	}
	return runtime_group(&s->runtime, entry) &&
	       runtime_read(&w->cframe, 8, entry + p->cframe_previous);
}

/* Whether the frame in w has no code, and thus ends a group. */
static __always_inline bool python_is_entry(struct runtime_walk *w)
{
	struct python_process *p = &w->process.python;

	return p->entry == PYTHON_ENTRY_FRAME &&
	       RUNTIME_AT(w->frame_words, u8, p->frame_owner) >= PYTHON_OWNED_BY_C;
}

/* Adds the next frame. Returns 1 at the end of the walk. */
UNWIND_GLOBAL int python_frame(u32 scratch)
{
	struct stack_scratch *s = runtime_scratch(scratch);
	struct python_process *p;
	struct runtime_stack *r;
	struct runtime_walk *w;
	u64 at, code;
	u32 check;

	if (!s)
		return 1;
	w = &s->runtime_walk;
	r = &s->runtime;
	p = &w->process.python;
	at = w->frame;
	if (!python_next(w))
		goto bad;
	if (python_is_entry(w)) {
		w->frame = RUNTIME_AT(w->frame_words, u64, p->frame_back);
		/* In 3.15 the last one is in the thread's state, and runs no frames. */
		return at - w->thread < PYTHON_THREAD_STATE || !runtime_group(r, at);
	}
	code = RUNTIME_AT(w->frame_words, u64, p->frame_code) & ~7ULL;
	if (!runtime_read(w->code_words, sizeof(w->code_words), code) ||
	    w->code_words[1] != p->code_type)
		goto bad;
	if (r->words >= 2 * max_depth)
		return runtime_end(r, END_DEPTH);
	check = python_check(scratch, w);
	if (!runtime_frame(r, RUNTIME_PYTHON, code, (u64)check << 32 | python_position(w, code)))
		return 1;
	if (!code_sent(code_key(&s->record, code, check)))
		python_send(scratch, code, check);
	w->frame = RUNTIME_AT(w->frame_words, u64, p->frame_back);
	return !python_group(s);
bad:
	if (r->words > r->parts[PART_PYTHON].from)
		return w->frame ? runtime_end(r, END_FAULT) : 1;
	/* 3.11 and 3.12 link a C frame before setting its pointer to a frame. */
	if (w->retried || !p->thread_cframe || p->thread_frame)
		return 1;
	w->retried = 1;
	return !runtime_read(&w->cframe, 8, w->cframe + p->cframe_previous) ||
	       !runtime_read(&w->frame, 8, w->cframe + p->cframe_frame);
}

/*
 * Skips a frame of a truncated stack, to find the entry of its group. Returns 1 at the end
 * of the group.
 */
UNWIND_GLOBAL int python_skip(u32 scratch)
{
	struct stack_scratch *s = runtime_scratch(scratch);
	struct runtime_walk *w;
	u32 groups;

	if (!s)
		return 1;
	w = &s->runtime_walk;
	groups = s->runtime.groups;
	if (!python_next(w))
		return 1;
	if (python_is_entry(w)) {
		runtime_group(&s->runtime, w->frame);
		return 1;
	}
	if (!python_group(s) || s->runtime.groups != groups)
		return 1;
	w->frame = RUNTIME_AT(w->frame_words, u64, w->process.python.frame_back);
	return 0;
}

/* Skips the next frames. Returns 1 at the end of the group. */
UNWIND_GLOBAL int python_skips(u32 scratch)
{
	u32 i;

	for (i = 0; i < PYTHON_SKIP_EACH; i++)
		if (python_skip(scratch))
			return 1;
	return 0;
}

/* Adds the next frames. Returns 1 at the end of the walk. */
UNWIND_GLOBAL int python_frames(u32 scratch)
{
	u32 i;

	for (i = 0; i < PYTHON_FRAMES_EACH; i++)
		if (python_frame(scratch))
			return 1;
	return 0;
}

/* Reads the Python frames of the current task. */
static __always_inline void python_walk(u32 scratch)
{
	struct stack_scratch *s;
	u32 i;

	if (python_find_thread(scratch))
		python_search(scratch);
	if (python_begin(scratch))
		return;
	for (i = 0; i < PYTHON_TURNS; i++)
		if (python_frames(scratch))
			break;
	s = runtime_scratch(scratch);
	if (!s || !s->runtime.end)
		return;
	for (i = 0; i < PYTHON_SKIP_TURNS; i++)
		if (python_skips(scratch))
			break;
}

#endif
