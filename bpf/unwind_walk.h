/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Walks user stacks by unwind tables or frame pointers. Walker in
 * internal/unwind is the readable reference; tests compare the two.
 *
 * This header does not depend on its environment: unwind_env.h defines how to read memory,
 * registers and tables. Tests have another one, over recorded stacks.
 *
 * The cost of a walk is in its reads of memory and searches in tables. So
 * memory is read in aligned blocks, which never cross a page, and a cache holds
 * the rules of recent addresses, most of them completely. Measured on a busy
 * virtual machine with Linux 6.18, the medians of a walk are: 31 frames without
 * frame pointers take 0.9 us at 4999 Hz (100 ns to begin, 80 ns a block, 16 ns
 * a frame, 100 ns more if its rule is searched), 29 frames by frame pointers
 * 0.7 us, and the same ones by bpf_get_stack 1.9 us, half of that for the read
 * that faults at their end. At 99 Hz, with all caches cold, they take 6.4, 3.0
 * and 7.0 us.
 */
#ifndef FULGUR_UNWIND_WALK_H
#define FULGUR_UNWIND_WALK_H

#include "hash.h"
#include "kernel.h"
#include "record.h"
#include "unwind_env.h"
#include "unwind_maps.h"
#include "unwind_state.h"

#if defined(__TARGET_ARCH_x86)
/* struct ucontext in the signal frame: gregs, from r8 on. */
#define UNWIND_SIGNAL_FIRST 40
#define UNWIND_SIGNAL_FP 120
#define UNWIND_SIGNAL_SP 160
#define UNWIND_SIGNAL_PC 168
#define UNWIND_BASE 3 /* rbx */
#define UNWIND_SCRATCH 0x0f37 /* rax, rdx, rcx, rsi, rdi, r8 to r11 */
#elif defined(__TARGET_ARCH_arm64)
/* struct rt_sigframe: sigcontext, from x0 on. */
#define UNWIND_SIGNAL_FIRST 312
#define UNWIND_SIGNAL_FP 544
#define UNWIND_SIGNAL_SP 560
#define UNWIND_SIGNAL_PC 568
#define UNWIND_LINK 30
#define UNWIND_BASE 32 /* none */
#define UNWIND_SCRATCH 0x3ffff /* x0 to x17 */
#endif

static __always_inline void unwind_begin(struct unwind_walk *w, u64 pc, u64 sp, u64 fp)
{
	w->pc = pc;
	w->sp = sp;
	w->fp = fp;
	w->exact = 1;
	w->end = END_DEPTH;
	w->by_signal = 0;
	w->departed = 0;
	w->sp_unknown = 0;
	w->early = 0;
	w->base_state = UNWIND_BASE_IGNORED;
	w->block_at = UNWIND_NO_BLOCK;
}

/* Whether to repeat a finished walk, with the base register. */
static __always_inline bool unwind_lacks_base(struct unwind_walk *w)
{
	return UNWIND_BASE < 32 && w->end == END_REGISTER && w->base_state == UNWIND_BASE_IGNORED;
}

/* Begins one. */
static __always_inline void unwind_begin_with_base(struct unwind_walk *w, u64 pc, u64 sp, u64 fp)
{
	unwind_begin(w, pc, sp, fp);
	w->base_state = UNWIND_BASE_UNKNOWN;
}

/* Reads the word at addr. A misaligned one bypasses the block. */
static __always_inline bool unwind_load(struct unwind_walk *w, u64 addr, u64 *value)
{
	if ((addr & ~(u64)(UNWIND_BLOCK_BYTES - 8)) != w->block_at) {
		u64 at = addr & ~(u64)(UNWIND_BLOCK_BYTES - 1);

		if (addr & 7)
			return unwind_read(w, value, 8, addr);
		w->block_at = UNWIND_NO_BLOCK;
		if (!unwind_read(w, w->block, UNWIND_BLOCK_BYTES, at))
			return false;
		w->block_at = at;
	}
	*value = w->block[addr % UNWIND_BLOCK_BYTES / 8];
	return true;
}

/* A rule's index, or in the upper half an enum stack_end if none. */
static __always_inline u64 unwind_no_rule(enum stack_end end)
{
	return (u64)end << 32;
}

/* Searches for addr's rule in a table. */
static __always_inline u64 unwind_search_table(const struct unwind_mapping *m, u64 addr)
{
	u64 link = addr - m->bias;
	u32 block = m->blocks + (u32)(link >> UNWIND_BLOCK_SHIFT);
	u32 rows = m->rows, low = link & ((1 << UNWIND_BLOCK_SHIFT) - 1);
	u32 page = block >> UNWIND_PAGE_SHIFT, lo, hi, edge;
	const u32 *words = unwind_page_at(page);

	if (!words)
		return unwind_no_rule(END_PAGE);
	lo = rows + words[block % UNWIND_PAGE_WORDS];
	block++;
	if (block >> UNWIND_PAGE_SHIFT != page) {
		page = block >> UNWIND_PAGE_SHIFT;
		words = unwind_page_at(page);
		if (!words)
			return unwind_no_rule(END_PAGE);
	}
	hi = rows + words[block % UNWIND_PAGE_WORDS];
	/* The rows of a block, at most one for each byte of code, are in one page or in
	 * two. Search in one of them. */
	edge = hi & ~(UNWIND_PAGE_WORDS - 1);
	if (lo < edge && edge < hi) {
		page = edge >> UNWIND_PAGE_SHIFT;
		words = unwind_page_at(page);
		if (!words)
			return unwind_no_rule(END_PAGE);
		if (words[0] >> UNWIND_RULE_BITS <= low)
			lo = edge;
		else
			hi = edge;
	}
	if (lo < hi && lo >> UNWIND_PAGE_SHIFT != page) {
		page = lo >> UNWIND_PAGE_SHIFT;
		words = unwind_page_at(page);
		if (!words)
			return unwind_no_rule(END_PAGE);
	}
	/* Search the last row at or below the address: one before the first row
	 * above. */
	for (int i = 0; i <= UNWIND_BLOCK_SHIFT && lo < hi; i++) {
		u32 mid = lo + (hi - lo) / 2;

		if (words[mid % UNWIND_PAGE_WORDS] >> UNWIND_RULE_BITS <= low)
			lo = mid + 1;
		else
			hi = mid;
	}
	lo--;
	if (lo >> UNWIND_PAGE_SHIFT != page) {
		words = unwind_page_at(lo >> UNWIND_PAGE_SHIFT);
		if (!words)
			return unwind_no_rule(END_PAGE);
	}
	return words[lo % UNWIND_PAGE_WORDS] & ((1U << UNWIND_RULE_BITS) - 1);
}

/* Searches for addr's rule in a layout. */
UNWIND_GLOBAL u64 unwind_search(u64 addr, u64 layout)
{
	u32 at = layout & ((1U << UNWIND_LAYOUT_FIRST_BITS) - 1), rule;
	u32 n = layout >> UNWIND_LAYOUT_FIRST_BITS & ((1U << UNWIND_LAYOUT_COUNT_BITS) - 1);
	const struct unwind_mapping *m;
	u64 found;

	/*
	 * Search the last of n mappings that starts at or below the address. n does not depend
	 * on the outcomes of the comparisons, since the verifier of Linux 6.12 would follow each
	 * pair of bounds that the outcomes can lead to.
	 */
	for (int i = 0; i < UNWIND_LAYOUT_COUNT_BITS && n > 1; i++) {
		u32 half = n / 2;

		m = unwind_mapping_at(at + half);
		if (!m)
			return unwind_no_rule(END_NO_MAPPING);
		if (m->start <= addr)
			at += half;
		n -= half;
	}
	m = n ? unwind_mapping_at(at) : NULL;
	if (!m || addr < m->start || addr >= m->end)
		return unwind_no_rule(END_NO_MAPPING);
	rule = m->fallback;
	if (m->rows == UNWIND_NO_TABLE)
		return rule;
	if (m->rows == UNWIND_PENDING)
		return unwind_no_rule(END_NOT_READY);
	if (m->rows == UNWIND_LATE)
		return unwind_no_rule(END_LATE);
	found = unwind_search_table(m, addr);
	if (found == UNWIND_RULE_UNREAD)
		return unwind_no_rule(END_NOT_READY);
	return found == UNWIND_RULE_NONE ? rule : found;
}

/*
 * Most rules fit into the bits of the cache for a rule's index, which saves the walk
 * a look-up of the rule: the CFA is some words above the stack or frame pointer, and
 * the return address and the frame pointer, if saved, are just below the CFA.
 */
#define UNWIND_SHORT (1U << 23) /* no index */
#define UNWIND_SHORT_FP (1U << 22) /* the CFA is above the frame pointer */
#define UNWIND_SHORT_CFA_SHIFT 8 /* words from there up to the CFA */
#define UNWIND_SHORT_CFA_MAX 0x3fff
#define UNWIND_SHORT_SAVED_MAX 0xff /* words from the saved frame pointer to the CFA, or 0 */

/* Returns the short form of a rule, or its index if it has none. */
static __always_inline u32 unwind_shorten(u32 index)
{
	const struct unwind_rule *r = unwind_rule_at(index);
	u32 saved = 0;
	s32 ra;

	if (!r || (r->kind != UNWIND_SP && r->kind != UNWIND_FP))
		return index;
	if (r->cfa < 0 || r->cfa > 8 * UNWIND_SHORT_CFA_MAX || r->cfa & 7)
		return index;
	if (r->fp_slot == UNWIND_AT_CFA) {
		if (r->fp >= 0 || r->fp < -8 * UNWIND_SHORT_SAVED_MAX || r->fp & 7)
			return index;
		saved = -r->fp / 8;
	} else if (r->fp_slot != UNWIND_SAME) {
		return index;
	}
#if defined(UNWIND_LINK)
	if (!saved)
		return index;
	ra = r->fp + 8;
#else
	ra = -8;
#endif
	if (r->ra_slot != UNWIND_AT_CFA || r->ra != ra)
		return index;
	return UNWIND_SHORT | (r->kind == UNWIND_FP ? UNWIND_SHORT_FP : 0) |
	       r->cfa / 8 << UNWIND_SHORT_CFA_SHIFT | saved;
}

/*
 * Finds the rule for addr in a layout, possibly in its short form, which lacks
 * the base register. What is missing or not loaded is not cached, since it may
 * appear later.
 */
static __always_inline u64 unwind_find(struct unwind_cache *cache, u64 layout, u64 addr)
{
	u64 salt = layout >> (64 - UNWIND_LAYOUT_SALT_BITS) << (64 - UNWIND_LAYOUT_SALT_BITS);
	u64 hash = (addr ^ salt) * HASH_MULTIPLIER;
	u64 *entry = &cache->entries[hash >> (64 - UNWIND_CACHE_SHIFT)];
	u64 tag = hash << UNWIND_CACHE_SHIFT >> 24 << 24;
	/* A single word, so that an interrupting program replaces all of it or
	 * nothing. */
	u64 known = *(volatile u64 *)entry, found;

	if ((known >> 24 << 24) == tag)
		return known & 0xffffff;
	found = unwind_search(addr, layout);
	if (found >> 32 == 0) {
		found = unwind_shorten(found);
		*(volatile u64 *)entry = tag | found;
	}
	return found;
}

static __always_inline bool unwind_stop(struct unwind_walk *w, enum stack_end end)
{
	w->end = end;
	return false;
}

/*
 * Steps to the code that a signal interrupted. It may run on another stack
 * (sigaltstack), so its stack address is not checked.
 */
static __always_inline bool unwind_signal(struct unwind_walk *w, s32 cfa)
{
	u64 at = w->sp + (s64)cfa, first, fp, sp, pc;

	/* Check the first and the last word: the words in between are readable, too. */
	if (!unwind_load(w, at + UNWIND_SIGNAL_FIRST, &first) ||
	    !unwind_load(w, at + UNWIND_SIGNAL_FP, &fp) ||
	    !unwind_load(w, at + UNWIND_SIGNAL_SP, &sp) ||
	    !unwind_load(w, at + UNWIND_SIGNAL_PC, &pc))
		return unwind_stop(w, END_FAULT);
	w->fp = fp;
	w->sp = sp;
	w->pc = pc;
	w->exact = 1;
	w->by_signal = 1;
	w->departed = 0;
	w->sp_unknown = 0;
	w->regs = at + UNWIND_SIGNAL_FIRST;
	return true;
}

/*
 * Reads a register of the frame. No rule says where a scratch register is saved. A caller whose
 * rule needs one, as in hand-written assembly, has callees that keep it: so it still has its
 * value of the last exact frame.
 */
static __always_inline bool unwind_register_of_frame(struct unwind_walk *w, u32 number, u64 *value)
{
	if (!w->exact && (w->departed || number >= 32 || !(UNWIND_SCRATCH >> number & 1)))
		return false;
	return unwind_register(w, number, value);
}

/*
 * Whether the instruction before a return address is a call. If it cannot be read, it counts as
 * one.
 */
static __always_inline bool unwind_follows_call(struct unwind_walk *w, u64 pc)
{
	u8 code[8];

	if (!unwind_read(w, code, sizeof(code), pc - sizeof(code)))
		return true;
#if defined(__TARGET_ARCH_x86)
	if (code[3] == 0xe8)
		return true;
	for (u32 i = 1; i < 7; i++)
		if (code[i] == 0xff && (code[i + 1] & 0x38) == 0x10)
			return true;
	return false;
#else
	return (code[7] & 0xfc) == 0x94 || ((code[7] & 0xfe) == 0xd6 && code[6] == 0x3f);
#endif
}

/* Reads the base register of an exact frame. */
static __always_inline void unwind_take_base(struct unwind_walk *w)
{
	w->base_state =
		unwind_register(w, UNWIND_BASE, &w->base) ? UNWIND_BASE_KNOWN : UNWIND_BASE_UNKNOWN;
}

/* Sets the base register to its value in the caller. */
static __always_inline void unwind_restore_base(struct unwind_walk *w, const struct unwind_rule *r,
						u64 cfa)
{
	if (r->kind == UNWIND_PLT)
		return; /* the function does not change it */
	if ((r->kind != UNWIND_SP && r->kind != UNWIND_FP) || r->arg == UNWIND_BASE_LOST)
		w->base_state = UNWIND_BASE_UNKNOWN;
	else if (r->arg)
		w->base_state = unwind_load(w, cfa - 8 * r->arg, &w->base) ? UNWIND_BASE_KNOWN
									   : UNWIND_BASE_UNKNOWN;
}

/* Offsets in Go's runtime.g. */
#define UNWIND_G_M 48
#define UNWIND_G_SCHED 56 /* sp, pc, … */

/*
 * To grow the stack of a goroutine, Go switches to the thread's own stack. This steps back from
 * the function that switches to the one that needs more stack, with the goroutine's registers,
 * which are in its g meanwhile. If the thread has no goroutine, it has moved on to look for
 * another one.
 */
static __always_inline bool unwind_goroutine(struct unwind_walk *w, const struct unwind_rule *r)
{
	u64 g, m, current, sched[2];

	if (!unwind_thread_pointer(w, &g))
		return unwind_stop(w, END_FAULT);
	w->block_at = UNWIND_NO_BLOCK;
	if (!unwind_read(w, &g, 8, g + (s64)r->cfa) || !unwind_read(w, &m, 8, g + UNWIND_G_M) ||
	    !unwind_read(w, &current, 8, m + (s64)r->fp))
		return unwind_stop(w, END_FAULT);
	if (!current)
		return unwind_stop(w, END_COMPLETE);
	/* The layout of these structures may be another one. */
	if (!unwind_read(w, &g, 8, current + UNWIND_G_M) || g != m ||
	    !unwind_read(w, sched, sizeof(sched), current + UNWIND_G_SCHED) ||
	    !unwind_read(w, &w->fp, 8, current + (s64)r->ra) || !sched[0] || !sched[1])
		return unwind_stop(w, END_UNSUPPORTED);
	w->sp = sched[0];
	w->pc = sched[1] & unwind_pc_bits();
	w->exact = 0;
	w->departed = 1;
	w->sp_unknown = 0;
	if (w->base_state != UNWIND_BASE_IGNORED)
		w->base_state = UNWIND_BASE_UNKNOWN;
	return true;
}

/*
 * Steps from the entry of a function, where the frame pointer still points to the frame of
 * its caller. The same holds at the return instruction of a Go function.
 */
static __always_inline bool unwind_step_from_entry(struct unwind_walk *w)
{
	u64 ra = 0;

#if defined(UNWIND_LINK)
	if (!unwind_register(w, UNWIND_LINK, &ra))
		return unwind_stop(w, END_REGISTER);
#else
	if (!unwind_load(w, w->sp, &ra))
		return unwind_stop(w, END_FAULT);
	w->sp += 8;
#endif
	w->pc = ra & unwind_pc_bits();
	w->exact = 0;
	if (w->pc < UNWIND_LOWEST) /* a program's entry point has no caller */
		return unwind_stop(w, END_FRAME_POINTER);
	return true;
}

/*
 * Whether the stack pointer is known if a rule needs it. On arm64, compilers put the record that a
 * frame pointer points to anywhere in a frame. So a step by frame pointers tells only that the
 * caller's frame is above that record. If the record is at the end of the callee's frame, the
 * caller's rule leads to the caller's own record.
 */
static __always_inline bool unwind_has_sp(const struct unwind_walk *w, const struct unwind_rule *r)
{
#if defined(UNWIND_LINK)
	if (!w->sp_unknown)
		return true;
	switch (r->kind) {
	case UNWIND_SP:
		return r->fp_slot == UNWIND_AT_CFA && w->sp + (s64)r->cfa + (s64)r->fp == w->fp;
	case UNWIND_PLT:
	case UNWIND_DEREF_SP:
	case UNWIND_INDEXED:
	case UNWIND_SIGNAL:
		return false;
	}
	return r->fp_slot != UNWIND_AT_SP && r->ra_slot != UNWIND_AT_SP;
#else
	return (void)w, (void)r, true;
#endif
}

/* Steps to the caller by a rule. */
static __always_inline bool unwind_step(struct unwind_walk *w, const struct unwind_rule *r)
{
	u64 sp = w->sp, fp = w->fp, cfa, at, ra = 0;
	enum stack_end fault = END_FAULT;
	bool doubtful = false; /* depends on a scratch register of a caller */
	u32 slot;

	if (!unwind_has_sp(w, r))
		return unwind_stop(w, END_REGISTER);
	switch (r->kind) {
	case UNWIND_SP:
		cfa = sp + (s64)r->cfa;
		break;
	case UNWIND_FP:
		cfa = fp + (s64)r->cfa;
		break;
	case UNWIND_CHAIN:
		if (unwind_by() == UNWIND_BY_TABLES)
			return unwind_stop(w, END_NO_TABLE);
		if (w->exact && !w->by_signal && r->arg == UNWIND_CHAIN_STACKS &&
		    unwind_at_entry(w))
			return unwind_step_from_entry(w);
		if (fp == 0)
			return unwind_stop(w, END_FRAME_POINTER);
		if (fp < UNWIND_LOWEST || fp & 7 || (fp < sp && r->arg != UNWIND_CHAIN_STACKS))
			return unwind_stop(w, END_NO_CHAIN);
		w->chained = 1;
		fault = END_NO_CHAIN;
		cfa = fp + (s64)r->cfa;
		break;
	case UNWIND_SWITCH:
		if (fp == 0)
			return unwind_stop(w, END_COMPLETE);
		cfa = fp + (s64)r->cfa;
		break;
	case UNWIND_GOROUTINE:
		return unwind_goroutine(w, r);
	case UNWIND_PLT:
		cfa = sp + (s64)r->cfa + ((w->pc & 15) >= r->arg ? 8 : 0);
		break;
	case UNWIND_DEREF_SP:
	case UNWIND_DEREF_FP:
		at = (r->kind == UNWIND_DEREF_SP ? sp : fp) + (s64)r->cfa;
		if (!unwind_load(w, at, &cfa))
			return unwind_stop(w, END_FAULT);
		cfa += r->arg;
		break;
	case UNWIND_REGISTER:
		if (r->arg == UNWIND_BASE && w->base_state == UNWIND_BASE_KNOWN)
			cfa = w->base;
		else if (!unwind_register_of_frame(w, r->arg, &cfa))
			return unwind_stop(w, END_REGISTER);
		else
			doubtful = !w->exact;
		cfa += (s64)r->cfa;
		break;
	case UNWIND_INDEXED:
		if (!unwind_register_of_frame(w, r->arg, &at))
			return unwind_stop(w, END_REGISTER);
		doubtful = !w->exact;
		if (!unwind_load(w, sp + (s64)r->cfa + 8 * at, &cfa))
			return unwind_stop(w, END_FAULT);
		cfa += 8;
		break;
	case UNWIND_SIGNAL:
		return unwind_signal(w, r->cfa);
	case UNWIND_END:
		return unwind_stop(w, END_COMPLETE);
	case UNWIND_UNSUPPORTED:
		return unwind_stop(w, END_UNSUPPORTED);
	default:
		return unwind_stop(w, END_NO_TABLE);
	}
	/*
	 * The caller's frame is above this one, unless it is on another stack. It may be the
	 * same only for an interrupted function that has not changed the stack.
	 */
	if ((cfa < sp || (cfa == sp && !w->exact)) && r->kind != UNWIND_SWITCH &&
	    !(r->kind == UNWIND_CHAIN && r->arg == UNWIND_CHAIN_STACKS))
		return unwind_stop(w, END_NOT_GROWING);

	/* The frame pointer first: it is below, so that blocks are read in order. */
	slot = r->fp_slot;
	if (slot == UNWIND_AT_CFA || slot == UNWIND_AT_SP || slot == UNWIND_AT_FP) {
		at = (slot == UNWIND_AT_CFA ? cfa : slot == UNWIND_AT_SP ? sp : fp) + (s64)r->fp;
		if (!unwind_load(w, at, &w->fp))
			return unwind_stop(w, fault);
	} else if (slot == UNWIND_UNKNOWN) {
		w->fp = 0; /* no frame is there, if something asks for it */
	} else if (slot == UNWIND_IN_REGISTER) {
		if (!unwind_register_of_frame(w, r->fp, &w->fp))
			return unwind_stop(w, END_REGISTER);
		doubtful |= !w->exact;
	}

	slot = r->ra_slot;
	if (slot == UNWIND_AT_CFA || slot == UNWIND_AT_SP || slot == UNWIND_AT_FP) {
		at = (slot == UNWIND_AT_CFA ? cfa : slot == UNWIND_AT_SP ? sp : fp) + (s64)r->ra;
		if (!unwind_load(w, at, &ra))
			return unwind_stop(w, fault);
	} else if (slot == UNWIND_IN_REGISTER) {
		if (!unwind_register_of_frame(w, r->ra, &ra))
			return unwind_stop(w, END_REGISTER);
		doubtful |= !w->exact;
	} else if (slot == UNWIND_SAME) {
#if defined(UNWIND_LINK)
		/* What a call left there is known only for an interrupted frame. */
		if (!w->exact || !unwind_register(w, UNWIND_LINK, &ra))
#endif
			return unwind_stop(w, END_REGISTER);
	}
	if (doubtful && !unwind_follows_call(w, ra & unwind_pc_bits()))
		return unwind_stop(w, END_REGISTER);
	if (w->base_state != UNWIND_BASE_IGNORED)
		unwind_restore_base(w, r, cfa);
	w->pc = ra & unwind_pc_bits();
	w->sp = cfa;
#if defined(UNWIND_LINK)
	w->sp_unknown = r->kind == UNWIND_CHAIN && r->arg != UNWIND_CHAIN_AT_END;
#endif
	w->exact = 0;
	if (w->pc)
		return true;
	/* Threads start with 0, but it may not have been a frame pointer. */
	return unwind_stop(w, r->kind == UNWIND_CHAIN ? END_FRAME_POINTER : END_COMPLETE);
}

/* Steps to the caller by a rule in its short form. */
static __always_inline bool unwind_step_short(struct unwind_walk *w, u32 rule)
{
	u64 sp = w->sp, cfa = rule & UNWIND_SHORT_FP ? w->fp : sp, ra;
	u64 saved = 8 * (rule & UNWIND_SHORT_SAVED_MAX);

	cfa += 8 * (rule >> UNWIND_SHORT_CFA_SHIFT & UNWIND_SHORT_CFA_MAX);
#if defined(UNWIND_LINK)
	if (w->sp_unknown && !(rule & UNWIND_SHORT_FP) && cfa - saved != w->fp)
		return unwind_stop(w, END_REGISTER); /* as in unwind_has_sp() */
	w->sp_unknown = 0;
#endif
	if (cfa < sp || (cfa == sp && !w->exact))
		return unwind_stop(w, END_NOT_GROWING);
	if (saved && !unwind_load(w, cfa - saved, &w->fp))
		return unwind_stop(w, END_FAULT);
#if defined(UNWIND_LINK)
	if (!unwind_load(w, cfa - saved + 8, &ra))
#else
	if (!unwind_load(w, cfa - 8, &ra))
#endif
		return unwind_stop(w, END_FAULT);
	w->pc = ra & unwind_pc_bits();
	w->sp = cfa;
	w->exact = 0;
	return w->pc ? true : unwind_stop(w, END_COMPLETE);
}

/* The address in the current frame's code: a return address may be behind its function. */
static __always_inline u64 unwind_code(const struct unwind_walk *w)
{
	return w->exact ? w->pc : w->pc - 1;
}

/* Stores the current frame. */
static __always_inline bool unwind_keep(const struct unwind_walk *w, struct stack_record *rec,
					u32 i)
{
	u32 at = w->first + i;
	u64 pc = w->pc & ~FRAME_EXACT;

	if (at >= MAX_FRAME_WORDS)
		return false;
	if (pc >> FRAME_RUNTIME_SHIFT)
		pc |= FRAME_NATIVE; /* not the address of code, or the vsyscall page */
	rec->frames[at] = pc | (w->exact && i ? FRAME_EXACT : 0);
	return true;
}

/* Stores a frame and steps to the next by tables. Returns 1 after the last. */
static __always_inline int unwind_by_tables(u32 i, struct unwind_walk *w, struct stack_record *rec,
					    struct unwind_cache *cache)
{
	const struct unwind_rule *r;
	u64 addr, found;

	if (!unwind_keep(w, rec, i))
		return 1;
	addr = unwind_code(w);
	if (w->base_state == UNWIND_BASE_IGNORED) {
		found = unwind_find(cache, w->layout, addr);
	} else {
		if (w->exact)
			unwind_take_base(w);
		found = unwind_search(addr, w->layout);
	}
	if (found >> 32) {
		w->end = found >> 32;
		return 1;
	}
	if (found & UNWIND_SHORT)
		return !unwind_step_short(w, found);
	r = unwind_rule_at(found);
	if (!r) {
		w->end = END_UNSUPPORTED;
		return 1;
	}
	return !unwind_step(w, r);
}

/*
 * The same by the chain of frame pointers. It does not restrict the frames'
 * addresses, because it does not know which programs switch stacks.
 */
static __always_inline int unwind_by_chain(u32 i, struct unwind_walk *w, struct stack_record *rec)
{
	u64 fp = w->fp, pc;

	if (!unwind_keep(w, rec, i))
		return 1;
	/*
	 * In the other modes, only Go code takes the step from an entry. It is known by the
	 * tables, and a process that comes here in such a mode has none yet.
	 */
	if (w->exact && unwind_by() == UNWIND_BY_FRAME_POINTERS && unwind_at_entry(w)) {
		w->end = END_DEPTH;
		return !unwind_step_from_entry(w);
	}
	w->end = END_FRAME_POINTER;
	/*
	 * Code that uses the register for something else mostly leaves no address of a frame in
	 * it. Each read that faults would cost as much as the whole walk.
	 */
	if (fp < UNWIND_LOWEST || fp & 7)
		return 1;
	if (!unwind_load(w, fp, &w->fp) || !unwind_load(w, fp + 8, &pc))
		return 1;
	w->sp = fp + 16;
	w->pc = pc & unwind_pc_bits();
	w->exact = 0;
	if (!w->pc)
		return 1;
	w->end = END_DEPTH;
	return 0;
}

#endif
