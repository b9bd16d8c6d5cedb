/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Language runtimes: the layout of the runtime in each process, which user space
 * (internal/runtimes) provides, and the stack of its frames. Each runtime has its own header,
 * which reads its frames; runtime.h calls these headers and merges the frames with native
 * ones.
 */
#ifndef FULGUR_RUNTIME_MAPS_H
#define FULGUR_RUNTIME_MAPS_H

#include "kernel.h"
#include "record.h"

/* How to find a thread-local variable. */
enum runtime_local_model {
	LOCAL_BY_OFFSET = 0, /* at an offset from the thread pointer */
	LOCAL_BY_OFFSET_AT = 1, /* the offset is at an address */
	LOCAL_BY_MODULE = 2, /* the number of a module and an offset in it are at an address */
};

/* A thread-local variable in a process. */
struct runtime_local {
	u64 at; /* the offset or the address of enum runtime_local_model */
	u8 model; /* enum runtime_local_model */
	u8 module_shift; /* bytes per entry in the vector of modules, log2 */
	u8 pad[6];
};

/* Addresses from start up to end, which is behind them. */
struct runtime_range {
	u64 start, end;
};

/* Where to find the state of a thread of CPython. */
enum python_thread {
	PYTHON_BY_LIST = 0, /* in the lists of threads of all interpreters */
	PYTHON_BY_KEY = 1, /* by a pthread key of glibc for amd64 */
	PYTHON_BY_LOCAL = 2, /* in a thread-local variable */
};

/* How to find the native frame that runs a Python frame. */
enum python_entry {
	PYTHON_ENTRY_FRAME = 0, /* the native frame contains a frame without code */
	PYTHON_ENTRY_MARKED = 1, /* it contains a C frame for each marked frame */
	PYTHON_ENTRY_EACH = 2, /* it contains a C frame for each frame */
	PYTHON_ENTRY_FUNCTION = 3, /* the interpreter's function runs one frame only */
};

/*
 * CPython in a process, part of struct runtime_process. Offsets are in bytes, in the
 * interpreter's structures.
 */
struct python_process {
	struct runtime_range interpreter; /* _PyEval_EvalFrameDefault() */
	u64 runtime; /* address of _PyRuntime */
	u64 code_type; /* address of PyCode_Type */
	struct runtime_local local; /* PYTHON_BY_LOCAL */
	u16 key; /* PYTHON_BY_KEY: in _PyRuntime */
	/* In _PyRuntime: the state of the thread that holds the lock of all interpreters; 0 if
	 * each interpreter has its own. */
	u16 holder;
	u16 interpreters; /* in _PyRuntime: the first interpreter; the main one is next */
	u16 interpreter_next; /* in the interpreter */
	u16 threads; /* in the interpreter: the first thread state */
	u8 minor; /* 13 for CPython 3.13 */
	u8 thread; /* enum python_thread */
	u8 entry; /* enum python_entry */
	/* In the thread state; status, cframe or frame is 0 if the version lacks that field. The
	 * previous state is before next, and the interpreter after it. */
	u8 thread_next, thread_id, thread_status, thread_frame, thread_cframe;
	u8 cframe_frame, cframe_previous; /* in the C frame */
	/* In the frame. */
	u8 frame_size, frame_code, frame_back, frame_position, frame_owner;
	/* In the code object; version and bytes are 0 if CPython lacks that field. */
	u8 code_line, code_file, code_name, code_lines, code_version, code_bytes;
	u8 string_ascii, string_compact; /* size of the header of an ASCII or another str */
	u8 pad[3];
};

/*
 * V8 in a process, part of struct runtime_process: instance types, and offsets in bytes from
 * the start of V8's objects.
 */
struct v8_process {
	struct runtime_range interpreter; /* the code of the file, with V8's builtins */
	u16 function_first, function_last; /* the range of types of JSFunction */
	u16 shared_type; /* SharedFunctionInfo */
	u16 bytecode_type; /* BytecodeArray */
	u8 map_type; /* in Map: the instance type */
	u8 function_shared; /* in JSFunction: the SharedFunctionInfo */
	u8 shared_script; /* in SharedFunctionInfo: the Script */
	u8 shared_numbers; /* in SharedFunctionInfo: 16 bytes of integers */
	u8 script_id; /* in Script: its number */
	u8 pad[3];
};

/* Maximum number of heaps of HotSpot's code cache. */
#define HOTSPOT_HEAPS 4
/* Bytes of the header of a blob that are read at once: its first ones, and for compiled
 * methods, others from tail on. */
enum hotspot_bytes {
	HOTSPOT_HEAD = 144,
	HOTSPOT_TAIL = 48,
};

/* A heap of code. */
struct hotspot_heap {
	u64 low, high; /* addresses of its code */
	u64 segments; /* address of the segment map: a byte for each segment */
};

/*
 * HotSpot in a process, part of struct runtime_process. Offsets are in bytes. Offsets in
 * blobs are in the bytes that are read of them.
 */
struct hotspot_process {
	struct runtime_range interpreter; /* code in the code cache */
	u64 low, high; /* of all heaps; 0 if the JVM has not made them yet */
	struct hotspot_heap heaps[HOTSPOT_HEAPS];
	u64 entry_return; /* where calls of the code of virtual threads return to, or 0 */
	u16 tail; /* in a compiled method */
	u8 segment_shift; /* bytes per segment, log2 */
	u8 block_header; /* before each blob */
	u8 blob_name, blob_frame, blob_complete, blob_code, blob_size; /* in CodeBlob */
	u8 complete_short; /* blob_complete is of 16 bits */
	u8 code_offset; /* blob_code is an offset, not an address */
	u8 method, compile_id, orig_pc, deopt, deopt_mh; /* in nmethod */
	u8 deopt_offsets; /* deopt and deopt_mh are offsets, not addresses */
	u8 method_const; /* in Method: the ConstMethod */
	u8 const_pool, const_code_size, const_name; /* in ConstMethod */
	u8 const_size; /* of ConstMethod; the bytecodes follow */
	u8 pool_holder; /* in ConstantPool */
	u8 pool_size; /* of ConstantPool; its elements follow */
	u8 klass_id, klass_id_shift; /* in Klass: the number of the class, and its lowest bit */
	u8 pad[6];
};

/* Words of rb_iseq_constant_body that are read. */
enum ruby_body {
	RUBY_BODY_WORDS = 19,
};

/* CRuby in a process, part of struct runtime_process. Offsets are in bytes. */
struct ruby_process {
	struct runtime_range interpreter; /* rb_vm_exec() */
	struct runtime_local context; /* the execution context of a thread */
	u8 minor; /* 3 for Ruby 3.3 */
	u8 frame_size; /* of a control frame */
	u8 body_info; /* in rb_iseq_constant_body: iseq_insn_info */
	u8 line_shift; /* the lowest bit of the first line */
	u8 string_text; /* in short strings; 16 if the length is in the flags */
	u8 tag_pc, tag_previous; /* in rb_vm_tag */
	u8 guarded; /* tag_pc is encoded by glibc */
};

/* The runtimes of a process, one of each kind. */
struct runtime_process {
	u64 image; /* the process image that the entry is for */
	/* RUNTIME_BIT() of each runtime. None if the process runs a struct runtime_program, but has
	 * not loaded the runtime yet. */
	u64 kinds;
	struct python_process python;
	struct v8_process v8;
	struct hotspot_process hotspot;
	struct ruby_process ruby;
};

enum runtime_program_limit {
	PROGRAM_HEAD = 1024, /* bytes at the start of a file that identify it */
	PROGRAM_ADDRESSES = 8,
};

/* How to recognize a file that a process maps. */
struct runtime_file {
	u64 head; /* link-time address of the start of the file */
	u64 hash; /* of its first PROGRAM_HEAD bytes */
};

/*
 * A program whose processes have a runtime, in the program itself or in a library. From its
 * entry, the kernel side reads the frames of its processes before user space knows them. A
 * program has an entry for each of its runtimes.
 */
struct runtime_program {
	u64 end; /* link-time address of the end of the program's code */
	/* Link-time address of the word that points to the dynamic loader's list of libraries
	 * (DT_DEBUG), or 0 if the runtime is in the program. */
	u64 libraries;
	u64 dynamic; /* link-time address of the library's dynamic section */
	struct runtime_file program, library;
	u8 addresses[PROGRAM_ADDRESSES]; /* words of process that are addresses; 0 for none */
	struct runtime_process process; /* with link-time addresses, and with one runtime */
};

/* The runtimes whose frames are read before the native walk, and then merged. */
enum runtime_part_index {
	PART_RUBY = 0, /* ruby_match() moves its groups to the start of the stack's */
	PART_PYTHON = 1,
	RUNTIME_PARTS = 2,
};

/* The frames of one runtime in struct runtime_stack. They follow those of the part before. */
struct runtime_part {
	struct runtime_range interpreter; /* as in runtime_process */
	u32 groups; /* number of groups up to its last one */
	u32 words; /* number of words up to its last one */
	u32 merged; /* number of groups up to the last one that is in the record */
	u32 from; /* number of words up to the last one that is in the record */
};

/* The frames of all runtimes in a stack, for each of them leaf first. */
struct runtime_stack {
	u32 groups; /* number of groups of frames; one native frame runs each group */
	u32 words; /* number of words in frames */
	u32 end; /* enum stack_end if frames are missing, otherwise END_NONE */
	u32 during; /* RUNTIME_BIT() of runtimes whose frames are read during the native walk */
	u32 urgent; /* a frame has a function that was not seen before */
	u32 present; /* the stack may have frames of a runtime; otherwise only urgent is set */
	struct runtime_part parts[RUNTIME_PARTS];
	u64 code, code_size; /* where hotspot_step() walks, in bytes */
	/* For each group an address in the native frame that runs it, or 0 if the next frame
	 * of its interpreter's function does. */
	u64 entries[MAX_RUNTIME_FRAMES];
	u16 ends[MAX_RUNTIME_FRAMES + 1]; /* the number of words up to the end of each group */
	u64 frames[2 * MAX_RUNTIME_FRAMES];
};

/* The state of a walk of the runtime's frames. */
struct runtime_walk {
	struct runtime_process process;
	u64 tgid;
	u64 image; /* process image */
	u64 thread; /* address of the thread's state */
	/* CPython: the search for it. */
	u64 interpreter; /* address of the next interpreter to search */
	u64 listed; /* address of the next state to look at */
	u64 idle; /* address of a state of the thread that runs no frames */
	u64 innermost; /* address of the C frame of the thread's state */
	u64 thread_pointer; /* of the current thread */
	u64 key; /* of the thread in python_states */
	u64 kept; /* address of its state when a sample last found it, or 0 */
	u64 top; /* address of the end of its stack, if that shows its state; otherwise 0 */
	u64 frame; /* address of the next frame */
	u64 cframe; /* address of the next C frame, or the next tag of Ruby */
	u64 end; /* Ruby: address behind the frames */
	u64 guard; /* Ruby: number that encodes pointers */
	u64 frame_words[14];
	u64 code_words[18];
	u64 text[16];
	u64 blob[(HOTSPOT_HEAD + HOTSPOT_TAIL) / 8];
	u64 object[5]; /* Ruby: an object */
	u64 string, string_length; /* Ruby: address and bytes of a text */
	u64 body[RUBY_BODY_WORDS]; /* Ruby: the body of an instruction sequence */
	u64 pc, low, fp; /* registers in the native frame that the walk steps from; low is sp */
	u32 retried;
	u32 entries; /* Ruby: number of native frames that may run groups */
	u32 searched; /* CPython: the search has seen all states */
	u32 several; /* CPython up to 3.11: there are several interpreters */
};

/*
 * Found states of threads of CPython: a set-associative table with racy stores, like seen in
 * stack.h. Readers check that a state is of the thread.
 */
enum python_states {
	PYTHON_STATE_SETS = 1024,
	PYTHON_STATE_WAYS = 4,
};
struct python_state {
	u64 thread; /* hash of the process image and the thread's ID */
	u64 state; /* its address, or enum python_absence */
};
struct python_state_set {
	struct python_state of[PYTHON_STATE_WAYS];
};

/*
 * What is kept for a thread without a state. The time follows these bits, so that the thread is
 * searched for again later. Addresses of states are multiples of 8.
 */
enum python_absence {
	PYTHON_ABSENT = 1,
	PYTHON_UNSEARCHED = 2, /* there were too many states to look at all */
};

/* Maximum sizes of a sent name and of a sent line table, in bytes. */
#define CODE_TEXT 256
#define CODE_LINES 16384

/* A string of a runtime: its length in characters, and the bytes per character; or CODE_UTF8,
 * and the length is in bytes. */
#define CODE_UTF8 0
struct code_text {
	u32 length;
	u32 width;
};

/* A function of a runtime. */
struct code_head {
	u32 type;
	u32 pid;
	u64 epoch;
	u64 address;
	u32 check;
	u32 kind; /* enum runtime_kind */
	u32 version; /* of the line table's format */
	u32 first_line;
	struct code_text name, file; /* of the whole strings, before truncation */
	u32 lines; /* bytes in line_table */
	u32 pad;
	u8 name_text[CODE_TEXT];
	u8 file_text[CODE_TEXT];
};

/* A function with its line table, sent before the first stack that contains it. */
struct code_record {
	struct code_head head;
	u8 line_table[CODE_LINES]; /* the first bytes */
};

#ifdef __bpf__
#include <bpf/bpf_helpers.h>

/* Processes with runtimes. All families share it, like the maps in unwind_maps.h. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, u32); /* thread group */
	__type(value, struct runtime_process);
} runtime_processes SEC(".maps");

/* Programs whose processes have a runtime, by the keys of program.h. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 128);
	__type(key, u64);
	__type(value, struct runtime_program);
} runtime_programs SEC(".maps");

/* Whether one of these maps had an entry since the start, which saves look-ups in them. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u32);
} runtime_any SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PYTHON_STATE_SETS);
	__type(key, u32);
	__type(value, struct python_state_set);
} python_states SEC(".maps");

#endif
#endif
