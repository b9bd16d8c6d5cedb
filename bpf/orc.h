/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Kernel stacks of threads that are not running, walked with the kernel's own
 * unwind tables (ORC, on x86), like arch/x86/kernel/unwind_orc.c. The kernel's
 * walker looks up every frame, which takes 200 ns each. Waiting threads are
 * often in the same places, so this walker caches table entries by place, and
 * copies the stack in a single read.
 *
 * If it does not reach the end of the stack, because of module code, a stack
 * deeper than the copy or an unknown register, the kernel's walker is used
 * instead. That one omits the scheduler's functions; this one includes them.
 *
 * A walk uses the entry of orc_tables for its scratch.
 */
#ifndef FULGUR_ORC_H
#define FULGUR_ORC_H

#include "hash.h"
#include "kernel.h"
#include "record.h"
#include "scratch.h"
#include "task.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#if defined(__TARGET_ARCH_x86)

/* Maximum words of a stack to copy. */
#define ORC_WORDS 512
/* Number of places to cache, log2. */
#define ORC_PLACES_BITS 10
#define ORC_PLACES (1 << ORC_PLACES_BITS)

/* How to compute the caller's registers at a place. */
struct orc_rule {
	s16 sp_offset;
	s16 bp_offset;
	u8 sp_reg; /* ORC_REG_* */
	u8 bp_reg;
	u8 type; /* enum orc_type */
	u8 signal; /* the caller was interrupted: its address is not a return address */
};

enum orc_type {
	ORC_UNKNOWN = 0,
	ORC_END = 1, /* of the stack */
	ORC_CALL = 2,
	ORC_REGS = 3, /* a whole struct pt_regs */
	ORC_REGS_PARTIAL = 4, /* the part of one that the processor saves */
};

/* arch/x86/include/asm/orc_types.h */
#define ORC_REG_UNDEFINED 0
#define ORC_REG_PREV_SP 1
#define ORC_REG_BP 4
#define ORC_REG_SP 5
#define ORC_REG_BP_INDIRECT 8
#define ORC_REG_SP_INDIRECT 9

/* Offsets in struct pt_regs, which never change. */
#define REGS_AT_BP 32
#define REGS_AT_IP 128
#define REGS_AT_CS 136
#define REGS_AT_SP 152

struct orc_place {
	u64 pc;
	struct orc_rule rule;
};

/* The state of a walk. */
struct orc_walk {
	u64 bottom, size; /* of the stack that was copied */
	u64 ip, sp, bp;
	u32 frames;
	u8 signal;
	u8 ended; /* the walk reached the stack's end, or the limit on frames */
	u8 pad[2];
};

struct orc_table {
	u64 words[ORC_WORDS];
	struct orc_place places[ORC_PLACES];
	struct orc_walk walk;
};

/* As many as scratches. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SCRATCHES);
	__type(key, u32);
	__type(value, struct orc_table);
} orc_tables SEC(".maps");

/* The kernel's tables, if it has any. */
extern void __start_orc_unwind_ip __ksym __weak;
extern void __stop_orc_unwind_ip __ksym __weak;
extern void __start_orc_unwind __ksym __weak;

/* The code covered by these tables; modules have tables of their own. */
extern void _stext __ksym __weak;
extern void _etext __ksym __weak;

/* For the layout of the entries: the field is absent before 6.4. */
struct orc_entry {
	u8 signal : 1;
} __attribute__((preserve_access_index));

/* The frame that switch_to leaves on the stack of a thread that it switches out. */
struct inactive_task_frame {
	u64 bp;
	u64 ret_addr;
} __attribute__((preserve_access_index));

/*
 * Always 0, but unknown to the verifier, which would otherwise follow every path
 * through a search with known limits.
 */
volatile u64 orc_nothing;

/* Finds a place's entry in the kernel's tables, sorted by address. */
static __noinline u64 orc_find(u64 pc)
{
	u64 ips = (u64)&__start_orc_unwind_ip, low = orc_nothing, i;
	u64 high = ((u64)&__stop_orc_unwind_ip - ips) / 4 + orc_nothing;
	union {
		struct orc_rule rule;
		u64 word;
	} found = {};
	struct {
		s16 sp_offset;
		s16 bp_offset;
		u16 bits;
	} __attribute__((packed)) entry;
	s32 offset;

	if (pc < (u64)&_stext || pc >= (u64)&_etext)
		return 0;
	for (i = 0; i < 24 && low + 1 < high; i++) {
		u64 middle = (low + high) / 2, at = ips + 4 * middle;

		if (bpf_probe_read_kernel(&offset, sizeof(offset), (void *)at))
			return 0;
		if (at + offset <= pc)
			low = middle;
		else
			high = middle;
	}
	if (bpf_probe_read_kernel(&entry, sizeof(entry),
				  (void *)((u64)&__start_orc_unwind + 6 * low)))
		return 0;
	found.rule.sp_offset = entry.sp_offset;
	found.rule.bp_offset = entry.bp_offset;
	found.rule.sp_reg = entry.bits & 15;
	found.rule.bp_reg = entry.bits >> 4 & 15;
	if (bpf_core_field_exists(struct orc_entry, signal)) {
		found.rule.type = entry.bits >> 8 & 7;
		found.rule.signal = entry.bits >> 11 & 1;
	} else if (entry.bits >> 10 & 1) {
		found.rule.type = ORC_END;
	} else {
		found.rule.type = ORC_CALL + (entry.bits >> 8 & 3);
		found.rule.signal = found.rule.type != ORC_CALL;
	}
	return found.word;
}

/* Reads a word of the copied stack. */
static __always_inline bool orc_word(const struct orc_table *table, u64 at, u64 *word)
{
	u64 i = at - table->walk.bottom;

	if (i >= table->walk.size || i & 7)
		return false;
	i /= 8;
	if (i >= ORC_WORDS)
		return false;
	*word = table->words[i];
	return true;
}

static __always_inline struct orc_rule orc_rule(struct orc_table *table, u64 pc)
{
	struct orc_place *place = &table->places[pc * HASH_MULTIPLIER >> (64 - ORC_PLACES_BITS)];

	if (place->pc != pc) {
		union {
			u64 word;
			struct orc_rule rule;
		} found = { .word = orc_find(pc) };

		place->pc = pc;
		place->rule = found.rule;
	}
	return place->rule;
}

/* Steps to the caller, for an index of scratches and orc_tables; 1 ends. */
__noinline int orc_step(u32 scratch)
{
	struct stack_scratch *s = bpf_map_lookup_elem(&scratches, &scratch);
	struct orc_table *table = bpf_map_lookup_elem(&orc_tables, &scratch);
	u64 at, ip, sp, bp, cs = 0;
	struct orc_walk *walk;
	struct orc_rule rule;

	if (!s || !table)
		return 1;
	walk = &table->walk;
	bp = walk->bp;
	if (walk->frames >= max_depth || walk->frames >= MAX_DEPTH) {
		s->record.kernel_end = END_DEPTH;
		walk->ended = true;
		return 1;
	}
	s->record.frames[walk->frames++] = walk->ip;
	rule = orc_rule(table, walk->signal ? walk->ip : walk->ip - 1);
	walk->signal = rule.signal;
	if (rule.type == ORC_END) {
		walk->ended = true;
		return 1;
	}
	if (rule.type == ORC_UNKNOWN)
		return 1;

	switch (rule.sp_reg) {
	case ORC_REG_SP:
		at = walk->sp + rule.sp_offset;
		break;
	case ORC_REG_BP:
		at = bp + rule.sp_offset;
		break;
	case ORC_REG_SP_INDIRECT:
		if (!orc_word(table, walk->sp, &at))
			return 1;
		at += rule.sp_offset;
		break;
	case ORC_REG_BP_INDIRECT:
		if (!orc_word(table, bp + rule.sp_offset, &at))
			return 1;
		break;
	default:
		return 1;
	}

	if (rule.type == ORC_CALL) {
		sp = at;
		if (!orc_word(table, at - 8, &ip))
			return 1;
	} else {
		u64 regs = rule.type == ORC_REGS ? at : at - REGS_AT_IP;

		/* The user registers are above the copied part. */
		if (regs + REGS_AT_CS >= walk->bottom + walk->size) {
			walk->ended = true;
			return 1;
		}
		if (!orc_word(table, regs + REGS_AT_IP, &ip) ||
		    !orc_word(table, regs + REGS_AT_CS, &cs) ||
		    !orc_word(table, regs + REGS_AT_SP, &sp))
			return 1;
		if (cs & 3) {
			walk->ended = true;
			return 1;
		}
	}

	if (rule.bp_reg == ORC_REG_PREV_SP) {
		if (!orc_word(table, at + rule.bp_offset, &bp))
			return 1;
	} else if (rule.bp_reg == ORC_REG_BP) {
		if (!orc_word(table, bp + rule.bp_offset, &bp))
			return 1;
	} else if (rule.type == ORC_REGS) {
		if (!orc_word(table, at + REGS_AT_BP, &bp))
			return 1;
	}
	if (sp <= walk->sp)
		return 1;
	walk->ip = ip;
	walk->sp = sp;
	walk->bp = bp;
	return 0;
}

/*
 * Walks the kernel half of the stack of task, which is not running, into the
 * record in s. Returns false if only the kernel's walker can.
 */
static __always_inline bool orc_walk(struct task_struct *task, struct stack_scratch *s)
{
	struct inactive_task_frame *frame = (void *)task->thread.sp;
	u32 scratch = s->index, i;
	struct orc_table *table = bpf_map_lookup_elem(&orc_tables, &scratch);
	u64 bottom = (u64)frame, size;
	struct orc_walk *walk;

	if (!table)
		return false;
	walk = &table->walk;
	/* Through memory, because arithmetic on a pointer to registers is not
	 * allowed. */
	((volatile u64 *)table->words)[0] = (u64)task_regs(task);
	size = ((volatile u64 *)table->words)[0] - bottom;
	if (size > sizeof(table->words) ||
	    bpf_probe_read_kernel(table->words, size, (void *)bottom))
		return false;
	if (task_on_cpu(task) || task->thread.sp != bottom)
		return false; /* it came back meanwhile */
	walk->bottom = bottom;
	walk->size = size;
	walk->sp = bottom + bpf_core_type_size(struct inactive_task_frame);
	walk->frames = 0;
	walk->signal = walk->ended = false;
	if (!orc_word(table, bottom + bpf_core_field_offset(frame->bp), &walk->bp) ||
	    !orc_word(table, bottom + bpf_core_field_offset(frame->ret_addr), &walk->ip))
		return false;
	s->record.kernel_end = END_FRAME_POINTER;
	for (i = 0; i <= MAX_DEPTH; i++)
		if (orc_step(scratch))
			break;
	s->record.kernel_frames = walk->frames;
	return walk->ended;
}

#endif
#endif
