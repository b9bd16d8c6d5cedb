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

#include "hash.h"
#include "kernel.h"
#include "record.h"
#include "runtime_frames.h"
#include "runtime_maps.h"
#include "scratch.h"
#include "unwind_env.h"
#include "unwind_state.h"
#include <bpf/bpf_helpers.h>

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

/* Where the words of a frame are, in place of an address: see v8_leaf(). */
#define V8_NO_FRAME 0
#define V8_IN_REGISTERS 1

#if defined(__TARGET_ARCH_x86)
/* DWARF's number of the register that has the JSFunction when a function begins. */
#define V8_FUNCTION_REGISTER 5 /* rdi */
#define V8_SCRATCH_REGISTER 10

/* pop %r10; lea ...,%rsp; push %r10: their first two bytes */
#define V8_POP 0x5a41
#define V8_LEA 0x8d48
#define V8_PUSH 0x5241
#define V8_IN_SCRATCH 2 /* the return address is in the scratch register */

/* Byte i of an array of words, counted from its start. */
#define V8_BYTE(words, i) ((u8)((words)[(i) / 8] >> (i) % 8 * 8))

/* The eight bytes from byte i on. */
static __always_inline u64 v8_bytes(const u64 *words, u32 i)
{
	u32 shift = i % 8 * 8;

	return shift ? words[i / 8] >> shift | words[i / 8 + 1] << (64 - shift) : words[i / 8];
}

/* Bytes of code that are read before and from an address. */
#define V8_BEFORE 8
#define V8_CODE_WORDS 4

/* push %rbp; mov %rsp,%rbp; and push %rsi; push %rdi in functions */
#define V8_ENTER 0xe5894855
#define V8_PUSHES 0x5756
#define V8_ENTER_FUNCTION (V8_ENTER | (u64)V8_PUSHES << 32)
#define V8_BYTES(n) (~0ULL >> (64 - 8 * (n)))

/* Instructions of functions before V8_ENTER: at most these bytes. */
#define V8_CHECKS 15

/* mov %rbp,%rsp; pop %rbp */
#define V8_LEAVE 0x5de58b48

/*
 * Whether code is between V8_LEAVE and its return, with the return address at the stack
 * pointer.
 */
static __always_inline bool v8_returns(const u64 *code)
{
	u8 first = V8_BYTE(code, V8_BEFORE);

	if (code[0] >> 32 == V8_LEAVE || first == 0xc3 || first == 0xc2) /* ret */
		return true;
	/* jg after cmp $parameters,%rcx or %r8 */
	if ((first == 0x7f || (first == 0x0f && V8_BYTE(code, V8_BEFORE + 1) == 0x8f)) &&
	    V8_BYTE(code, V8_BEFORE - 5) == 0x5d && (V8_BYTE(code, V8_BEFORE - 4) & 0xfe) == 0x48 &&
	    V8_BYTE(code, V8_BEFORE - 3) == 0x83)
		return true;
	/* pop %r10 after ret $bytes: there are more arguments than parameters */
	return first == 0x41 && V8_BYTE(code, V8_BEFORE + 1) == 0x5a &&
	       V8_BYTE(code, V8_BEFORE - 3) == 0xc2;
}

/*
 * Corrects the step from native frame i, if it was interrupted before its frame in memory was
 * complete, or after it began to remove it: then the frame pointer is the caller's. sp and fp
 * are its registers. Returns the address of the frame's words, or one of the values above. V8's
 * compilers for amd64 begin and end functions with these instructions: see
 * CodeGenerator::AssembleConstructFrame() and AssembleReturn() in
 * src/compiler/backend/x64/code-generator-x64.cc.
 */
UNWIND_GLOBAL u64 v8_leaf(u32 scratch, u32 i, u64 sp, u64 fp)
{
	struct stack_scratch *s = runtime_scratch(scratch);
	u64 code[V8_CODE_WORDS], words[1], frame = V8_NO_FRAME, here, pc;
	u32 return_at, at;

	if (!s)
		return fp;
	at = s->walk.first + i;
	barrier_var(at); /* keeps the bounds check before the pointer arithmetic */
	if (at >= MAX_FRAME_WORDS)
		return fp;
	pc = s->record.frames[at];
	if (i && !(pc & FRAME_EXACT))
		return fp;
	pc &= ~FRAME_EXACT;
	if (!runtime_read(code, sizeof(code), pc - V8_BEFORE))
		return fp;
	here = code[V8_BEFORE / 8];
	if ((here & V8_BYTES(4)) == V8_ENTER) {
		return_at = 0;
		if ((here & V8_BYTES(6)) == V8_ENTER_FUNCTION)
			frame = V8_IN_REGISTERS;
	} else if ((here & V8_BYTES(3)) == V8_ENTER >> 8 && V8_BYTE(code, V8_BEFORE - 1) == 0x55) {
		return_at = 1;
		if ((here >> 24 & V8_BYTES(2)) == V8_PUSHES)
			frame = V8_IN_REGISTERS;
	} else if (v8_returns(code)) {
		return_at = 0;
		/* The words below the stack pointer are still there. */
		if (runtime_read(words, 8, sp - 8) && words[0] == fp)
			frame = sp - 8;
	} else if ((code[0] >> 48 == V8_POP && (here & V8_BYTES(2)) == V8_LEA) ||
		   ((here & V8_BYTES(2)) == V8_PUSH && (code[0] >> 24 & V8_BYTES(2)) == V8_LEA)) {
		/* It has popped the return address, to pop arguments. */
		if (code[0] >> 48 == V8_POP && runtime_read(words, 8, sp - 16) && words[0] == fp)
			frame = sp - 16;
		return_at = V8_IN_SCRATCH;
	} else {
		/* The frame has its frame pointer, but its words may be missing. */
		if ((here & V8_BYTES(2)) == V8_PUSHES && code[0] >> 32 == V8_ENTER)
			return V8_IN_REGISTERS;
		if ((here & 0xff) == V8_PUSHES >> 8 && code[0] >> 24 == (V8_ENTER | 0x56ULL << 32))
			return V8_IN_REGISTERS;
		if (code[0] >> 32 == V8_ENTER)
			return V8_NO_FRAME;
		if (pc >= s->runtime_walk.process.v8.interpreter.start &&
		    pc < s->runtime_walk.process.v8.interpreter.end)
			return fp;
		for (u32 n = 1; n <= V8_CHECKS; n++) {
			if ((v8_bytes(code, V8_BEFORE + n) & V8_BYTES(6)) == V8_ENTER_FUNCTION)
				frame = V8_IN_REGISTERS;
		}
		if (frame == V8_NO_FRAME)
			return fp;
		return_at = 0;
	}
	if (return_at == V8_IN_SCRATCH ? !unwind_register(&s->walk, V8_SCRATCH_REGISTER, words)
				       : !runtime_read(words, 8, sp + 8 * return_at))
		return fp;
	s->walk.pc = words[0] & ~FRAME_EXACT;
	s->walk.sp = return_at == V8_IN_SCRATCH ? sp : sp + 8 + 8 * return_at;
	s->walk.fp = fp;
	return frame;
}
#else
static __always_inline u64 v8_leaf(u32 scratch, u32 i, u64 sp, u64 fp)
{
	return fp;
}
#define V8_FUNCTION_REGISTER 0
#endif

/*
 * Appends the JavaScript function of native frame i, if it has one. Frame i is the last native
 * frame so far, and fp is its frame pointer, or a value of v8_leaf().
 */
UNWIND_GLOBAL int v8_frame(u32 scratch, u32 i, u64 fp)
{
	struct stack_scratch *s = runtime_scratch(scratch);
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
	if (fp == V8_IN_REGISTERS) {
		w.slots[V8_BYTECODE_OFFSET] = 1; /* no integer */
		w.slots[V8_BYTECODE] = 0;
		if (!unwind_register(&s->walk, V8_FUNCTION_REGISTER, &shared))
			return 0;
		w.slots[V8_FUNCTION] = shared;
	} else if (fp == V8_NO_FRAME ||
		   !runtime_read(w.slots, sizeof(w.slots), fp - sizeof(w.slots)) ||
		   !V8_IS_OBJECT(w.slots[V8_CONTEXT])) {
		return 0;
	}
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
	if (position && pc >= p->interpreter.start && pc < p->interpreter.end)
		s->record.frames[at] = p->interpreter.start | (i ? FRAME_EXACT : 0);
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
