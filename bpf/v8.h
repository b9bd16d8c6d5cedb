/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Frames of JavaScript in V8 10.2 to 14.6 (Node.js 18 to 26). Interpreted and compiled code
 * and the builtins keep frame pointers, so the native walk steps through them. Below the
 * frame pointer, a frame of a JavaScript function has its context and its JSFunction; other
 * frames have a small integer in place of the context.
 *
 * V8's garbage collector moves JSFunctions often, but their SharedFunctionInfo only when it
 * compacts memory. Its address and a check identify the function. The check includes the
 * number of the Script, which V8 does not use again, unlike addresses. User space reads the
 * rest when it receives the stack: see internal/runtimes/v8.
 *
 * Data in the process may be forged, or change during the walk: the instance types of all
 * objects are checked.
 */
#ifndef FULGUR_V8_H
#define FULGUR_V8_H

/* Included by runtime.h. */

#define V8_IS_OBJECT(word) (((word) & 3) == 1)
#define V8_IS_SMI(word) (((word) & 0xffffffff) == 0)
#define V8_SMI_SHIFT 32

/* Words of a frame, from the lowest one; see StandardFrameConstants of V8. */
enum v8_slot {
	V8_BYTECODE_OFFSET = 0, /* at fp - 40 */
	V8_BYTECODE = 1,
	V8_ARGUMENTS = 2,
	V8_FUNCTION = 3,
	V8_CONTEXT = 4,
	V8_SLOTS = 5,
};

#define V8_NUMBERS 16 /* bytes of integers in a SharedFunctionInfo */

/* The instance type of an object, or 0, which is a type of strings. */
static __always_inline u16 v8_type(const struct v8_process *p, u64 object)
{
	u64 map = 0;
	u16 type = 0;

	if (!V8_IS_OBJECT(object) || !runtime_read(&map, 8, object - 1) || !V8_IS_OBJECT(map) ||
	    !runtime_read(&type, 2, map - 1 + p->map_type))
		return 0;
	return type;
}

/*
 * Appends the JavaScript function of native frame i, if it has one. Frame i is the last native
 * frame so far, and fp is its frame pointer.
 */
UNWIND_GLOBAL int v8_frame(u32 scratch, u32 i, u64 fp)
{
	struct stack_scratch *s = bpf_map_lookup_elem(&scratches, &scratch);
	/* The identity replaces the slots, to save BPF stack. */
	union {
		u64 slots[V8_SLOTS];
		struct {
			u64 numbers[V8_NUMBERS / 8], script, script_id;
		};
	} w;
	u64 shared = 0, key, pc;
	struct v8_process *p;
	u32 at, check, position = 0;
	u16 type;

	if (!s)
		return 0;
	p = &s->runtime_walk.process.v8;
	if (!runtime_read(w.slots, sizeof(w.slots), fp - sizeof(w.slots)) ||
	    !V8_IS_OBJECT(w.slots[V8_CONTEXT]))
		return 0;
	type = v8_type(p, w.slots[V8_FUNCTION]);
	if (type < p->function_first || type > p->function_last ||
	    !runtime_read(&shared, 8, w.slots[V8_FUNCTION] - 1 + p->function_shared) ||
	    v8_type(p, shared) != p->shared_type)
		return 0;
	shared--;
	/* Compiled code mostly has other data there. */
	if (V8_IS_SMI(w.slots[V8_BYTECODE_OFFSET]) &&
	    v8_type(p, w.slots[V8_BYTECODE]) == p->bytecode_type) {
		position = w.slots[V8_BYTECODE_OFFSET] >> V8_SMI_SHIFT;
		position = position < FRAME_ENTERED - 1 ? position + 1 : 0;
	}
	if (!runtime_read(w.numbers, sizeof(w.numbers), shared + p->shared_numbers) ||
	    !runtime_read(&w.script, 8, shared + p->shared_script) ||
	    !runtime_read(&w.script_id, 8, w.script - 1 + p->script_id))
		return 0;
	check = hash_step(hash_step(hash_step(w.numbers[0], w.numbers[1]), w.script),
			  w.script_id) >>
		32;
	at = s->walk.first + i;
	barrier_var(at); /* keeps the bounds check before the pointer arithmetic */
	if (at >= MAX_FRAME_WORDS - 2)
		return 0;
	/*
	 * The instruction of an interpreter is of no use, and would make more distinct stacks.
	 * Compiled code that replaced a running interpreter may have its words, too.
	 */
	pc = s->record.frames[at] & ~FRAME_EXACT;
	if (position && pc >= s->runtime.interpreter && pc < s->runtime.interpreter_end)
		s->record.frames[at] = s->runtime.interpreter | (i ? FRAME_EXACT : 0);
	s->record.frames[at + 1] = 1ULL << FRAME_RUNTIME_SHIFT |
				   (u64)RUNTIME_V8 << FRAME_KIND_SHIFT |
				   (shared & ((1ULL << FRAME_KIND_SHIFT) - 1));
	s->record.frames[at + 2] = (u64)check << 32 | FRAME_ENTERED | position;
	s->walk.first += 2;
	key = code_key(&s->record, shared, check);
	if (!code_sent(key)) {
		code_remember(key);
		s->runtime.urgent = 1;
	}
	return 0;
}

#endif
