/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Frames of CPython 3.9 to 3.15. The interpreter keeps a chain of frames for each thread.
 * From 3.10 on, each call from C to Python leaves an object in the native frame of the
 * interpreter's function: a frame without code (from 3.12 on), or a C frame that points to
 * the Python frames. The object's address shows which native frame runs which Python frames.
 * Symbols do not show it, since compilers split that function. See docs/languages.md.
 *
 * Data in the process may be forged, or change during the walk. So code is valid only if its
 * type is PyCode_Type, and a thread's state only if it contains the thread's pointer.
 */
#ifndef FULGUR_PYTHON_H
#define FULGUR_PYTHON_H

/* Included by runtime.h. */

#define PYTHON_THREADS 64 /* maximum number of threads to look at in a list */
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

/* The address of the value of a pthread key, or 0. */
static __always_inline u64 glibc_key_at(u64 thread_pointer, u32 key)
{
	u64 block = thread_pointer + GLIBC_KEYS;

	if (key >= 32 * GLIBC_BLOCK)
		return 0;
	if (key >= GLIBC_BLOCK &&
	    !runtime_read(&block, 8, block + 16 * GLIBC_BLOCK + 8 * (key / GLIBC_BLOCK)))
		return 0;
	return block ? block + 16 * (key % GLIBC_BLOCK) + 8 : 0;
}

/* The state of the thread in the main interpreter's list, or 0. */
static __always_inline u64 python_listed_thread(const struct python_process *p, u64 thread_pointer)
{
	u64 at = 0, id;
	u32 i;

	if (!runtime_read(&at, 8, p->runtime + p->interpreters) || !at ||
	    !runtime_read(&at, 8, at + p->threads))
		return 0;
	for (i = 0; i < PYTHON_THREADS && at; i++) {
		if (!runtime_read(&id, 8, at + p->thread_id))
			return 0;
		if (id == thread_pointer)
			return at;
		if (!runtime_read(&at, 8, at + p->thread_next))
			return 0;
	}
	return 0;
}

/*
 * The state of the current thread, or 0. Like PyGILState_GetThisThreadState(), it finds the
 * state of a thread that has released the lock, too.
 */
static __always_inline u64 python_thread_state(const struct python_process *p)
{
	u64 thread_pointer = task_thread_pointer(current_task()), at = 0, thread = 0, id;
	struct {
		u32 initialized, key;
	} key;

	if (p->thread == PYTHON_BY_KEY) {
		if (!runtime_read(&key, sizeof(key), p->runtime + p->key))
			return 0;
		if (key.initialized == 1)
			at = glibc_key_at(thread_pointer, key.key);
	} else if (p->thread == PYTHON_BY_OFFSET) {
		at = thread_pointer + (s64)p->thread_offset;
	}
	if (at) {
		if (!runtime_read(&thread, 8, at) || !thread)
			return 0; /* a thread without Python */
		if (runtime_read(&id, 8, thread + p->thread_id) && id == thread_pointer)
			return thread;
	}
	return python_listed_thread(p, thread_pointer);
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
	w->thread = python_thread_state(p);
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
	if (r->words)
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
