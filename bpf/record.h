/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Records for user space. The Go types are generated from these. */
#ifndef FULGUR_RECORD_H
#define FULGUR_RECORD_H

#include "kernel.h"

/*
 * Frames of each half of a stack: kernel.perf_event_max_stack clamps what
 * bpf_get_stack returns to 127 unless an administrator raised it.
 */
#define MAX_DEPTH 127
#define TASK_COMM_LEN 16

/* Maximum number of frames of a language runtime in a stack. */
#define MAX_RUNTIME_FRAMES 127
/* Maximum number of words of a stack's frames. A frame of a runtime takes two. */
#define MAX_FRAME_WORDS (2 * MAX_DEPTH + 2 * MAX_RUNTIME_FRAMES)

/* The first word of every record in the ring. */
enum record_type {
	RECORD_STACK = 1,
	RECORD_EVENT = 2, /* a single count; count.h */
	RECORD_FILE = 3, /* file.h */
	RECORD_TIMELINE = 4, /* event.h */
	RECORD_SNAPSHOT = 5, /* a stack to be walked later; snapshot.h */
	RECORD_CODE = 6, /* a function of a language runtime; runtime.h */
	RECORD_LABELS = 7, /* a set of labels; labels.h */
};

/* What a process has sent in a window of time; see ring.h. Stores are racy. */
struct ring_budget {
	u64 window;
	u64 bytes;
};

/* Why a half of a stack ends. It is part of the stack's ID. */
enum stack_end {
	END_NONE = 0, /* there is no such half */
	END_FRAME_POINTER = 1, /* the chain of frame pointers ended */
	END_DEPTH = 2, /* the limit on frames was reached */
	END_FAULT = 3, /* it could not be read */
	END_COMPLETE = 4, /* the outermost function of the thread was reached */
	END_NO_MAPPING = 5, /* no code is mapped at the last frame's address */
	END_NO_TABLE = 6, /* the last frame's code has no unwind information */
	END_UNSUPPORTED = 7, /* it has, but no rule can express it */
	END_REGISTER = 8, /* its rule needs a register that is no longer known */
	END_NOT_GROWING = 9, /* the caller's frame would not be above it */
	END_NOT_READY = 10, /* by frame pointers: the process had no tables yet */
	END_PAGE = 11, /* that part of the tables was not loaded */
	END_NO_CHAIN = 12, /* by frame pointers, and the chain is implausible */
	END_UNSEEN = 13, /* the thread slept since before the measurement, and cannot be walked */
	END_LATE = 14, /* the last frame's code has no table yet: making it takes long */
};

/*
 * Set in a user frame that is exact though it is not the leaf: a signal
 * interrupted it, so it is not a return address.
 */
enum frame_bit {
	FRAME_EXACT_BIT = 63,
	/* In frames of runtimes, see below. */
	FRAME_RUNTIME_SHIFT = 62,
	FRAME_KIND_SHIFT = 58,
	FRAME_ENTERED_BIT = 31,
};
#define FRAME_EXACT (1ULL << FRAME_EXACT_BIT)

/*
 * A frame of a language runtime takes two words. The first has 01 in its upper two bits,
 * then enum runtime_kind in 4 bits, then the code's address. The second has in its upper half
 * a check, which differs if other code was at the same address before. Its lower half has
 * the position in the code plus 1, or 0 if unknown, and possibly FRAME_ENTERED. In a native
 * frame, the kind bits are FRAME_NATIVE or 0.
 */
#define FRAME_NATIVE (0xfULL << FRAME_KIND_SHIFT)
/*
 * Set in the first of the runtime frames that a native frame runs: it is the native frame
 * before it, and has the address of the interpreter's function. If this is not set, it is
 * unknown which native frame runs them.
 */
#define FRAME_ENTERED (1U << FRAME_ENTERED_BIT)

enum runtime_kind {
	RUNTIME_NONE = 0,
	RUNTIME_PYTHON = 1, /* python.h */
	RUNTIME_V8 = 2, /* v8.h */
	RUNTIME_HOTSPOT = 3, /* hotspot.h */
	RUNTIME_RUBY = 4, /* ruby.h */
};
#define RUNTIME_BIT(kind) (1U << (kind))

/*
 * The sample that a stack record counts. tid and cpu are 0 if threads and CPUs are
 * not counted separately.
 */
struct stack_count {
	u32 tid;
	u32 cpu;
	u64 weight; /* its period; 0 if the record counts no sample */
};

/* What the kernel side knows of a process that it cannot judge by the rules; see rules.h. */
struct rule_match {
	u64 rules; /* those that may match */
	u64 group; /* keys of the tables, 0 if no rule needs them */
	u64 program;
};

/*
 * The frames of a stack, sent once per ID: kernel frames, then user frames,
 * each leaf first. Frames of runtimes follow the native frames that run them. Only the
 * used prefix of frames crosses the ring.
 */
struct stack_record {
	u32 type;
	u16 kernel_frames;
	u16 user_frames; /* words */
	u64 id;
	u64 time; /* CLOCK_MONOTONIC, ns */
	u64 epoch; /* identity of the process image */
	u64 cgroup; /* ID of the task's cgroup v2, 0 unless by_cgroup is set */
	u64 labels; /* ID of the set of labels, or 0; labels.h */
	struct rule_match match; /* all 0 unless rules have yet to decide; rules.h */
	u32 pid; /* thread group */
	u32 tid;
	u8 kernel_end; /* enum stack_end */
	u8 user_end; /* enum stack_end */
	u8 pad[6];
	u8 comm[TASK_COMM_LEN];
	struct stack_count first;
	u64 frames[MAX_FRAME_WORDS];
};

/* Indexes of the per-CPU statistics. */
enum stat {
	STAT_SAMPLES = 0, /* samples of the target */
	STAT_LOST = 1, /* neither count map nor ring took the sample */
	STAT_RETRY = 2, /* a stack did not fit into the ring */
	STAT_EVENT = 3, /* samples sent as event records */
	STAT_UNTRACKED = 4, /* children that did not fit into the target set */
	STAT_RUNS = 5, /* samples of all tasks, in the target or not */
	STAT_PERIODS = 6, /* sum of their periods */
	STAT_EMPTY = 7, /* samples without branch records */
	STAT_UNFOLLOWED = 8, /* entries that did not fit into the table of events in progress */
	STAT_MAJOR_RUNS = 9, /* as STAT_RUNS, of major page faults */
	STAT_MAJOR_PERIODS = 10, /* as STAT_PERIODS */
	STAT_MERGED = 11, /* requests merged into others */
	STAT_UNFINISHED = 12, /* requests whose completion was not seen */
	STAT_MISSED = 13, /* changes that the kernel did not report, revealed by later ones */
	STAT_IDLE_PERIODS = 14, /* as STAT_PERIODS, of the idle task */
	STAT_LIMITED = 15, /* hits above the limit of a second */
	STAT_NEGATIVE = 16, /* hits whose weight was negative */
	STAT_CROWDED = 17, /* hits without memory to walk their stack */
	STAT_UNLABELED = 18, /* samples whose labels did not fit */
	STAT_FOLLOWED = 19, /* intervals that began */
	STAT_FORGOTTEN = 20, /* of these, the ones that ended or were given up */
	STAT_AMBIGUOUS = 21, /* returns of calls whose beginning another call had replaced */
	STAT_UNSEARCHED = 22, /* stacks of threads of CPython whose state was not found */
	STAT_EXCLUDED = 23, /* samples of processes that the rules exclude */
	STAT_EXCLUDED_PERIODS = 24, /* sum of their periods */
	STAT_THINNED = 25, /* samples of processes with a lower rate that other samples stand for */
	STAT_NESTED = 26, /* calls that are part of the interval of their thread */
	STAT_MOVED = 27, /* intervals that ended in another thread than they began */
	STAT_UNDECIDED = 28, /* intervals that ended before it was known which are slow */
	STAT_MAX = 29,
};

#endif
