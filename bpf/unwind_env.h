/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The environment of the walker of user stacks (unwind_walk.h) in the kernel: how it reads memory,
 * registers and tables.
 */
#ifndef FULGUR_UNWIND_ENV_H
#define FULGUR_UNWIND_ENV_H

#include "kernel.h"
#include "record.h"
#include "task.h"
#include "unwind_maps.h"
#include "unwind_state.h"
#include <bpf/bpf_helpers.h>

const volatile u32 unwind; /* enum unwind_mode */

/*
 * Whether walks begin at the entries of functions of programs, or at the returns of Go
 * functions. There, the frame pointer is still the caller's, so it leads to the caller's
 * caller. A single walk may begin elsewhere (inside). With unwind tables, only Go code needs
 * this: it has no tables.
 */
const volatile bool at_entry;

static __always_inline bool unwind_read(struct unwind_walk *w, void *to, u32 size, u64 addr)
{
	u64 at = addr - w->copy_of, part = at / STACK_PART, place;

	if (!w->copy)
		return bpf_probe_read_user(to, size, (void *)addr) == 0;
	barrier_var(part); /* keeps the bounds check before the pointer arithmetic */
	if (part >= STACK_SPAN || at % STACK_PART + size > STACK_PART)
		return false;
	place = w->places[part];
	at = w->copy + (place - 1) * STACK_PART + at % STACK_PART;
	return place && bpf_probe_read_kernel(to, size, (void *)at) == 0;
}

#if defined(__TARGET_ARCH_x86)
/* Positions of DWARF's registers, in words, in pt_regs and signal frames. */
static const u8 pt_regs_words[16] = { 10, 12, 11, 5, 13, 14, 4, 19, 9, 8, 7, 6, 3, 2, 1, 0 };
static const u8 signal_words[16] = { 13, 12, 14, 11, 9, 8, 10, 15, 0, 1, 2, 3, 4, 5, 6, 7 };
#endif

static __always_inline bool unwind_register(struct unwind_walk *w, u32 number, u64 *value)
{
	u64 at = w->regs;

#if defined(__TARGET_ARCH_x86)
	if (number >= 16)
		return false;
	at += 8 * (w->by_signal ? signal_words[number] : pt_regs_words[number]);
#else
	if (number >= 32)
		return false;
	at += 8 * number;
#endif
	if (w->by_signal)
		return unwind_read(w, value, sizeof(*value), at);
	return bpf_probe_read_kernel(value, sizeof(*value), (void *)at) == 0;
}

static __always_inline const struct unwind_mapping *unwind_mapping_at(u32 index)
{
	return bpf_map_lookup_elem(&unwind_mappings, &index);
}

static __always_inline const struct unwind_rule *unwind_rule_at(u32 index)
{
	return bpf_map_lookup_elem(&unwind_rules, &index);
}

/*
 * The address bits of a code pointer. On arm64, the other bits may contain the
 * signature of a return address; code is above 48 bits only in programs that request
 * it.
 */
static __always_inline u64 unwind_pc_bits(void)
{
#if defined(__TARGET_ARCH_arm64)
	return (1ULL << 48) - 1;
#else
	return ~FRAME_EXACT;
#endif
}

static __always_inline enum unwind_mode unwind_by(void)
{
	return unwind;
}

static __always_inline bool unwind_at_entry(const struct unwind_walk *w)
{
	return at_entry && !w->inside;
}

static __always_inline bool unwind_thread_pointer(const struct unwind_walk *w, u64 *value)
{
#if defined(__TARGET_ARCH_x86)
	if (w->copy)
		return false; /* of another thread */
	*value = task_thread_pointer(current_task());
	return true;
#else
	return false;
#endif
}

/*
 * Wakes user space at once: requests are rare, and each delays stacks. The request is made in
 * the ring, because the programs with the most calls have no room for it on their stack.
 */
static __always_inline bool unwind_ask(u32 type, u32 id, u64 image, u64 address)
{
	struct unwind_request *request;

	request = bpf_ringbuf_reserve(&unwind_requests, sizeof(*request), 0);
	if (!request)
		return false;
	request->type = type;
	request->id = id;
	request->image = image;
	request->address = address;
	request->time = bpf_ktime_get_ns();
	bpf_ringbuf_submit(request, BPF_RB_FORCE_WAKEUP);
	return true;
}

static __always_inline const u32 *unwind_page_at(u32 page)
{
	struct unwind_page_state *state = bpf_map_lookup_elem(&unwind_page_states, &page);
	void *inner = bpf_map_lookup_elem(&unwind_pages, &page);
	u32 zero = 0;

	if (!state)
		return NULL;
	if (!inner) {
		if (!state->asked && unwind_ask(UNWIND_WANT_PAGE, page, 0, 0))
			state->asked = 1;
		return NULL;
	}
	if (!state->used)
		state->used = 1;
	return bpf_map_lookup_elem(inner, &zero);
}

#endif
