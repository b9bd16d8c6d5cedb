/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Frames of Java in HotSpot 17, 21 and 25. Compiled code has no frame pointers and no unwind
 * tables. All code that the JVM makes is in its code cache, in blobs: the code of a method,
 * the interpreter, or stubs. A map of segments leads from an address to its blob, whose
 * header has the size of its frames (see frame::sender() and CodeHeap::find_start() of
 * HotSpot). Interpreted methods have frame pointers. The native walk steps through other
 * code as usual.
 *
 * A blob or a method is identified by its address and a check. User space reads its name,
 * its inlined calls and its lines: see internal/runtimes/hotspot.
 *
 * Data in the process may be forged, or change during the walk: then frames have wrong
 * places, at which user space finds no function.
 */
#ifndef FULGUR_HOTSPOT_H
#define FULGUR_HOTSPOT_H

#include "hash.h"
#include "kernel.h"
#include "record.h"
#include "runtime_frames.h"
#include "runtime_maps.h"
#include "scratch.h"
#include "unwind_env.h"
#include "unwind_state.h"
#include "unwind_walk.h"
#include <bpf/bpf_helpers.h>

#define HOTSPOT_HOPS 16 /* steps in the segment map; blobs of 500 KB need them */
#define HOTSPOT_FREE 0xff /* in the segment map */
#define HOTSPOT_AGAIN 28 /* ns, log2: when to look again for a code cache that is not made yet */
#define HOTSPOT_FRAME_MAX (1 << 20) /* bytes */
#define HOTSPOT_CONST 48 /* bytes to read of a ConstMethod, which is not smaller */

/* Slots of an interpreter's frame, from the frame pointer; see frame_x86.hpp. */
#define HOTSPOT_SENDER_SP (-8)
#define HOTSPOT_METHOD (-24)
#define HOTSPOT_BCP (-64)
#define HOTSPOT_BCP_REGISTER 13 /* r13 */

/* See generate_method_entry_barrier(). */
#define HOTSPOT_ROOM (~0ULL)

/* The first bytes of names of blobs. */
#define HOTSPOT_NMETHOD 0x00646f6874656d6eULL /* "nmethod" */
#define HOTSPOT_NATIVE_NMETHOD 0x6e2065766974616eULL /* "native nmethod" */
#define HOTSPOT_STUBS 0x74756f5262757453ULL /* "StubRoutines" */
#define HOTSPOT_UPCALL 0x735f6c6c61637075ULL /* "upcall_stub": calls of Java by native code */

/* How far a leaf's frame is built. */
enum hotspot_leaf {
	HOTSPOT_BUILT = 0,
	HOTSPOT_ENTERED = 1, /* the return address is at the stack pointer */
	HOTSPOT_PUSHED = 2, /* the frame pointer is, and the return address is above */
	HOTSPOT_UNSAVED = 3, /* it is built except for the frame pointer */
};

/* Returns the address of the blob that contains addr, or 0. */
UNWIND_GLOBAL u64 hotspot_find(u32 scratch, u64 addr)
{
	struct stack_scratch *s = runtime_scratch(scratch);
	const struct hotspot_process *p;
	u64 low = 0, map = 0, segment;
	u8 tag, shift;
	u32 n;

	if (!s)
		return 0;
	p = &s->runtime_walk.process.hotspot;
	for (n = 0; n < HOTSPOT_HEAPS; n++) {
		low = p->heaps[n].low;
		if (addr >= low && addr < p->heaps[n].high) {
			map = p->heaps[n].segments;
			break;
		}
	}
	if (!map)
		return 0;
	shift = p->segment_shift & 31;
	segment = (addr - low) >> shift;
	for (n = 0; n < HOTSPOT_HOPS; n++) {
		if (!runtime_read(&tag, 1, map + segment) || tag == HOTSPOT_FREE || tag > segment)
			return 0;
		if (!tag)
			return low + (segment << shift) + p->block_header;
		segment -= tag;
	}
	return 0;
}

/*
 * Decodes the instructions at the pc of a leaf. Prologues and epilogues of HotSpot's
 * compilers and stubs have few forms:
 *
 *	mov %eax,-N(%rsp); push %rbp; sub $N,%rsp     or   sub $N,%rsp; mov %rbp,N(%rsp)
 *	add $N,%rsp; pop %rbp; cmp N(%r15),%rsp; ja; ret
 *	push %rbp; mov %rsp,%rbp                     and  leave; ret      in stubs
 */
UNWIND_GLOBAL u32 hotspot_leaf(u32 scratch, u64 pc, bool prologue)
{
	struct stack_scratch *s = runtime_scratch(scratch);
	u64 *words;
	u32 next, before;
	u8 byte;

	if (!s)
		return HOTSPOT_BUILT;
	words = s->runtime_walk.text;
	if (!runtime_read(words, 16, pc - 8))
		return HOTSPOT_BUILT;
	next = (u32)words[1];
	byte = next;
	if (next == 0x246c8948 || next == 0x24ac8948) /* mov %rbp,N(%rsp) */
		return prologue ? HOTSPOT_UNSAVED : HOTSPOT_BUILT;
	before = words[0] >> 32;
	next &= 0xffffff;
	if (next == 0xec8348 || next == 0xec8148 || next == 0xec8b48 || next == 0xe58948)
		/* sub $N,%rsp; mov %rsp,%rbp */
		return before >> 24 == 0x55	      ? HOTSPOT_PUSHED
		       : prologue && next != 0xec8b48 ? HOTSPOT_ENTERED
						      : HOTSPOT_BUILT;
	if (byte == 0xc3 || next == 0xa73b49) /* ret; cmp N(%r15),%rsp */
		return HOTSPOT_ENTERED;
	if ((next & 0xffff) == 0x870f && (words[0] >> 8 & 0xffffff) == 0xa73b49) /* ja after it */
		return HOTSPOT_ENTERED;
	if (byte == 0x5d) { /* pop %rbp; then ret or cmp */
		byte = next >> 8;
		return byte == 0xc3 || byte == 0x49 ? HOTSPOT_PUSHED : HOTSPOT_BUILT;
	}
	if (byte == 0x55) /* push %rbp */
		return HOTSPOT_ENTERED;
	if (!prologue)
		return HOTSPOT_BUILT;
	/* What follows sub: the check of a barrier. */
	if ((before & 0xffffff) == 0xec8348 || (words[0] >> 8 & 0xffffff) == 0xec8148 ||
	    (words[0] & 0xffffff) == 0x7f8141 || next == 0x7f8141)
		return HOTSPOT_BUILT;
	return HOTSPOT_ENTERED;
}

/* Appends the frame of a method or blob to native frame i, the last one so far. */
static __always_inline void hotspot_frame(struct stack_scratch *s, u32 i, u64 address, u32 check,
					  u32 position)
{
	u32 at = s->walk.first + i;
	u64 key;

	barrier_var(at); /* keeps the bounds check before the pointer arithmetic */
	if (at >= MAX_FRAME_WORDS - 2)
		return;
	s->record.frames[at + 1] = 1ULL << FRAME_RUNTIME_SHIFT |
				   (u64)RUNTIME_HOTSPOT << FRAME_KIND_SHIFT |
				   (address & ((1ULL << FRAME_KIND_SHIFT) - 1));
	s->record.frames[at + 2] = (u64)check << 32 | FRAME_ENTERED | position;
	s->walk.first += 2;
	key = code_key(&s->record, address, check);
	if (!code_sent(key)) {
		code_remember(key);
		s->runtime.urgent = 1;
	}
}

/*
 * The check of a method, or 0. HotSpot reuses addresses soon after it unloads a class, or
 * when a class is redefined. The class's number is never used again.
 */
static __always_inline u32 hotspot_check(struct runtime_walk *w, u64 constant)
{
	struct hotspot_process *p = &w->process.hotspot;
	u64 pool = RUNTIME_AT(w->code_words, u64, p->const_pool);
	u64 index = RUNTIME_AT(w->code_words, u16, p->const_name);
	u64 hash = hash_step(constant, pool);

	if (!runtime_read(&w->frame, 8, pool + p->pool_holder) ||
	    !runtime_read(&w->frame, 8, w->frame + p->klass_id))
		return 0;
	hash = hash_step(hash, w->frame >> (p->klass_id_shift & 31));
	if (!runtime_read(&w->frame, 8, pool + p->pool_size + 8 * index))
		return 0;
	return (u32)(hash_step(hash, w->frame) >> 32) & ~1U;
}

/* Appends the method of an interpreter's frame, if there is one. Returns whether there is. */
UNWIND_GLOBAL int hotspot_interpreted(u32 scratch, u32 i)
{
	struct stack_scratch *s = runtime_scratch(scratch);
	struct hotspot_process *p;
	u64 method, bcp = 0, constant = 0;
	u32 index, check, position = 0;
	struct unwind_walk *w;
	u16 size;

	if (!s)
		return 0;
	p = &s->runtime_walk.process.hotspot;
	w = &s->walk;
	if (!unwind_load(w, w->fp + HOTSPOT_METHOD, &method) || method < UNWIND_LOWEST ||
	    method & 7 || !runtime_read(&constant, 8, method + p->method_const) ||
	    constant < UNWIND_LOWEST || constant & 7)
		return 0;
	if (!runtime_read(s->runtime_walk.code_words, HOTSPOT_CONST, constant))
		return 0;
	size = RUNTIME_AT(s->runtime_walk.code_words, u16, p->const_code_size);
	/* The address of the bytecode is in a register, or saved in the frame for a call. */
	if (w->exact && unwind_register(w, HOTSPOT_BCP_REGISTER, &bcp) &&
	    bcp - constant - p->const_size < size)
		position = bcp - constant - p->const_size + 1;
	else if (unwind_load(w, w->fp + HOTSPOT_BCP, &bcp) && bcp - constant - p->const_size < size)
		position = bcp - constant - p->const_size + 1;
	else if (size) /* native methods have no bytecodes */
		return 0;
	check = hotspot_check(&s->runtime_walk, constant);
	if (!check)
		return 0;
	/* The instruction of the interpreter would make more distinct stacks. */
	index = w->first + i;
	barrier_var(index);
	if (index < MAX_FRAME_WORDS)
		s->record.frames[index] = p->interpreter.start | (i ? FRAME_EXACT : 0);
	hotspot_frame(s, i, method, check, position);
	return 1;
}

/*
 * Appends the frame of the blob at an address, and returns the size of its frames in bytes,
 * 0 if the blob has frame pointers, -1 if it has no frames, and -2 if it is none.
 */
UNWIND_GLOBAL s64 hotspot_compiled(u32 scratch, u32 i, u64 blob)
{
	struct stack_scratch *s = runtime_scratch(scratch);
	struct hotspot_process *p;
	u64 *words, *word, name, first, id = 0, handler, other;
	struct unwind_walk *w;
	s64 frame;

	if (!s)
		return -2;
	p = &s->runtime_walk.process.hotspot;
	w = &s->walk;
	words = s->runtime_walk.blob;
	word = &s->runtime_walk.frame; /* the stack is small */
	if (!runtime_read(words, HOTSPOT_HEAD, blob))
		return -2;
	name = RUNTIME_AT(s->runtime_walk.blob, u64, p->blob_name);
	frame = (s64)RUNTIME_AT(s->runtime_walk.blob, s32, p->blob_frame) * 8;
	if (frame > HOTSPOT_FRAME_MAX || !runtime_read(word, 8, name))
		return -2;
	first = *word;
	if (first == HOTSPOT_NMETHOD || first == HOTSPOT_NATIVE_NMETHOD) {
		if (!runtime_read(&words[HOTSPOT_HEAD / 8], HOTSPOT_TAIL, blob + p->tail))
			return -2;
		id = (u64)RUNTIME_AT(s->runtime_walk.blob, u32, p->compile_id) << 32 |
		     (u32)RUNTIME_AT(s->runtime_walk.blob, u64, p->method);
		if (p->deopt_offsets) {
			handler = blob + RUNTIME_AT(s->runtime_walk.blob, u32, p->deopt);
			other = blob + RUNTIME_AT(s->runtime_walk.blob, u32, p->deopt_mh);
		} else {
			handler = RUNTIME_AT(s->runtime_walk.blob, u64, p->deopt);
			other = RUNTIME_AT(s->runtime_walk.blob, u64, p->deopt_mh);
		}
		/* A frame to be deoptimized returns to a handler. */
		if (!w->exact && (w->pc == handler || w->pc == other) &&
		    unwind_load(w, w->sp + RUNTIME_AT(s->runtime_walk.blob, u32, p->orig_pc),
				word) &&
		    *word - blob < RUNTIME_AT(s->runtime_walk.blob, u32, p->blob_size)) {
			u32 index = w->first + i;

			barrier_var(index);
			if (index < MAX_FRAME_WORDS)
				s->record.frames[index] = *word;
		}
	}
	hotspot_frame(s, i, blob, (u32)(hash_step(name, id) >> 32) | 1, 0);
	if (frame > 0)
		return frame;
	return first == HOTSPOT_STUBS || first == HOTSPOT_UPCALL ? 0 : -1;
}

/* Where the code of the blob in scratch begins, or its frames are complete. */
static __always_inline u64 hotspot_complete(struct stack_scratch *s, u64 blob)
{
	struct hotspot_process *p = &s->runtime_walk.process.hotspot;
	u64 code = p->code_offset ? blob + RUNTIME_AT(s->runtime_walk.blob, u32, p->blob_code)
				  : RUNTIME_AT(s->runtime_walk.blob, u64, p->blob_code);
	s32 complete = p->complete_short ? RUNTIME_AT(s->runtime_walk.blob, s16, p->blob_complete)
					 : RUNTIME_AT(s->runtime_walk.blob, s32, p->blob_complete);

	return complete > 0 ? code + complete : code;
}

/* Stores a frame in the code cache and steps to the next. Returns 1 after the last. */
UNWIND_GLOBAL int hotspot_step(u32 scratch, u32 i)
{
	struct stack_scratch *s = runtime_scratch(scratch);
	u64 *word, sp, blob, at;
	struct unwind_walk *w;
	s64 frame;
	u32 leaf = HOTSPOT_BUILT;

	if (!s)
		return 1;
	w = &s->walk;
	word = &s->runtime_walk.frame;
	if (!unwind_keep(w, &s->record, i))
		return 1;
	w->end = END_NO_CHAIN;
	sp = w->sp;
	if (w->pc >= s->runtime_walk.process.hotspot.interpreter.start &&
	    w->pc < s->runtime_walk.process.hotspot.interpreter.end) {
		if (w->fp < sp || w->fp & 7 || !hotspot_interpreted(scratch, i))
			return 1;
		if (!unwind_load(w, w->fp + HOTSPOT_SENDER_SP, word) || *word < w->fp)
			return 1;
		sp = *word;
		/* Calls by method handles drop an argument after the caller saved this. */
		if (sp < w->fp + 16)
			sp = w->fp + 16;
		frame = 0;
	} else {
		blob = hotspot_find(scratch, w->exact ? w->pc : w->pc - 1);
		if (!blob)
			return 1;
		frame = hotspot_compiled(scratch, i, blob);
		if (frame < -1)
			return 1;
		/*
		 * The frames of a virtual thread may be partly in the heap. The oldest one on
		 * this stack then returns to a stub, the return barrier, and its saved frame
		 * pointer may be that of another carrier. The function that entered the virtual
		 * thread has the frame above.
		 */
		word = &s->runtime_walk.process.hotspot.entry_return;
		if (!w->exact && !frame && *word >= UNWIND_LOWEST &&
		    !unwind_follows_call(w, w->pc)) {
			w->pc = *word;
			w->end = END_DEPTH;
			return 0;
		}
		word = &s->runtime_walk.frame;
		if (w->exact)
			leaf = hotspot_leaf(scratch, w->pc,
					    frame > 0 && w->pc < hotspot_complete(s, blob));
		/* Adapters change the stack before they call the JVM. */
		if (leaf == HOTSPOT_BUILT && frame < 0) {
			if (!w->exact)
				return 1;
			leaf = HOTSPOT_ENTERED;
		}
		if (leaf == HOTSPOT_BUILT && !frame)
			sp = w->fp + 16;
	}
	/* The return address is just below the caller's stack pointer or frame. */
	if (leaf == HOTSPOT_ENTERED || leaf == HOTSPOT_PUSHED) {
		sp = w->sp + (leaf == HOTSPOT_ENTERED ? 8 : 16);
		at = sp - 8;
	} else if (frame > 0) {
		sp = w->sp + frame;
		at = sp - 8;
	} else {
		if (w->fp < w->sp || w->fp & 7)
			return 1;
		at = w->fp + 8;
	}
	if (sp <= w->sp || !unwind_load(w, at, word))
		return 1;
	/* The barrier at the entry of methods pushes room for an address before its frame. */
	if (at == w->fp + 8 && *word == HOTSPOT_ROOM) {
		sp += 8;
		if (!unwind_load(w, at + 8, word))
			return 1;
	}
	w->pc = *word & unwind_pc_bits();
	if (leaf != HOTSPOT_ENTERED && leaf != HOTSPOT_UNSAVED && !unwind_load(w, at - 8, &w->fp))
		return 1;
	if (w->base_state != UNWIND_BASE_IGNORED)
		w->base_state = UNWIND_BASE_UNKNOWN;
	w->sp = sp;
	w->exact = 0;
	if (!w->pc)
		return 1;
	w->end = END_DEPTH;
	return 0;
}

/* Begins to walk the code cache of the process in scratch. */
static __always_inline void hotspot_begin(struct stack_scratch *s)
{
	const struct hotspot_process *p = &s->runtime_walk.process.hotspot;

	s->runtime.code = p->low;
	s->runtime.code_size = p->high - p->low;
}

/* Whether the walk is in HotSpot's code cache. */
static __always_inline bool hotspot_has(const struct stack_scratch *s)
{
	return s->walk.pc - s->runtime.code < s->runtime.code_size;
}

#endif
