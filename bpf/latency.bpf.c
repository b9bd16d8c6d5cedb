//go:build ignore

// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Time from one event to another, by the stack at the first: from the entry of a function
 * to its return, from a tracepoint to the next one of the same thread, or between two
 * events with the same value of a field. Each pair of events has its own maps.
 *
 * The time does not include the walk of the stack: it begins after it. The time of a call does
 * not include recursive calls, which have stacks of their own. The histogram has the whole times.
 *
 * If follows is set, the parts of intervals are counted instead (parts.h).
 */

#include "hit.h"
#include "count.h"
#include "event.h"
#include "histogram.h"
#include "kernel.h"
#include "parts.h"
#include "snapshot.h"
#include "target.h"
#include "unwind.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

/* The key of a count. tid and cpu are 0 if not distinguished. */
struct count_key {
	u64 id;
	/*
	 * Field 0 or the attach point of the first event, 0 if not distinguished; of a part of an
	 * interval, the stack of the thread that ended the wait.
	 */
	u64 detail;
	/*
	 * The stack of the thread that ended the wait, 0 if not distinguished; of a part of an
	 * interval, the kernel half of the stack.
	 */
	u64 waker;
	u32 owner; /* TID of the thread that held the lock, 0 if not distinguished */
	u32 tid;
	u32 cpu;
	u32 part; /* enum part_kind of a part of an interval, else 0 */
};

struct count_value {
	u64 intervals; /* or times that a part of them occurred */
	u64 time; /* ns */
};

static __always_inline void count_add(struct count_value *to, const struct count_value *add)
{
	__sync_fetch_and_add(&to->intervals, add->intervals);
	__sync_fetch_and_add(&to->time, add->time);
}

COUNT_RECORD

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Which second event ends an interval. */
enum latency_match {
	MATCH_THREAD, /* the next one of the thread */
	MATCH_FIELD, /* the next one with the same field 0 */
	MATCH_FIELD_IN_PROCESS, /* likewise, of the same process */
	MATCH_FIELD_IN_THREAD, /* likewise, of the same thread */
	MATCH_USER_CALL, /* the return of this call of a function of a program */
	MATCH_KERNEL_CALL, /* likewise, of the kernel */
	MATCH_GO_CALL, /* likewise, of a function of a Go program */
};

/* In the field since: the interval has ended, but its entry still exists. */
#define INTERVAL_ENDED (~0ULL)

#define ENOENT 2

/* include/trace/events/lock.h */
#define LCB_F_READ 0x02
#define LCB_F_WRITE 0x04
#define LCB_F_MUTEX 0x20

/* Lower bits of the owner in a lock: kernel/locking/mutex.c and rwsem.c. */
#define OWNER_FLAGS 7
#define RWSEM_READER_OWNED 1

/* Makes bpf2go generate Go types. */
const enum latency_match *unused_latency_match __attribute__((unused));

const volatile u32 match; /* enum latency_match */

/* Whether to distinguish field 0 of the first event. */
const volatile bool detailed;

/* Whether to distinguish the attach points of the first event. Not with detailed. */
const volatile bool by_point;

/*
 * Whether another first event leaves an interval in progress as it is. Otherwise, it begins the
 * interval again.
 */
const volatile bool keeps_first;

/* Whether intervals are waits whose wakers are distinguished. */
const volatile bool by_waker;

/*
 * The field of the first event with the flags of lock:contention_begin, if the owners of locks
 * are distinguished; otherwise 0. Field 0 is the lock.
 */
const volatile u32 flags_field;

/* Whether the functions of programs preserve the registers that C functions preserve. */
const volatile bool keeps_registers;

/* The fields of the second event's places follow the first event's. */
const volatile u32 end_places;

/* An interval in progress. */
struct interval {
	u64 since; /* CLOCK_MONOTONIC, ns; or INTERVAL_ENDED */
	u64 id; /* of the stack */
	u64 detail;
	u64 ip; /* of a call: the function's entry */
	u64 stack; /* of a call: of struct function */
	u64 ra; /* of a call of a program: the return address; else 0 */
	struct interval_key outer; /* the enclosing call of the same function; of is 0 for none */
	u64 nested; /* ns in recursive calls */
	/*
	 * Whether it took the place of an older call with the same key. The older call was left
	 * without a return, or it is the call of a coroutine whose stack was copied elsewhere.
	 * The coroutine's call will still return: to notice that, this entry stays when its own
	 * call has ended.
	 */
	u64 replaces;
	u32 pid; /* thread group */
	u32 tid;
	u32 cpu;
	u32 owner;
};

const struct interval *unused_interval __attribute__((unused));

/*
 * Intervals that never end give way to new ones. A program could wait forever for the lock of an
 * LRU map only if it interrupts another one that holds the lock. Programs at tracepoints and
 * kprobes do not interrupt each other. So this takes one in an NMI, during a uprobe's program.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct interval_key);
	__type(value, struct interval);
} intervals SEC(".maps");

/* The last waker of a thread whose wait is in progress. */
struct waker {
	u64 which; /* of the wait's interval_key */
	u64 id; /* of the waker's stack; 0 if there was none */
	u32 pid; /* thread group */
	u32 tid;
};

const struct waker *unused_waker __attribute__((unused));

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, u64); /* address of the task */
	__type(value, struct waker);
} wakers SEC(".maps");

/* The names of threads that held locks, by TID. */
struct owner {
	u64 comm[2];
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct owner);
} owners SEC(".maps");

/* An interval, for timelines. */
struct timeline_event {
	u32 type;
	u32 owner;
	u64 time; /* of the beginning; CLOCK_MONOTONIC, ns */
	u64 duration; /* ns */
	u64 id;
	u64 detail;
	u32 pid; /* thread group */
	u32 tid;
	u32 waker_pid; /* 0 if unknown */
	u32 waker_tid;
};

const struct timeline_event *unused_timeline_event __attribute__((unused));

/* A function on a stack. */
struct function {
	u64 of; /* the stack (see stack_of()), the goroutine, or the task in the kernel */
	u64 ip; /* of its entry */
	u64 pid; /* the process: two of them can have the same addresses; 0 in the kernel */
};

/* The innermost call in progress of a function. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct function);
	__type(value, struct interval_key);
} innermost SEC(".maps");

/* The ends of a thread's stacks. */
struct ends {
	u64 first, last; /* from the first and the last walk that reached one */
};

/* By thread. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, u64); /* address of the task */
	__type(value, struct ends);
} stack_ends SEC(".maps");

/* The distribution of the intervals. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct histogram);
} distribution SEC(".maps");

/*
 * The calls of functions of the kernel in a thread. A call is matched by its depth, since
 * the stack pointer at a return depends on the kernel's way to trace returns.
 */
#define MAX_CALLS 16
struct calls {
	u64 depth;
	u64 sp[MAX_CALLS]; /* at the entries, outermost first */
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, u64); /* address of the task */
	__type(value, struct calls);
} calls SEC(".maps");

/* Gives up an interval, if it is in progress. */
static __always_inline void give_up(const struct interval_key *key)
{
	struct interval *found = bpf_map_lookup_elem(&intervals, key);
	bool in_progress;

	if (!found)
		return;
	in_progress = found->since != INTERVAL_ENDED;
	if (bpf_map_delete_elem(&intervals, key) || !in_progress)
		return;
	stat_add(STAT_FORGOTTEN, 1);
	stat_add(STAT_UNFINISHED, 1);
}

/* The stack pointer of a call. The verifier of 5.10 needs to see the limit in an index. */
static __always_inline u64 *calls_sp(struct calls *c, u64 depth)
{
	barrier_var(depth);
	return &c->sp[depth & (MAX_CALLS - 1)];
}

/* Bits of an offset in a kernel stack. */
#define KERNEL_STACK_SHIFT 14

/*
 * Forgets the innermost calls of a thread whose returns were missed. A new call has the stack
 * pointer sp. It comes from a call with a higher one, so calls with a lower one are over. Calls
 * on another stack cannot be compared: interrupts have stacks of their own.
 */
__noinline int calls_forget(u64 task, u64 sp)
{
	struct calls *c = bpf_map_lookup_elem(&calls, &task);
	struct interval_key key = { .of = task };
	u64 i, last;

	if (!c || !sp)
		return 0;
	for (i = 0; i < MAX_CALLS; i++) {
		if (c->depth == 0 || c->depth > MAX_CALLS)
			break;
		key.which = c->depth - 1;
		last = *calls_sp(c, key.which);
		if (last >= sp || (last ^ sp) >> KERNEL_STACK_SHIFT)
			break;
		c->depth--;
		give_up(&key);
	}
	return 0;
}

/* Enters a call and returns its depth, or MAX_CALLS or more if it cannot be followed. */
static __always_inline u64 calls_enter(u64 task, u64 sp)
{
	static const struct calls none;
	struct calls *c = bpf_map_lookup_elem(&calls, &task);
	u64 depth;

	if (c) {
		calls_forget(task, sp);
	} else {
		bpf_map_update_elem(&calls, &task, &none, BPF_NOEXIST);
		c = bpf_map_lookup_elem(&calls, &task);
		if (!c)
			return MAX_CALLS;
	}
	depth = c->depth++;
	if (depth < MAX_CALLS)
		*calls_sp(c, depth) = sp;
	return depth;
}

/* Leaves the innermost call and returns its depth, as calls_enter(). */
static __always_inline u64 calls_leave(u64 task)
{
	struct calls *c = bpf_map_lookup_elem(&calls, &task);
	u64 depth;

	if (!c || !c->depth)
		return MAX_CALLS; /* the call began before the measurement */
	depth = --c->depth;
	if (!depth)
		bpf_map_delete_elem(&calls, &task);
	return depth;
}

/*
 * The goroutine of a Go program. Go's ABIInternal keeps it in a register, at least at the entries
 * and returns of compiled functions.
 */
static __always_inline u64 goroutine(void *ctx)
{
#if defined(__TARGET_ARCH_x86)
	return ((struct bpf_user_regs *)ctx)->r14;
#else
	return ((struct bpf_user_regs *)ctx)->regs[28];
#endif
}

/*
 * The distance of a call from the end of its goroutine's stack, less than 4 GiB. It is the same at
 * the return, even if the stack has moved, or the goroutine to another thread. A goroutine begins
 * with the bounds of its stack. Returns 0 if they cannot be read.
 */
static __always_inline u64 go_call(void *ctx, struct task_struct *task)
{
	u64 bounds[2] = {}, sp = context_sp(ctx);

	if (bpf_probe_read_user(bounds, sizeof(bounds), (void *)goroutine(ctx)) || sp < bounds[0] ||
	    sp >= bounds[1])
		return 0;
	return (u64)task_tgid(task) << 32 | (u32)(bounds[1] - sp);
}

/*
 * A hash of what is the same at the entry of a call and at its return: the process, and the
 * registers that a function preserves. It tells calls with the same stack pointer and return
 * address apart: if a program copies the stacks of coroutines, as greenlet does, calls of two
 * coroutines can have the same address.
 */
static __always_inline u64 caller(void *ctx, struct task_struct *task)
{
	struct bpf_user_regs *regs = ctx;
	u64 hash = hash_step(0, task_tgid(task));

	if (!keeps_registers)
		return hash;
#if defined(__TARGET_ARCH_x86)
	hash = hash_step(hash, regs->rbx);
	hash = hash_step(hash, regs->rbp);
	hash = hash_step(hash, regs->r12);
	hash = hash_step(hash, regs->r13);
	hash = hash_step(hash, regs->r14);
	hash = hash_step(hash, regs->r15);
#else
#pragma unroll
	for (int i = 19; i < 30; i++)
		hash = hash_step(hash, regs->regs[i]);
#endif
	return hash;
}

/*
 * Sets the key of an interval. The caller adds the depth of a call of the kernel. Returns false
 * if the key is unknown.
 */
static __always_inline bool key_of(struct interval_key *key, void *ctx, struct task_struct *task,
				   u64 field, enum context in)
{
	key->of = bpf_get_current_task();
	key->which = 0;
	switch (match) {
	case MATCH_FIELD:
		key->of = field;
		break;
	case MATCH_FIELD_IN_PROCESS:
		key->of = field;
		key->which = task_tgid(task);
		break;
	case MATCH_FIELD_IN_THREAD:
		key->which = field;
		break;
	case MATCH_USER_CALL:
		if (in < IN_PROGRAM)
			break;
		key->of = caller(ctx, task);
		key->which = context_sp(ctx);
		break;
	case MATCH_GO_CALL:
		if (in < IN_PROGRAM)
			break;
		key->of = goroutine(ctx);
		key->which = go_call(ctx, task);
		return key->which;
	}
	return true;
}

/* Stores an interval that begins now. */
static __always_inline void store(const struct interval_key *key, struct interval *interval)
{
	struct interval *before;
	int err; /* before 5.12, helpers do not extend the sign */

	interval->since = bpf_ktime_get_ns();
	err = bpf_map_update_elem(&intervals, key, interval, BPF_NOEXIST);
	if (err == -EEXIST) {
		before = bpf_map_lookup_elem(&intervals, key);
		if (before && before->since != INTERVAL_ENDED) {
			if (keeps_first)
				return;
			stat_add(STAT_UNFINISHED, 1);
			stat_add(STAT_FORGOTTEN, 1);
			interval->replaces = 1;
		} else if (before) {
			interval->replaces = before->replaces;
		}
		err = bpf_map_update_elem(&intervals, key, interval, BPF_ANY);
	}
	stat_add(err ? STAT_UNFOLLOWED : STAT_FOLLOWED, 1);
}

/* Maximum size of a stack whose end is not known from a walk. */
#define MAX_STACK (64 << 20)

/*
 * Identifies the current stack by its end: the stack pointer of the outermost frame. If the
 * walk did not reach the end, the end from the thread's last walk that did is used, if it is
 * near enough to belong to this stack. The stack whose end was reached first is identified by
 * the address of the task: before that, such as while unwind tables are made, the end is not
 * known.
 */
static __always_inline u64 stack_of(void *ctx, const struct stack_scratch *scratch)
{
	u64 task = bpf_get_current_task(), end = scratch->walk.sp;
	struct ends *known = bpf_map_lookup_elem(&stack_ends, &task);
	u32 why = scratch->record.user_end;

	if (!skip_user_stack && (why == END_COMPLETE || why == END_FRAME_POINTER)) {
		if (known) {
			known->last = end;
		} else {
			struct ends first = { end, end };

			bpf_map_update_elem(&stack_ends, &task, &first, BPF_ANY);
			return task;
		}
	} else if (known && known->last - context_sp(ctx) < MAX_STACK) {
		end = known->last;
	} else {
		return task;
	}
	return end == known->first ? task : end;
}

/*
 * Whether a call in progress, found with the key around, encloses the call with the key inside on
 * the same stack. On amd64, its return address must still be on the stack: if a coroutine's stack
 * was copied elsewhere, another coroutine has usually overwritten it.
 */
static __always_inline bool is_around(const struct interval_key *around,
				      const struct interval *found,
				      const struct interval_key *inside)
{
	u64 ra = found->ra;

	switch (match) {
	case MATCH_USER_CALL:
		if (RETURN_SIZE && ra)
			bpf_probe_read_user(&ra, sizeof(ra), (void *)around->which);
		/* Stack pointers. */
		return around->which > inside->which && same_return(ra, found->ra);
	case MATCH_KERNEL_CALL:
		return around->which < inside->which; /* depths */
	case MATCH_GO_CALL:
		/* Distances from the end of the stack. */
		return (u32)around->which < (u32)inside->which;
	}
	return false;
}

/* Some calls are left without a return, such as by longjmp. At most this many are skipped. */
#define MAX_LEFT 8

/* The function that a call executes. */
static __always_inline struct function function_of(const struct interval *interval)
{
	return (struct function){ .of = interval->stack,
				  .ip = interval->ip,
				  .pid = match == MATCH_KERNEL_CALL ? 0 : interval->pid };
}

/* Whether an interval is a call of the same function as another one. */
static __always_inline bool same_function(const struct interval *found,
					  const struct interval *interval)
{
	return found->ip == interval->ip && found->pid == interval->pid &&
	       found->stack == interval->stack;
}

/* Finds the enclosing call of the same function, and makes this call the innermost one. */
static __always_inline void enter_call(const struct interval_key *key, struct interval *interval)
{
	struct function function = function_of(interval);
	struct interval_key *last = bpf_map_lookup_elem(&innermost, &function), around;
	struct interval *found;
	int i;

	if (!last) {
		if (bpf_map_update_elem(&innermost, &function, key, BPF_ANY))
			stat_add(STAT_UNFOLLOWED, 1); /* recursive calls count in it, too */
		return;
	}
	around = *last;
	*last = *key;
	/*
	 * If this call takes the place of a call that was left, both may have the same enclosing
	 * call.
	 */
	found = bpf_map_lookup_elem(&intervals, key);
	if (found && same_function(found, interval) && found->outer.of)
		around = found->outer;
	for (i = 0; i < MAX_LEFT; i++) {
		found = bpf_map_lookup_elem(&intervals, &around);
		if (!found || !same_function(found, interval))
			return;
		if (is_around(&around, found, key)) {
			interval->outer = around;
			return;
		}
		if (!found->outer.of)
			return;
		around = found->outer;
	}
	/* The next call continues from here. */
	interval->outer = around;
}

/* Returns the time of a call without its recursive calls. time is the whole time. */
static __always_inline u64 leave_call(const struct interval *interval, u64 time)
{
	struct function function = function_of(interval);
	struct interval_key *last, outer = interval->outer;
	struct interval *found;

	if (!outer.of) {
		bpf_map_delete_elem(&innermost, &function);
	} else {
		last = bpf_map_lookup_elem(&innermost, &function);
		if (last)
			*last = outer;
		found = bpf_map_lookup_elem(&intervals, &outer);
		if (found && same_function(found, interval))
			found->nested += time;
	}
	return interval->nested < time ? time - interval->nested : 0;
}

/*
 * Makes room for an interval of the current thread, and returns the thread's entry; NULL if there
 * is none, or if the interval is a call in the one in progress. The interval in progress may have
 * been left without a return, or begin again.
 */
static __always_inline struct progress *follow(const struct interval_key *key)
{
	struct progress *p = progress_make(current_task());
	struct interval_key outer;
	struct interval *found;

	if (!p) {
		stat_add(STAT_UNFOLLOWED, 1);
		return NULL;
	}
	if (!p->open)
		return p;
	outer = p->key;
	found = bpf_map_lookup_elem(&intervals, &outer);
	if (found && found->since != INTERVAL_ENDED && is_around(&outer, found, key)) {
		stat_add(STAT_NESTED, 1);
		return NULL;
	}
	p->open = 0;
	give_up(&outer);
	return p;
}

static __always_inline void part_count(const struct progress *p, const struct part *part, u32 kind,
				       u64 time)
{
	struct count_value value = { .intervals = part->times, .time = time };
	struct count_key to = {
		.id = part->id, .waker = part->kernel, .detail = part->waker, .part = kind
	};

	if (by_thread)
		to.tid = p->tid;
	count(&to, &value);
}

/* Prepares for the wakers of a thread whose wait begins. */
static __always_inline void await_waker(const struct interval_key *key)
{
	struct waker none = { .which = key->which };
	struct waker *w = bpf_map_lookup_elem(&wakers, &key->of);
	struct interval_key outer = { .of = key->of };

	/* An interrupt of a wait may spin for another lock. */
	if (w) {
		outer.which = w->which;
		if (w->which != key->which && bpf_map_lookup_elem(&intervals, &outer))
			return;
	}
	if (bpf_map_update_elem(&wakers, &key->of, &none, BPF_ANY))
		stat_add(STAT_UNFOLLOWED, 1);
}

/* The TID of the thread that holds a lock of the kernel; 0 if it is unknown. */
static __always_inline u32 owner_of(u64 lock, u32 flags)
{
	struct rw_semaphore *semaphore = (void *)lock;
	struct mutex *mutex = (void *)lock;
	struct owner now = {}, *known;
	struct task_struct *task;
	u64 word = 0;
	u32 tid;

	if (flags & LCB_F_MUTEX) {
		if (bpf_core_field_exists(mutex->owner.counter))
			word = BPF_CORE_READ(mutex, owner.counter);
	} else if (flags == LCB_F_READ || flags == LCB_F_WRITE) {
		if (bpf_core_field_exists(semaphore->owner.counter))
			word = BPF_CORE_READ(semaphore, owner.counter);
		if (word & RWSEM_READER_OWNED)
			return 0; /* one of the readers */
	}
	task = (void *)(word & ~(u64)OWNER_FLAGS);
	if (!task)
		return 0;
	/* It may release the lock and exit meanwhile. */
	tid = BPF_CORE_READ_BITFIELD_PROBED(task, pid);
	if (!tid || bpf_core_read(now.comm, sizeof(now.comm), &task->comm))
		return 0;
	known = bpf_map_lookup_elem(&owners, &tid);
	if (!known || known->comm[0] != now.comm[0] || known->comm[1] != now.comm[1])
		bpf_map_update_elem(&owners, &tid, &now, BPF_ANY);
	return tid;
}

/* Forgets a call that was left: a call that does not count has begun in its place. */
static __always_inline void forget_call(void *ctx, struct task_struct *task, u64 depth,
					enum context in)
{
	struct interval_key key;

	if (match < MATCH_USER_CALL || !key_of(&key, ctx, task, 0, in))
		return;
	if (match == MATCH_KERNEL_CALL)
		key.which = depth;
	give_up(&key);
}

static __always_inline void begin_in(void *ctx, struct task_struct *task, u32 slot, u64 cookie,
				     u64 depth, enum context in)
{
	struct stack_scratch *scratch = stack_scratch(slot);
	struct interval interval = {};
	struct progress *progress = NULL;
	struct interval_key key;
	u32 place = cookie;
	u64 field = 0;

	if (!scratch)
		return;
	if ((filtered && !filter_passes(slot, place)) || !pace_allows(0, 1)) {
		forget_call(ctx, task, depth, in);
		return;
	}
	if (detailed || (match >= MATCH_FIELD && match <= MATCH_FIELD_IN_THREAD))
		field = field_number(slot, place * PLACE_FIELDS);
	if (!key_of(&key, ctx, task, field, in)) {
		stat_add(STAT_UNFOLLOWED, 1);
		return;
	}
	if (match == MATCH_KERNEL_CALL)
		key.which = depth;
	if (follows) {
		progress = follow(&key);
		if (!progress)
			return;
		if (shows)
			shown_note(slot, place);
	}
	if (flags_field)
		interval.owner =
			owner_of(field, field_number(slot, place * PLACE_FIELDS + flags_field));
	interval.id = hit_stack(ctx, task, scratch, in);
	if (detailed)
		interval.detail = field;
	else if (by_point)
		interval.detail = cookie >> 32;
	interval.pid = scratch->record.pid;
	interval.tid = scratch->record.tid;
	interval.cpu = bpf_get_smp_processor_id();
	if (by_waker)
		await_waker(&key);
	if (match >= MATCH_USER_CALL && in != IN_TRACEPOINT) {
		interval.ip = context_ip(ctx);
		interval.stack = key.of;
		if (match == MATCH_USER_CALL) {
			interval.stack = stack_of(ctx, scratch);
			interval.ra = return_address(ctx);
		}
		if (!follows)
			enter_call(&key, &interval);
	}
	store(&key, &interval);
	if (progress && !progress_begin(progress, &key, interval.id, interval.pid, interval.tid))
		give_up(&key);
}

static __always_inline int begin(void *ctx, enum context in)
{
	struct task_struct *task = current_task();
	u64 cookie, depth = 0;
	u32 slot;

	if (!gate_is_open() || !target_has(task))
		return 0;
	cookie = cookie_of(ctx, task);
	if (cookie == NO_COOKIE)
		return 0;
	if (match == MATCH_KERNEL_CALL && in == IN_KERNEL_FUNCTION) {
		/* Calls that do not count are entered, too: their returns look the same. */
		depth = calls_enter(bpf_get_current_task(), context_sp(ctx));
		if (depth >= MAX_CALLS) {
			stat_add(STAT_UNFOLLOWED, 1);
			return 0;
		}
	}
	slot = hit_claim(ctx);
	if (slot == SCRATCH_HITS) {
		forget_call(ctx, task, depth, in);
		return 0;
	}
	begin_in(ctx, task, slot, cookie, depth, in);
	hit_release(slot);
	return 0;
}

/* Field 0 of the second event. Returns false if there is no memory to read it. */
static __always_inline bool end_field(void *ctx, u32 place, u64 *field)
{
	u32 slot = hit_claim(ctx);

	if (slot == SCRATCH_HITS)
		return false;
	*field = field_number(slot, (end_places + place) * PLACE_FIELDS);
	hit_release(slot);
	return true;
}

/*
 * Whether an interval belongs to this task: always, if its key does not name a thread. Other keys
 * have the task's address, which the kernel may use again if a thread exits in an interval. A
 * thread that executes a program gets the ID of its process.
 */
static __always_inline bool belongs_to(const struct interval *interval, struct task_struct *task)
{
	u32 tid = task_pid(task);

	return match == MATCH_FIELD || match == MATCH_FIELD_IN_PROCESS ||
	       match == MATCH_USER_CALL || match == MATCH_GO_CALL || interval->tid == tid ||
	       interval->pid == tid;
}

/* Takes the last waker of a wait. */
static __always_inline struct waker take_waker(const struct interval_key *key)
{
	struct waker *w = bpf_map_lookup_elem(&wakers, &key->of), last = {};

	if (w && w->which == key->which) {
		last = *w;
		bpf_map_delete_elem(&wakers, &key->of);
	}
	return last;
}

/* Adds an interval of a time to the result. */
static __always_inline void add(const struct interval *interval, u64 time,
				const struct waker *waker)
{
	struct count_value value = { .intervals = 1, .time = time };
	struct count_key to = { .id = interval->id, .detail = interval->detail };

	stat_add(STAT_SAMPLES, 1);
	if (timeline) {
		struct timeline_event event = {
			.type = RECORD_TIMELINE,
			.owner = interval->owner,
			.time = interval->since,
			.duration = time,
			.id = interval->id,
			.detail = interval->detail,
			.pid = interval->pid,
			.tid = interval->tid,
			.waker_pid = waker->pid,
			.waker_tid = waker->tid,
		};

		event_send(&event, sizeof(event));
		return;
	}
	to.waker = waker->id;
	to.owner = interval->owner;
	if (by_thread)
		to.tid = interval->tid;
	if (by_cpu)
		to.cpu = interval->cpu;
	count(&to, &value);
}

static __always_inline int end(void *ctx, enum context in)
{
	u64 now = bpf_ktime_get_ns(), field = 0, cookie, time;
	struct task_struct *task = current_task();
	struct interval *found, interval;
	struct histogram *times;
	struct waker waker = {};
	struct interval_key key;
	u32 zero = 0;
	int err; /* before 5.12, helpers do not extend the sign */

	if (!gate_is_open())
		return 0;
	cookie = cookie_of(ctx, task);
	if (cookie == NO_COOKIE)
		return 0;
	if (match >= MATCH_FIELD && match <= MATCH_FIELD_IN_THREAD &&
	    !end_field(ctx, cookie, &field))
		return 0;
	if (!key_of(&key, ctx, task, field, in))
		return 0;
	if (match == MATCH_USER_CALL && in == INSIDE_FUNCTION)
		key.which -= RETURN_SIZE;
	if (match == MATCH_KERNEL_CALL) {
		key.which = calls_leave(bpf_get_current_task());
		if (key.which >= MAX_CALLS)
			return 0;
	}
	found = bpf_map_lookup_elem(&intervals, &key);
	if (!found)
		return 0;
	/* Another function returns from the place of the call, which was left without a return. */
	if (match == MATCH_USER_CALL && in == IN_PROGRAM &&
	    !same_return(return_address(ctx), found->ra))
		return 0;
	if (found->since > now) { /* another CPU began it after this event, or it has ended */
		if (match == MATCH_USER_CALL && found->since == INTERVAL_ENDED && found->replaces)
			stat_add(STAT_AMBIGUOUS, 1);
		return 0;
	}
	if (!belongs_to(found, task)) {
		give_up(&key);
		return 0;
	}
	interval = *found;
	if (match == MATCH_USER_CALL && interval.replaces) {
		found->since = INTERVAL_ENDED;
		stat_add(STAT_FORGOTTEN, 1);
		err = 0;
	} else {
		err = bpf_map_delete_elem(&intervals, &key);
		if (!err)
			stat_add(STAT_FORGOTTEN, 1);
	}
	if (err == -ENOENT)
		return 0; /* another CPU was faster */
	if (err) {
		/*
		 * The kernel cannot change the map now, so a mark keeps later events from
		 * ending the interval.
		 */
		found->since = INTERVAL_ENDED;
		stat_add(STAT_FORGOTTEN, 1);
		stat_add(STAT_CROWDED, 1);
		return 0;
	}
	if (by_waker)
		waker = take_waker(&key);
	time = now - interval.since;
	times = bpf_map_lookup_elem(&distribution, &zero);
	if (times)
		histogram_add(times, time);
	if (follows) {
		progress_end(ctx, &key, now);
		return 0;
	}
	if (match >= MATCH_USER_CALL)
		time = leave_call(&interval, time);
	add(&interval, time, &waker);
	return 0;
}

HIT_PROGRAMS(begin)
HIT_PROGRAMS(end)

/* Notes who wakes a thread whose wait is in progress. */
SEC("tp_btf/sched_waking")
int BPF_PROG(latency_waking, struct task_struct *task)
{
	struct task_struct *waker = current_task();
	struct stack_scratch *scratch;
	u64 of = (u64)task;
	struct waker *w;
	u32 slot;

	if (!gate_is_open() || task == waker)
		return 0;
	w = bpf_map_lookup_elem(&wakers, &of);
	if (!w)
		return 0;
	/* An interrupt of an idle CPU has no waker; idle tasks have PID 0. */
	w->pid = task_tgid(waker);
	w->tid = task_pid(waker);
	if (timeline)
		return 0;
	slot = hit_claim(ctx);
	if (slot == SCRATCH_HITS)
		return 0;
	scratch = stack_scratch(slot);
	if (scratch)
		w->id = hit_stack(ctx, waker, scratch, IN_TRACEPOINT);
	hit_release(slot);
	return 0;
}

/* The stack of an interval. Its snapshot has its ID. */
static __always_inline void snapshot_take(struct stack_scratch *scratch, const struct snapshot *s)
{
	stack_intern_as(scratch, s->weight);
}
