/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Frames of CRuby 3.1 to 3.4. Each thread and fiber has an execution context with a stack of
 * control frames: of Ruby code, of functions in C, and others. Each call from C to Ruby runs
 * rb_vm_exec(), whose outermost control frame is marked (FINISH). rb_vm_exec() also links a tag
 * (struct rb_vm_tag), an object in its native frame, which saves the address where a jump to
 * the tag continues. By this address, tags of rb_vm_exec() differ from others. So the n-th marked
 * frame ends the group that the native frame with the n-th such tag runs.
 *
 * Data in the process may be forged, or change during the walk: code is valid only if its
 * object is an instruction sequence, and frames only if they are in the stack.
 */
#ifndef FULGUR_RUBY_H
#define FULGUR_RUBY_H

#include "hash.h"
#include "kernel.h"
#include "record.h"
#include "runtime_frames.h"
#include "runtime_maps.h"
#include "scratch.h"
#include "task.h"
#include "unwind_env.h"
#include "unwind_state.h"
#include <bpf/bpf_helpers.h>

/* Frames and tags per turn of a loop. The verifier follows each turn. */
#define RUBY_EACH 16
#define RUBY_TURNS (2 * MAX_RUNTIME_FRAMES / RUBY_EACH + 1)
#define RUBY_TAG_TURNS 16

/* Words of an execution context: see rb_execution_context_struct in vm_core.h. */
enum ruby_context_word {
	RUBY_STACK = 0, /* address of the stack's memory */
	RUBY_STACK_SIZE = 1, /* in words */
	RUBY_FRAME = 2, /* address of the innermost control frame, below the others */
	RUBY_TAG = 3, /* address of the innermost tag */
	RUBY_CONTEXT_WORDS = 4,
};
#define RUBY_MAX_STACK (1ULL << 32) /* bytes */

/* Words of a control frame: see rb_control_frame_struct in vm_core.h. */
enum ruby_frame_word {
	RUBY_PC = 0, /* address of the next instruction */
	RUBY_ISEQ = 2, /* the instruction sequence, which is an object, or 0 */
	RUBY_ENVIRONMENT = 4, /* address of the flags */
	RUBY_FRAME_WORDS = 5,
};
#define RUBY_FINISH 0x20 /* flag of a frame that C called */

/* Objects: the type is in the first word. See enum ruby_value_type in value_type.h. */
#define RUBY_TYPE 0x1f
#define RUBY_STRING 0x05
#define RUBY_ARRAY 0x07
#define RUBY_INTERNAL 0x1a
#define RUBY_INTERNAL_TYPE 0xf000
#define RUBY_INTERNAL_ISEQ 0x7000 /* imemo_iseq */
/* FL_USER1: in strings, the text is not in the object; in arrays, the elements are. */
#define RUBY_USER1 (1 << 13)

/* Of rb_iseq_constant_body: see vm_core.h. */
#define RUBY_BODY_SIZE 0 /* the upper half is the number of instruction words */
#define RUBY_BODY_CODE 1 /* address of the instructions */
#define RUBY_BODY_LOCATION 8 /* path, base label, label, first line, place in the source */
#define RUBY_BODY_PATH 8
#define RUBY_BODY_LABEL 10
#define RUBY_BODY_LINE 11

/* Of iseq_insn_info: see iseq.h. */
#define RUBY_INFO_LINES 0 /* address of the table of lines */
#define RUBY_INFO_SIZE 2 /* number of its entries */
#define RUBY_INFO_INDEX 3 /* address of the index from positions to entries */

/*
 * The line table that is sent: the bytes of entries in 8 bytes, the entries, then the index
 * (succ_index_table in iseq.c).
 */
#define RUBY_LINE_BYTES 12
#define RUBY_LINES (1023 * RUBY_LINE_BYTES)
#define RUBY_INDEX 4048
#define RUBY_NEAR 54 /* positions that the index's first part has, 9 in each word */
#define RUBY_NEAR_EACH 9
#define RUBY_BLOCK 512 /* positions in each block that follows */
#define RUBY_BLOCK_BYTES 80

/* DWARF's number of the stack pointer. */
#if defined(__TARGET_ARCH_x86)
#define RUBY_SP_REGISTER 7
#else
#define RUBY_SP_REGISTER 31
#endif

/* What setjmp() of glibc for amd64 saves is encoded with a number in struct pthread. */
#define GLIBC_POINTER_GUARD 0x30
#define GLIBC_GUARD_SHIFT 17

/* Finds the innermost frame and the innermost tag. */
UNWIND_GLOBAL int ruby_begin(u32 scratch)
{
	struct stack_scratch *s = runtime_scratch(scratch);
	u64 thread_pointer, context, bytes;
	struct ruby_process *p;
	struct runtime_walk *w;

	if (!s)
		return 1;
	w = &s->runtime_walk;
	p = &w->process.ruby;
	thread_pointer = task_thread_pointer(current_task());
	w->guard = 0;
	if (p->guarded && !runtime_read(&w->guard, 8, thread_pointer + GLIBC_POINTER_GUARD))
		return 1;
	context = runtime_local(&p->context, thread_pointer);
	if (!context || !runtime_read(&context, 8, context) || !context ||
	    !runtime_read(w->frame_words, 8 * RUBY_CONTEXT_WORDS, context))
		return 1;
	bytes = 8 * w->frame_words[RUBY_STACK_SIZE];
	w->frame = w->frame_words[RUBY_FRAME];
	w->cframe = w->frame_words[RUBY_TAG];
	/* The outermost frame is of the thread itself: backtraces do not show it. */
	w->end = w->frame_words[RUBY_STACK] + bytes - p->frame_size;
	w->entries = 0;
	return bytes > RUBY_MAX_STACK || w->frame - w->frame_words[RUBY_STACK] >= bytes;
}

/* Notes the next tag if it is of rb_vm_exec(). Returns 1 after the last one. */
UNWIND_GLOBAL int ruby_tag(u32 scratch)
{
	struct stack_scratch *s = runtime_scratch(scratch);
	struct ruby_process *p;
	struct runtime_walk *w;
	u64 at, pc = 0;
	u32 n;

	if (!s)
		return 1;
	w = &s->runtime_walk;
	p = &w->process.ruby;
	at = w->cframe;
	if (!at || !runtime_read(&pc, 8, at + p->tag_pc) ||
	    !runtime_read(&w->cframe, 8, at + p->tag_previous))
		return 1;
	if (p->guarded)
		pc = (pc >> GLIBC_GUARD_SHIFT | pc << (64 - GLIBC_GUARD_SHIFT)) ^ w->guard;
	if (pc >= p->interpreter.start && pc < p->interpreter.end) {
		/* The first entry is free for ruby_match(). */
		n = w->entries + 1;
		if (n >= MAX_RUNTIME_FRAMES)
			return 1;
		s->runtime.entries[n] = at;
		w->entries = n;
	}
	return w->cframe <= at;
}

/* Notes the next tags. Returns 1 after the last one. */
UNWIND_GLOBAL int ruby_tags(u32 scratch)
{
	u32 i;

	for (i = 0; i < RUBY_EACH; i++)
		if (ruby_tag(scratch))
			return 1;
	return 0;
}

/* Finds the text of a string, or of the first string of an array. Returns 1 if there is none. */
UNWIND_GLOBAL int ruby_find_text(u32 scratch, u64 at)
{
	struct stack_scratch *s = runtime_scratch(scratch);
	struct runtime_walk *w;
	u64 *object;

	if (!s)
		return 1;
	w = &s->runtime_walk;
	object = w->object;
	if (!runtime_read(object, sizeof(w->object), at))
		return 1;
	if ((object[0] & RUBY_TYPE) == RUBY_ARRAY) {
		at = object[2];
		if (!(object[0] & RUBY_USER1) && !runtime_read(&at, 8, object[4]))
			return 1;
		if (!runtime_read(object, sizeof(w->object), at))
			return 1;
	}
	if ((object[0] & RUBY_TYPE) != RUBY_STRING)
		return 1;
	w->string_length = object[2];
	w->string = object[3];
	if (!(object[0] & RUBY_USER1)) {
		w->string = at + w->process.ruby.string_text;
		if (w->process.ruby.string_text == 16)
			w->string_length = object[0] >> 14 & 0x1f;
	}
	return 0;
}

/* Mixes a string into a hash. */
UNWIND_GLOBAL u64 ruby_hash_string(u32 scratch, u64 at, u64 hash)
{
	struct stack_scratch *s = runtime_scratch(scratch);
	struct runtime_walk *w;

	if (!s || ruby_find_text(scratch, at))
		return hash;
	w = &s->runtime_walk;
	return runtime_hash_text(scratch, w->string, w->string_length, hash);
}

/* Copies the start of a string, the file or the name of code, to the record. */
UNWIND_GLOBAL int ruby_copy_string(u32 scratch, u64 at, bool file)
{
	struct stack_scratch *s = runtime_scratch(scratch);
	struct code_record *rec = bpf_map_lookup_elem(&code_scratch, &scratch);
	struct code_text *text;
	u64 size;

	if (!s || !rec)
		return 1;
	text = file ? &rec->head.file : &rec->head.name;
	text->length = 0;
	text->width = CODE_UTF8;
	if (ruby_find_text(scratch, at))
		return 1;
	at = s->runtime_walk.string;
	size = s->runtime_walk.string_length;
	if (size > 0xffff)
		size = 0xffff;
	text->length = size;
	if (size > CODE_TEXT)
		size = CODE_TEXT;
	barrier_var(size);
	size &= 0x1ff;
	if (size > CODE_TEXT ||
	    bpf_probe_read_user(file ? rec->head.file_text : rec->head.name_text, size,
				(void *)at)) {
		text->length = 0;
		return 1;
	}
	return 0;
}

/* A check that distinguishes code from earlier code at the same address. */
static __always_inline u32 ruby_check(u32 scratch, struct runtime_walk *w)
{
	u64 hash = hash_step(w->body[RUBY_BODY_SIZE], w->body[RUBY_BODY_CODE]);
	u32 i;

	for (i = RUBY_BODY_LINE; i < RUBY_BODY_WORDS; i++)
		hash = hash_step(hash, w->body[i]);
	hash = ruby_hash_string(scratch, w->body[RUBY_BODY_LABEL], hash);
	hash = ruby_hash_string(scratch, w->body[RUBY_BODY_PATH], hash);
	return hash >> 32;
}

/* Copies the line table of the code in body, and returns the number of its bytes. */
UNWIND_GLOBAL u64 ruby_copy_lines(u32 scratch)
{
	struct stack_scratch *s = runtime_scratch(scratch);
	struct code_record *rec = bpf_map_lookup_elem(&code_scratch, &scratch);
	u64 lines, index, words, near, *info;
	struct runtime_walk *w;
	u32 n;

	if (!s || !rec)
		return 0;
	w = &s->runtime_walk;
	n = w->process.ruby.body_info / 8;
	barrier_var(n); /* keeps the bounds check before the pointer arithmetic */
	if (n > RUBY_BODY_WORDS - RUBY_INFO_INDEX - 1)
		return 0;
	info = &w->body[n];
	lines = (info[RUBY_INFO_SIZE] & 0xffffffff) * RUBY_LINE_BYTES;
	if (lines > RUBY_LINES)
		lines = RUBY_LINES;
	barrier_var(lines);
	lines &= 0x3fff;
	if (lines > RUBY_LINES ||
	    bpf_probe_read_user(rec->line_table + 8, lines, (void *)info[RUBY_INFO_LINES]))
		return 0;
	*(u64 *)rec->line_table = lines;
	words = w->body[RUBY_BODY_SIZE] >> 32;
	near = words < RUBY_NEAR ? words : RUBY_NEAR;
	index = (near + RUBY_NEAR_EACH - 1) / RUBY_NEAR_EACH * 8 +
		(words - near + RUBY_BLOCK - 1) / RUBY_BLOCK * RUBY_BLOCK_BYTES;
	if (index > RUBY_INDEX)
		index = RUBY_INDEX;
	barrier_var(index);
	index &= 0xfff;
	if (index > RUBY_INDEX ||
	    bpf_probe_read_user(rec->line_table + 8 + lines, index, (void *)info[RUBY_INFO_INDEX]))
		return 0;
	return 8 + lines + index;
}

/* Sends the code in body, whose object is at an address. */
UNWIND_GLOBAL int ruby_send(u32 scratch, u64 address, u32 check)
{
	struct stack_scratch *s = runtime_scratch(scratch);
	struct code_record *rec = bpf_map_lookup_elem(&code_scratch, &scratch);
	struct runtime_walk *w;

	if (!s || !rec)
		return 0;
	w = &s->runtime_walk;
	rec->head.pid = w->tgid;
	rec->head.epoch = s->record.epoch;
	rec->head.address = address;
	rec->head.check = check;
	rec->head.kind = RUNTIME_RUBY;
	rec->head.version = w->process.ruby.minor;
	rec->head.first_line = w->body[RUBY_BODY_LINE] >> (w->process.ruby.line_shift & 1);
	ruby_copy_string(scratch, w->body[RUBY_BODY_PATH], true);
	if (ruby_copy_string(scratch, w->body[RUBY_BODY_LABEL], false))
		return 0;
	code_send(scratch, code_key(&s->record, address, check), ruby_copy_lines(scratch));
	return 0;
}

/* The frame's position in its code plus 1, in words, as rb_iseq_line_no() takes it. */
static __always_inline u32 ruby_position(struct runtime_walk *w)
{
	u64 at = (w->frame_words[RUBY_PC] - w->body[RUBY_BODY_CODE]) / 8;

	if (at > 0)
		at--; /* the frame has the next instruction */
	/* Code of YJIT sets the instruction only before calls. */
	return at >= w->body[RUBY_BODY_SIZE] >> 32 || at >= FRAME_ENTERED - 1 ? 0 : at + 1;
}

/* Ends a group. ruby_match() sets its entry. */
static __always_inline bool ruby_group(struct runtime_stack *r)
{
	return runtime_group(r, r->entries[r->groups % MAX_RUNTIME_FRAMES]);
}

/* Adds the next frame. Returns 1 at the end of the walk. */
UNWIND_GLOBAL int ruby_frame(u32 scratch)
{
	struct stack_scratch *s = runtime_scratch(scratch);
	struct runtime_stack *r;
	struct runtime_walk *w;
	u64 flags = 0, code;
	u32 check;

	if (!s)
		return 1;
	w = &s->runtime_walk;
	r = &s->runtime;
	if (w->frame + 8 * RUBY_FRAME_WORDS > w->end)
		return 1;
	if (!runtime_read(w->frame_words, 8 * RUBY_FRAME_WORDS, w->frame))
		return runtime_end(r, END_FAULT);
	w->frame += w->process.ruby.frame_size;
	code = w->frame_words[RUBY_ISEQ];
	if (!code)
		return 0; /* of a function in C */
	if (!runtime_read(w->object, 24, code) || (w->object[0] & RUBY_TYPE) != RUBY_INTERNAL)
		return runtime_end(r, END_FAULT);
	if ((w->object[0] & RUBY_INTERNAL_TYPE) != RUBY_INTERNAL_ISEQ)
		return 0; /* of a block in C */
	if (!runtime_read(&flags, 8, w->frame_words[RUBY_ENVIRONMENT]) ||
	    !runtime_read(w->body, sizeof(w->body), w->object[2]))
		return runtime_end(r, END_FAULT);
	if (r->words >= 2 * max_depth)
		return runtime_end(r, END_DEPTH);
	check = ruby_check(scratch, w);
	if (!runtime_frame(r, RUNTIME_RUBY, code, (u64)check << 32 | ruby_position(w)))
		return 1;
	if (!code_sent(code_key(&s->record, code, check)))
		ruby_send(scratch, code, check);
	/*
	 * rb_vm_call_cfunc(), which loads extensions, marks a frame without rb_vm_exec(). Only that
	 * frame has no pc.
	 */
	return flags & RUBY_FINISH && w->frame_words[RUBY_PC] && !ruby_group(r);
}

/* Adds the next frames. Returns 1 at the end of the walk. */
UNWIND_GLOBAL int ruby_frames(u32 scratch)
{
	u32 i;

	for (i = 0; i < RUBY_EACH; i++)
		if (ruby_frame(scratch))
			return 1;
	return 0;
}

/*
 * Sets the entries of the groups. If rb_vm_exec() is about to begin, there is one group more
 * than tags. If it is about to return, there is one tag more than groups.
 */
UNWIND_GLOBAL int ruby_match(u32 scratch)
{
	struct stack_scratch *s = runtime_scratch(scratch);
	struct runtime_stack *r;
	u32 groups, entries, from = 1;
	u64 size;

	if (!s)
		return 0;
	r = &s->runtime;
	entries = s->runtime_walk.entries;
	if (r->end) {
		ruby_group(r);
		if (r->groups > entries)
			r->groups = entries;
	} else if (entries && r->groups == entries + 1) {
		if (!unwind_register(&s->walk, RUBY_SP_REGISTER, &r->entries[0]))
			r->groups = 0;
		return 0;
	} else if (r->groups + 1 == entries) {
		from = 2;
	} else if (r->groups != entries) {
		r->groups = 0; /* unknown: runtime_rest() appends all frames */
		return 0;
	}
	groups = r->groups;
	barrier_var(groups);
	if (groups > MAX_RUNTIME_FRAMES - 2)
		groups = MAX_RUNTIME_FRAMES - 2;
	size = 8 * groups;
	barrier_var(size);
	size &= 0x3ff;
	bpf_probe_read_kernel(r->entries, size, &r->entries[from]);
	return 0;
}

/* Reads the Ruby frames of the current task. */
static __always_inline void ruby_walk(u32 scratch)
{
	struct stack_scratch *s;
	u32 i;

	if (ruby_begin(scratch))
		return;
	for (i = 0; i < RUBY_TAG_TURNS; i++)
		if (ruby_tags(scratch))
			break;
	for (i = 0; i < RUBY_TURNS; i++)
		if (ruby_frames(scratch))
			break;
	if (i == RUBY_TURNS) {
		s = runtime_scratch(scratch);
		if (s)
			runtime_end(&s->runtime, END_DEPTH);
	}
	ruby_match(scratch);
}

#endif
