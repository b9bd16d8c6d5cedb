/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Language runtimes: what user space (internal/runtimes) knows of those in each
 * process, and the stack of their frames that is merged with the native one. Each
 * runtime has a header of its own, which reads its frames; runtime.h calls them.
 */
#ifndef FULGUR_RUNTIME_MAPS_H
#define FULGUR_RUNTIME_MAPS_H

#include "record.h"

/* Where a thread of CPython has the pointer to its thread state. */
enum python_thread {
	PYTHON_BY_LIST = 0, /* in the list of threads of the main interpreter */
	PYTHON_BY_KEY = 1, /* under a pthread key of glibc for amd64 */
	PYTHON_BY_OFFSET = 2, /* at an offset from the thread pointer */
};

/* How Python frames are tied to native ones. */
enum python_entry {
	PYTHON_ENTRY_FRAME = 0, /* frames of no code lie in the interpreter's native frame */
	PYTHON_ENTRY_MARKED = 1, /* a C frame lies there for each frame that is marked */
	PYTHON_ENTRY_EACH = 2, /* a C frame lies there for each frame */
	PYTHON_ENTRY_FUNCTION = 3, /* one to one with frames of the interpreter's function */
};

/*
 * CPython in a process. Offsets are in bytes, in the structures of the interpreter. It is
 * in a struct runtime_process.
 */
struct python_process {
	u64 runtime; /* address of _PyRuntime */
	u64 code_type; /* address of PyCode_Type */
	s32 thread_offset; /* PYTHON_BY_OFFSET: from the thread pointer */
	u16 key; /* PYTHON_BY_KEY: in _PyRuntime */
	u16 interpreters; /* in _PyRuntime */
	u16 threads; /* in the interpreter: the first thread state */
	u8 minor; /* of the version */
	u8 thread; /* enum python_thread */
	u8 entry; /* enum python_entry */
	/* In the thread state; cframe is 0 if there is none, frame if it is there. */
	u8 thread_next, thread_id, thread_frame, thread_cframe;
	u8 cframe_frame, cframe_previous; /* in the C frame */
	/* In the frame. */
	u8 frame_size, frame_code, frame_back, frame_position, frame_owner;
	/* In the code object; version is 0 if it has none. */
	u8 code_line, code_file, code_name, code_lines, code_version, code_bytes;
	u8 string_ascii, string_compact; /* size of a string's header, if it is ASCII or not */
	u8 pad[2];
};

/* The runtime of a process. */
struct runtime_process {
	u64 image; /* that has it */
	u32 kind; /* enum runtime_kind */
	u32 pad;
	u64 interpreter; /* address of the function that interprets code, and of its end */
	u64 interpreter_end;
	struct python_process python;
};

/* The frames of a runtime in a stack, leaf first. */
struct runtime_stack {
	u32 groups; /* number of groups of frames; each is run by one native frame */
	u32 words; /* number of words */
	u32 merged; /* groups that are in the record */
	u32 cut; /* the limit on frames was reached */
	u64 interpreter; /* as in runtime_process */
	u64 interpreter_end;
	/* For each group an address in the native frame that runs it. If it is 0, it is run
	 * by one of the interpreter's function. */
	u64 entries[MAX_RUNTIME_FRAMES];
	u16 ends[MAX_RUNTIME_FRAMES + 1]; /* the words after each group */
	u64 frames[2 * MAX_RUNTIME_FRAMES];
};

/* The state of a walk of the runtime's frames. */
struct runtime_walk {
	struct runtime_process process;
	u64 tgid;
	u64 thread; /* address of the thread's state */
	u64 frame; /* addresses of what comes next */
	u64 cframe;
	u64 frame_words[14];
	u64 code_words[18];
	u64 text[17];
	u32 retried;
	u32 pad;
};

/* Most bytes of a name, and of a table of lines, that are sent. */
#define CODE_TEXT 256
#define CODE_LINES 16384

/* A string of a runtime: its length, and bytes of a character. */
struct code_text {
	u32 length;
	u32 width;
};

/* A function of a runtime, sent before the first stack that has it. */
struct code_record {
	u32 type;
	u32 pid;
	u64 epoch;
	u64 address;
	u32 check;
	u32 kind; /* enum runtime_kind */
	u32 version; /* of the format of lines */
	u32 first_line;
	struct code_text name, file; /* of the whole strings */
	u32 lines; /* bytes of the table of lines */
	u32 pad;
	u8 name_text[CODE_TEXT];
	u8 file_text[CODE_TEXT];
	u8 line_table[CODE_LINES]; /* its begin */
};

#ifdef __bpf__
#include <bpf/bpf_helpers.h>

/* Processes with a runtime. Shared by all families, as are the maps in unwind_maps.h. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, u32); /* thread group */
	__type(value, struct runtime_process);
} runtime_processes SEC(".maps");

#endif
#endif
