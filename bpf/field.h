/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Fields of an event: arguments of functions and fields of tracepoints, and the filter
 * that compares them. User space compiles both. The fields of a place (an attach point)
 * are where its own context has them.
 *
 * Each run of a program has its own field_context.
 */
#ifndef FULGUR_FIELD_H
#define FULGUR_FIELD_H

#include "kernel.h"
#include "scratch.h"
#include "task.h"
#include <bpf/bpf_helpers.h>

#define MAX_TERMS 16 /* comparisons of a filter */
#define SHOWN_FIELDS 8 /* fields that a recording shows of a hit */
/* The fields of a place: the weight, the fields of the terms, and those to show. */
#define FIRST_SHOWN (1 + MAX_TERMS)
#define PLACE_FIELDS (FIRST_SHOWN + SHOWN_FIELDS)
#define MAX_PLACES 1024 /* places whose fields differ */
#define FIELD_TEXT 64 /* bytes of a string, with the NUL at its end */

/* Where the bytes of a field are. */
enum field_from {
	FIELD_CONTEXT, /* in the program's context, at offset */
	FIELD_KERNEL, /* in kernel memory, at displacement from the word at offset */
	FIELD_USER, /* in user memory, likewise */
	FIELD_CONSTANT, /* displacement is the value */
};

/* How to read a string; the others are numbers. */
enum field_string {
	FIELD_NUMBER,
	FIELD_ARRAY, /* the bytes are the string */
	FIELD_DATA_LOC, /* a u32 with the string's offset in the context, and its size */
	FIELD_REL_LOC, /* likewise, relative to the end of the u32 */
	FIELD_KERNEL_POINTER,
	FIELD_USER_POINTER,
};

struct field {
	s64 displacement;
	u32 offset;
	u16 size; /* in bytes */
	u8 from; /* enum field_from */
	u8 string; /* enum field_string */
	u8 is_signed;
	u8 pad[7];
};

enum field_compare {
	COMPARE_EQUAL,
	COMPARE_NOT_EQUAL,
	COMPARE_LESS,
	COMPARE_LESS_EQUAL,
	COMPARE_GREATER,
	COMPARE_GREATER_EQUAL,
};

/*
 * A comparison of a field. Its result decides which term is next. yes and no are later
 * terms or the end of the filter, so that a filter ends.
 */
struct filter_term {
	u64 number;
	u8 text[FIELD_TEXT]; /* padded with zeros */
	u8 compare; /* enum field_compare */
	u8 yes, no;
	u8 pad[5];
};

#define SYSCALLS_BIT 63 /* of the attach cookie of raw_syscalls */

#define FILTER_PASS 0xfe
#define FILTER_FAIL 0xff

/* Numbers that user space needs. */
enum field_limits {
	FIELD_MAX_TERMS = MAX_TERMS,
	FIELD_FIRST_SHOWN = FIRST_SHOWN,
	FIELD_SHOWN_FIELDS = SHOWN_FIELDS,
	FIELD_PLACE_FIELDS = PLACE_FIELDS,
	FIELD_MAX_PLACES = MAX_PLACES,
	FIELD_MAX_TEXT = FIELD_TEXT,
	FIELD_FILTER_PASS = FILTER_PASS,
	FIELD_FILTER_FAIL = FILTER_FAIL,
	FIELD_SYSCALLS_BIT = SYSCALLS_BIT,
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct field);
} fields SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_TERMS);
	__type(key, u32);
	__type(value, struct filter_term);
} filter SEC(".maps");

/* Where a run of a program reads fields from. */
struct field_context {
	u64 runs; /* that hold this or try to get it */
	u64 slot; /* its own index */
	u64 ctx; /* address of the program's context */
	u64 text[FIELD_TEXT / 8];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SCRATCHES);
	__type(key, u32);
	__type(value, struct field_context);
} field_contexts SEC(".maps");

static __always_inline struct field_context *field_context(u32 slot)
{
	return bpf_map_lookup_elem(&field_contexts, &slot);
}

/* Whether attach points differ in their fields, or are distinguished anyway. */
const volatile bool by_place;

/*
 * Whether the program is attached to raw_syscalls:sys_enter or sys_exit in place of the
 * tracepoints of many single system calls. The kernel takes about a tenth of a second to
 * detach each tracepoint. The records have the number of the call, and its arguments or its
 * result, at the same offsets.
 */
const volatile bool by_syscall;

/* The attach cookie there: this bit, and a number of the event and of the direction. */
#define SYSCALLS_COOKIE (1ULL << SYSCALLS_BIT)

/* The number of a call, and the attach cookie without the bit. */
struct syscall_key {
	u32 number;
	u32 set;
};

/* The cookies of the tracepoints that raw_syscalls stands for. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct syscall_key);
	__type(value, u64);
} syscalls SEC(".maps");

/* No attach point has this cookie. */
#define NO_COOKIE (~0ULL)

/*
 * The cookie of an attach point: its place, and its event's number in the upper half. NO_COOKIE
 * if the program was run for another system call, or for one of the 32-bit interface, which
 * the tracepoints of single system calls leave out.
 */
static __always_inline u64 cookie_of(void *ctx, struct task_struct *task)
{
	struct syscall_key key = {};
	u64 cookie, *own = NULL;

	if (!by_place || !has_helper(get_attach_cookie))
		return 0;
	cookie = bpf_get_attach_cookie(ctx);
	if (!by_syscall || !(cookie & SYSCALLS_COOKIE))
		return cookie;
	key.set = cookie;
	bpf_probe_read_kernel(&key.number, sizeof(key.number), ctx + 8);
	if (!task_in_32_bit_call(task))
		own = bpf_map_lookup_elem(&syscalls, &key);
	return own ? *own : NO_COOKIE;
}

/* The address of a field's bytes; user is set if it is in user memory. */
static __always_inline u64 field_address(const struct field_context *c, const struct field *f)
{
	u64 at = c->ctx + f->offset;

	if (f->from == FIELD_CONTEXT || bpf_probe_read_kernel(&at, sizeof(at), (void *)at))
		return at;
	return at + f->displacement;
}

/* The value of a field, 0 if it cannot be read. */
__noinline u64 field_number(u32 slot, u32 index)
{
	const struct field *f = bpf_map_lookup_elem(&fields, &index);
	const struct field_context *c = field_context(slot);
	u64 value = 0, at;
	u32 size, unused;

	if (!f || !c)
		return 0;
	if (f->from == FIELD_CONSTANT)
		return f->displacement;
	size = f->size;
	if (size > sizeof(value))
		return 0;
	barrier_var(size); /* keeps the checks apart, as the verifier needs */
	if (size == 0)
		return 0;
	at = field_address(c, f);
	if (f->from == FIELD_USER)
		bpf_probe_read_user(&value, size, (void *)at);
	else
		bpf_probe_read_kernel(&value, size, (void *)at);
	unused = 64 - 8 * size;
	if (f->is_signed)
		return (s64)(value << unused) >> unused;
	return value;
}

/* Reads a string into the context's text. */
__noinline int field_read_text(u32 slot, u32 index)
{
	const struct field *f = bpf_map_lookup_elem(&fields, &index);
	struct field_context *c = field_context(slot);
	u32 size = FIELD_TEXT;
	u64 at;
	int i;

	if (!f || !c)
		return -1;
	for (i = 0; i < FIELD_TEXT / 8; i++)
		c->text[i] = 0;
	if (f->string == FIELD_ARRAY) {
		at = field_address(c, f);
		if (f->size < size - 1)
			size = f->size + 1; /* it may lack a NUL */
	} else {
		at = field_number(slot, index);
		if (f->string == FIELD_DATA_LOC)
			at = c->ctx + (at & 0xffff);
		else if (f->string == FIELD_REL_LOC)
			at = c->ctx + f->offset + 4 + (at & 0xffff);
	}
	if (size > FIELD_TEXT)
		return -1;
	if (f->string == FIELD_USER_POINTER)
		return bpf_probe_read_user_str(c->text, size, (void *)at) < 0;
	return bpf_probe_read_kernel_str(c->text, size, (void *)at) < 0;
}

/* The fields to show of an event. */
struct shown_fields {
	u64 numbers[SHOWN_FIELDS];
	u64 text[SHOWN_FIELDS][FIELD_TEXT / 8];
	u32 texts; /* which fields have a text, a bit for each */
	u32 place; /* of the event */
};

const struct shown_fields *unused_shown_fields __attribute__((unused));

/*
 * Reads the fields to show of an event. numbers and text have room for SHOWN_FIELDS; which has a
 * bit for each field with a text. If packed is set, there are no gaps between texts, and the result
 * is their number.
 */
static __always_inline u32 show_fields(u32 slot, u32 place, u32 *which, u64 *numbers,
				       u64 (*text)[FIELD_TEXT / 8], bool packed)
{
	struct field_context *c = field_context(slot);
	u32 i, j, at, texts = 0, index;
	const struct field *f;

	*which = 0;
	if (!c)
		return 0;
	for (i = 0; i < SHOWN_FIELDS; i++) {
		index = place * PLACE_FIELDS + FIRST_SHOWN + i;
		f = bpf_map_lookup_elem(&fields, &index);
		if (!f || !f->size)
			break;
		numbers[i] = field_number(slot, index);
		if (f->string == FIELD_NUMBER || field_read_text(slot, index))
			continue;
		at = packed ? texts++ : i;
		barrier_var(at); /* the verifier of 5.10 needs to see the limit */
		at &= SHOWN_FIELDS - 1;
		for (j = 0; j < FIELD_TEXT / 8; j++)
			text[at][j] = c->text[j];
		*which |= 1U << i;
	}
	return texts;
}

static __always_inline bool field_has_text(const struct field_context *c,
					   const struct filter_term *t)
{
	const u64 *want = (const u64 *)t->text;
	u64 differ = 0;
	int i;

	for (i = 0; i < FIELD_TEXT / 8; i++)
		differ |= c->text[i] ^ want[i];
	return !differ;
}

/* Whether a comparison holds. A string that cannot be read is not equal to any. */
__noinline int filter_holds(u32 slot, u32 index, u32 at)
{
	const struct field *f = bpf_map_lookup_elem(&fields, &index);
	const struct filter_term *t = bpf_map_lookup_elem(&filter, &at);
	const struct field_context *c = field_context(slot);
	bool equal, less;
	u64 value;

	if (!f || !t || !c)
		return false;
	if (f->string != FIELD_NUMBER) {
		equal = !field_read_text(slot, index) && field_has_text(c, t);
		return equal == (t->compare == COMPARE_EQUAL);
	}
	value = field_number(slot, index);
	equal = value == t->number;
	less = f->is_signed ? (s64)value < (s64)t->number : value < t->number;
	switch (t->compare) {
	case COMPARE_EQUAL:
		return equal;
	case COMPARE_NOT_EQUAL:
		return !equal;
	case COMPARE_LESS:
		return less;
	case COMPARE_LESS_EQUAL:
		return less || equal;
	case COMPARE_GREATER:
		return !less && !equal;
	}
	return !less;
}

__noinline int filter_passes(u32 slot, u32 place)
{
	const struct filter_term *t;
	u32 at = 0, i;

	for (i = 0; i < MAX_TERMS && at < MAX_TERMS; i++) {
		t = bpf_map_lookup_elem(&filter, &at);
		if (!t)
			return false;
		at = filter_holds(slot, place * PLACE_FIELDS + 1 + at, at) ? t->yes : t->no;
	}
	return at == FILTER_PASS;
}

#endif
