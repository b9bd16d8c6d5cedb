//go:build ignore

// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Off-CPU time: what threads wait for, and for how long. A thread's user stack
 * is walked when it leaves its CPU, in its own context. Its kernel stack is
 * walked when it comes back, since it has not changed, and only if the time
 * counts. The halves are interned separately: many processes wait in few places
 * of the kernel. The time is split at the wakeup, if any: the thread slept
 * before, and waited for a CPU after.
 *
 * An iterator finds threads that are off the CPU when the measurement begins,
 * and another counts the partial time of those that are off at its end. So
 * threads that always sleep are seen. The latter also splits times at the
 * boundaries of windows.
 *
 * sched_switch runs with interrupts disabled, and sched_waking under the woken
 * thread's lock. Neither interrupts the other, so they share scratch. A
 * thread's entry is written by its own CPU when it leaves, and by its waker's;
 * the scheduler orders both before it comes back.
 *
 * An iterator that counts a partial time may race with the thread's return on
 * another CPU. They use a ticket, an element of a map; see time_cut().
 */

/*
 * Recently used parts of a stack are in the CPU's caches, so the cost depends on the
 * number of reads of a stack more than on their size.
 */
#define UNWIND_BLOCK_BYTES 4096

/* Iterators may sleep, and other programs run on their CPU meanwhile. */
enum scratch {
	SCRATCH_SWITCH,
	SCRATCH_ITERATOR,
	SCRATCH_MAX,
};
#define SCRATCHES SCRATCH_MAX

#include "count.h"
#include "event.h"
#include "histogram.h"
#include "kernel.h"
#include "peer.h"
#include "rules.h"
#include "target.h"
#include "unwind.h"
#include "wait.h"
#include <bpf/bpf_helpers.h>

/* The key of a count. tid and cpu are 0 if not counted separately. */
struct count_key {
	u64 id; /* of the user half of the stack */
	u64 kernel; /* of the kernel half */
	u64 waker; /* of the waker's stack, or with by_peer the peer; 0 if not distinguished */
	u32 tid;
	u16 cpu; /* that it left */
	u16 runnable; /* it never slept: another thread took its CPU */
};

struct count_value {
	u64 times;
	u64 sleeping; /* ns */
	u64 waiting; /* for a CPU, ns */
};

static __always_inline void count_add(struct count_value *to, const struct count_value *add)
{
	__sync_fetch_and_add(&to->times, add->times);
	__sync_fetch_and_add(&to->sleeping, add->sleeping);
	__sync_fetch_and_add(&to->waiting, add->waiting);
}

COUNT_RECORD

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Makes bpf2go generate Go types. */
const enum thread_kind *unused_thread_kind __attribute__((unused));

enum thread_kind {
	THREADS_ALL = 0,
	THREADS_USER = 1,
	THREADS_KERNEL = 2,
};

const volatile u32 kind; /* enum thread_kind */
const volatile u32 states = ~0U; /* bits of class_of() that are measured */
const volatile u64 shortest; /* minimum time off the CPU to count, in ns */
const volatile u64 longest = ~0ULL; /* and maximum */
const volatile bool by_waker;
const volatile bool distributes; /* whether to keep the distribution of the waits for a CPU */

/*
 * When the last window ended, in CLOCK_MONOTONIC ns; 0 in the first window. The gate has the times
 * at which the measurement begins and ends.
 */
volatile u64 cut;

/* Whether an iterator may be counting partial times. */
volatile bool cutting;

/*
 * To save CPU time, only one in this many waits is measured, and its time is multiplied by this
 * number, a power of two. 0 means that all waits are measured. The choice does not depend on
 * the wait itself, so sums remain correct on average. After a long wait, a thread's next waits
 * are always measured. So threads that mostly sleep keep their exact time; threads that switch
 * often, which cost most, do not. At the end of each window, an iterator finds the waits in
 * progress that are not measured. From then on, each counts once.
 */
volatile u32 reduction;

#define LONG_WAIT 100000000 /* ns */

enum thread_time {
	UNKNOWN_TIME = ~0ULL, /* in cut_at: the thread came back at an unknown time */
};

const enum thread_time *unused_thread_time __attribute__((unused));

/* The state of a thread. It exists as long as the thread. */
struct thread {
	u64 owner; /* start_boottime, because a TID may be reused */
	u64 since; /* when it left its CPU; 0 while it runs or is not measured */
	/*
	 * Only iterators write this and the next three. They have counted the period that began
	 * at cut_since up to cut_at.
	 */
	u64 cut_since;
	u64 cut_at;
	/* The period that began at found_since has the user stack found. */
	u64 found_since;
	u64 found;
	u64 woken; /* when it was woken; 0 if it was not */
	u64 id; /* the user half of its stack */
	u64 waker; /* the waker's stack */
	u64 peer; /* of the socket for which it waits; 0 if unknown */
	u64 left; /* when it last left its CPU, measured or not; 0 if unknown */
	u64 last; /* length of its last wait or, if more, half of the value before, in ns */
	u32 cpu;
	u16 weight; /* the number of waits that this one stands for */
	u16 state; /* enum state_class, the state in which it left its CPU */
	u32 waker_pid; /* the waker, for timelines */
	u32 waker_tid;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, u32);
	__type(value, struct thread);
} threads SEC(".maps");

/* Identifies a period off the CPU. */
struct ticket {
	u64 since;
	u64 tid;
};

/* The ticket of the period that an iterator processes; see time_cut(). */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16);
	__type(key, struct ticket);
	__type(value, u32);
} tickets SEC(".maps");

/* The distribution of the times that threads waited for a CPU until they ran. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct histogram);
} run_queue SEC(".maps");

/* Copy of a user stack, for the iterator to walk. */
struct stack_copy {
	u8 parts[STACK_PARTS][STACK_PART];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct stack_copy);
} offcpu_copy SEC(".maps");

/* A period off the CPU, for timelines. */
struct timeline_event {
	u32 type;
	u16 state; /* enum state_class */
	u16 cpu; /* that it left */
	u64 time; /* when it left its CPU, or the measurement began; CLOCK_MONOTONIC, ns */
	u64 duration; /* ns */
	u64 waiting; /* part of it spent waiting for a CPU */
	u64 id; /* of the user half of the stack */
	u64 kernel; /* of the kernel half */
	u32 pid; /* thread group */
	u32 tid;
	u32 waker_pid; /* 0 if unknown */
	u32 waker_tid;
	u64 waker; /* the waker's stack; sent only with by_waker */
};

const struct timeline_event *unused_timeline_event __attribute__((unused));

/* Whether to measure a thread in that state, ignoring the target. */
static __always_inline bool thread_wanted(struct task_struct *task, u32 state)
{
	bool kernel = task_flags(task) & PF_KTHREAD;

	if (task_is_idle(task) || state == STATE_DEAD || !(states & state))
		return false;
	return kind == THREADS_ALL || (kind == THREADS_KERNEL) == kernel;
}

/* The entry of a thread, or NULL if there is none or it belongs to another thread. */
static __always_inline struct thread *thread_find(struct task_struct *task)
{
	u32 tid = task_pid(task);
	struct thread *t = bpf_map_lookup_elem(&threads, &tid);

	return t && t->owner == task_start(task) ? t : NULL;
}

/*
 * A period off the CPU began at since. Returns the beginning of the part that no iterator has
 * counted, or UNKNOWN_TIME if the period does not count.
 */
static __always_inline u64 rest_since(const struct thread *t, u64 since)
{
	return t->cut_since == since ? t->cut_at : since;
}

/* Whether the thread has left its CPU and not come back, as far as known. */
static __always_inline bool thread_is_off(const struct thread *t)
{
	return t->since && rest_since(t, t->since) != UNKNOWN_TIME;
}

/*
 * The entry of a thread that leaves its CPU, or NULL if there is no room. If the entry says that
 * the thread is off its CPU already, the switch to the thread was not reported. On busy virtual
 * machines, one in thousands of switches is missing.
 */
static __always_inline struct thread *thread_enter(struct task_struct *task)
{
	u32 tid = task_pid(task);
	u64 owner = task_start(task);
	struct thread *t = bpf_map_lookup_elem(&threads, &tid);

	if (!t) {
		struct thread first = { .owner = owner };

		if (bpf_map_update_elem(&threads, &tid, &first, BPF_NOEXIST))
			stat_add(STAT_UNFOLLOWED, 1);
		return bpf_map_lookup_elem(&threads, &tid);
	}
	if (t->owner != owner) {
		t->owner = owner;
		t->since = t->woken = t->last = 0;
	}
	if (thread_is_off(t))
		stat_add(STAT_MISSED, 1);
	return t;
}

/*
 * The ID of the stack of task, which is current, with or without the kernel half; 0
 * if there is no scratch memory. match is not NULL if rules have yet to decide about task.
 */
static __always_inline u64 current_stack(void *ctx, struct task_struct *task, bool kernel,
					 const struct rule_match *match)
{
	struct stack_scratch *scratch = stack_scratch(SCRATCH_SWITCH);
	struct stack_record *rec;

	if (!scratch)
		return 0;
	rec = &scratch->record;
	stack_begin(rec, task);
	if (match)
		rec->match = *match;
	task_comm(task, rec->comm);
	if (kernel)
		walk_kernel(ctx, rec);
	if (!skip_user_stack && task_has_user_stack(task))
		walk_user(ctx, task, scratch);
	return stack_intern(scratch);
}

static __always_inline void thread_forget_waker(struct thread *t)
{
	t->woken = 0;
	t->waker = 0;
	t->waker_pid = t->waker_tid = 0;
}

/* Whether to count a period off the CPU. */
static __always_inline bool time_wanted(u64 since, u64 until)
{
	u64 off = until > since ? until - since : 0;

	return off >= shortest && off <= longest;
}

/* The ID of the user stack in the period off the CPU that began at since. */
static __always_inline u64 thread_stack(const struct thread *t, u64 since)
{
	return t->found_since == since ? t->found : t->id;
}

/* A function of its own, since thread_count() needs much of the stack. */
static __noinline void distribute(u64 waiting)
{
	u32 zero = 0;
	struct histogram *h = bpf_map_lookup_elem(&run_queue, &zero);

	if (h)
		histogram_add(h, waiting);
}

/*
 * Counts the time from since until now, in which task, whose entry is t, was off the CPU. The
 * whole period began at began_at. kernel is the kernel half of the stack. in_switch is set if
 * sched_switch counts, and not if an iterator does.
 */
static __always_inline void thread_count(struct thread *t, struct task_struct *task, u64 kernel,
					 u64 began_at, u64 since, u64 now, bool in_switch)
{
	struct count_value value = { .times = 1 };
	struct count_key key = { .id = thread_stack(t, began_at), .kernel = kernel };
	u64 off = now > since ? now - since : 0;
	u64 woken;

	key.runnable = t->state == STATE_RUNNABLE;
	/*
	 * A thread that is still asleep, or never slept in this period, was not woken in it. A
	 * wakeup that was noted came before: it kept the thread from sleeping.
	 */
	if (key.runnable || (!in_switch && task_sleeps(task)))
		thread_forget_waker(t);
	woken = t->woken;
	if (key.runnable)
		value.sleeping = 0;
	else if (woken == 0 || woken > now)
		value.sleeping = off;
	else if (woken > since)
		value.sleeping = woken - since;
	/*
	 * Otherwise, it did not sleep after since, and only waited for a CPU. It was woken in the
	 * previous window, or right before sched_switch reported that it left its CPU.
	 */
	value.waiting = off - value.sleeping;
	/* Without a report of the wakeup, the wait is unknown. */
	if (distributes && in_switch && value.waiting)
		distribute(value.waiting);
	if (since == began_at) {
		value.sleeping *= t->weight;
		value.waiting *= t->weight;
	}
	stat_add(STAT_SAMPLES, 1);
	if (timeline) {
		struct timeline_event event = {
			.type = RECORD_TIMELINE,
			.state = t->state,
			.cpu = t->cpu,
			.time = since,
			.duration = off,
			.waiting = value.waiting,
			.id = key.id,
			.kernel = key.kernel,
			.pid = task_tgid(task),
			.tid = task_pid(task),
			.waker_pid = t->waker_pid,
			.waker_tid = t->waker_tid,
			.waker = t->waker,
		};

		event_send(&event, by_waker ? sizeof(event)
					    : __builtin_offsetof(struct timeline_event, waker));
		return;
	}
	if (by_waker)
		key.waker = t->waker;
	if (by_peer && !key.runnable)
		key.waker = t->peer;
	if (by_thread)
		key.tid = task_pid(task);
	if (by_cpu)
		key.cpu = t->cpu;
	count(&key, &value);
}

/*
 * Ends the period off the CPU of thread t. Returns the beginning of the part that no iterator
 * counts.
 */
static __always_inline u64 time_end(struct thread *t, u32 tid)
{
	struct ticket ticket = { .since = t->since, .tid = tid };

	*(volatile u64 *)&t->since = 0;
	/* An iterator is processing it, and counts it up to the cut. */
	if (cutting && !bpf_map_delete_elem(&tickets, &ticket))
		return gate.ended ?: cut;
	return rest_since(t, ticket.since);
}

/*
 * Splits a period off the CPU of thread t, which began at since, at the time at. The caller, an
 * iterator, counts the first part, and the thread's return the second part. Returns false if the
 * thread has come back already, and counted the whole period.
 *
 * The thread may come back at any moment. If time_end() runs before the ticket exists, it sets
 * t->since to 0, and the lock of the map's bucket makes that visible here. While the ticket
 * exists, time_end() finds the ticket. Afterwards, it finds the cut in t.
 */
static __always_inline bool time_cut(struct thread *t, u32 tid, u64 since, u64 at)
{
	struct ticket ticket = { .since = since, .tid = tid };
	u32 one = 1;

	if (bpf_map_update_elem(&tickets, &ticket, &one, BPF_ANY)) {
		stat_add(STAT_MISSED, 1);
		return false;
	}
	if (*(volatile u64 *)&t->since != since)
		return bpf_map_delete_elem(&tickets, &ticket); /* an error: time_end() found it */
	*(volatile u64 *)&t->cut_at = at;
	*(volatile u64 *)&t->cut_since = since;
	bpf_map_delete_elem(&tickets, &ticket);
	return true;
}

/* Returns the weight of the thread's next wait, or 0 if it is not measured. */
static __always_inline u32 thread_weight(const struct thread *t)
{
	u32 n = reduction;

	if (n <= 1 || t->last >= LONG_WAIT)
		return 1;
	return bpf_get_prandom_u32() & (n - 1) ? 0 : n;
}

/* Counts the period off the CPU of task, if it has begun, at its end. */
static __always_inline void thread_back(struct task_struct *task, u64 now)
{
	struct thread *t = thread_find(task);
	struct stack_scratch *scratch;
	u64 since, began_at;

	if (!t)
		return;
	t->last = t->last / 2 > now - t->left ? t->last / 2 : now - t->left;
	began_at = t->since;
	if (!began_at) {
		t->woken = 0;
		return;
	}
	scratch = stack_scratch(SCRATCH_SWITCH);
	if (!scratch)
		return;
	since = time_end(t, task_pid(task));
	if (since < now && time_wanted(since, now))
		thread_count(t, task, kernel_half(task, scratch), began_at, since, now, true);
	thread_forget_waker(t);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(offcpu_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	u64 now, end = gate.ended, surely;
	enum rule_verdict verdict;
	struct rule_match match;
	struct thread *t;
	u32 state;

	if (!gate.began)
		return 0;
	now = bpf_ktime_get_ns();
	state = class_of_switch(ctx, preempt, prev);
	if (!end && thread_wanted(prev, state) && target_has(prev) &&
	    (verdict = rules_judge(prev, &match, &surely)) != VERDICT_LEAVE &&
	    (t = thread_enter(prev))) {
		t->weight = thread_weight(t);
		if (t->weight)
			t->id = current_stack(ctx, prev, false,
					      verdict == VERDICT_OPEN ? &match : NULL);
		if (by_peer && state != STATE_RUNNABLE)
			t->peer = peer_of(prev, SCRATCH_SWITCH);
		t->cpu = bpf_get_smp_processor_id();
		t->state = state;
		t->left = now;
		t->since = t->weight ? now : 0;
	}
	thread_back(next, end ?: now);
	return 0;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(offcpu_waking, struct task_struct *task)
{
	struct task_struct *waker = current_task();
	struct thread *t;

	if (!gate_is_open() || task == waker)
		return 0;
	t = thread_find(task);
	if (!t)
		return 0;
	t->woken = bpf_ktime_get_ns();
	if (timeline) {
		/* An interrupt of an idle CPU has no waker; idle tasks have PID 0. */
		t->waker_pid = task_tgid(waker);
		t->waker_tid = task_pid(waker);
	}
	if (by_waker)
		t->waker = current_stack(ctx, waker, true, NULL);
	return 0;
}

/* Frees the entry. The last period, as a zombie, is not counted. */
SEC("tp_btf/sched_process_free")
int BPF_PROG(offcpu_free, struct task_struct *task)
{
	struct thread *t = thread_find(task);
	u32 tid = task_pid(task);

	if (!t)
		return 0;
	if (thread_is_off(t))
		stat_add(STAT_MISSED, 1);
	bpf_map_delete_elem(&threads, &tid);
	return 0;
}

/*
 * Walks the user stack of a task that is not current. Only a sleepable program can
 * read its memory. It copies the stack from the stack pointer on, as much as fits. A
 * frame beyond the copy ends the walk as unreadable.
 */
static __always_inline void walk_other_user(struct task_struct *task, struct stack_scratch *scratch,
					    struct stack_copy *copy)
{
	struct pt_regs *regs = task_regs(task);
	struct stack_record *rec = &scratch->record;
	struct unwind_walk *w = &scratch->walk;
	int i;

	if (regs_are_32_bit(regs)) {
		rec->frames[0] = REGS_PC(regs);
		rec->user_frames = 1;
		rec->user_end = END_UNSUPPORTED;
		return;
	}
	w->copy = (u64)copy->parts;
	w->copy_of = REGS_SP(regs) & ~(u64)(STACK_PART - 1);
	__builtin_memset(w->places, 0, sizeof(w->places));
	for (i = 0; i < STACK_PARTS; i++) {
		if (bpf_copy_from_user_task(copy->parts[i], STACK_PART,
					    (void *)(w->copy_of + i * STACK_PART), task, 0))
			break;
		w->places[i] = i + 1;
	}
	walk_user_regs(task, regs, scratch);
}

/*
 * Measures a period off the CPU of task from the cut on. It began at left, unmeasured. id is the
 * user stack. If the thread comes back meanwhile, its CPU writes to t, too. So this writes only
 * the fields of iterators, and since. At worst, the thread then runs with since set, which the
 * next switch or cut takes for a switch that was not reported.
 */
static __always_inline void thread_adopt(struct thread *t, struct task_struct *task, u64 left,
					 u64 id)
{
	if (t->since || *(volatile u64 *)&t->left != left)
		return;
	t->found = id;
	t->found_since = left;
	*(volatile u64 *)&t->cut_at = cut;
	*(volatile u64 *)&t->cut_since = left;
	if (*(volatile u64 *)&t->since || *(volatile u64 *)&t->left != left || task_on_cpu(task))
		return;
	*(volatile u64 *)&t->since = left;
	if (task_on_cpu(task)) /* nothing may end its period */
		*(volatile u64 *)&t->cut_at = UNKNOWN_TIME;
}

/*
 * Finds the threads that are off their CPU when the measurement begins and, if not all waits are
 * measured, at the end of each window. User space changes no unwind tables meanwhile: it could not
 * wait for the end of this program, which may sleep.
 */
SEC("iter.s/task")
int offcpu_begin(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct stack_scratch *scratch;
	struct stack_record *rec;
	struct stack_copy *copy;
	struct thread first = {};
	enum rule_verdict verdict;
	struct rule_match match;
	struct thread *t;
	u32 zero = 0, state, tid;
	u64 left = 0, id, surely;
	long err;

	if (!task || task_on_cpu(task))
		return 0;
	tid = task_pid(task);
	state = class_of(task_state(task));
	if (!thread_wanted(task, state) || !target_has_other(task))
		return 0;
	verdict = rules_judge(task, &match, &surely);
	if (verdict == VERDICT_LEAVE)
		return 0;
	t = thread_find(task);
	if (t) {
		left = t->left;
		if (t->since || !left || !cut)
			return 0;
	}
	/* A command is stopped before its first instruction until its release. */
	if (state == STATE_TRACED && task_tgid(task->parent) == task_tgid(current_task()))
		return 0;
	scratch = stack_scratch(SCRATCH_ITERATOR);
	copy = bpf_map_lookup_elem(&offcpu_copy, &zero);
	if (!scratch || !copy)
		return 0;
	rec = &scratch->record;
	stack_begin(rec, task);
	if (verdict == VERDICT_OPEN)
		rec->match = match;
	task_comm(task, rec->comm);
	if (!skip_user_stack && task_has_user_stack(task)) {
		if (has_helper(copy_from_user_task))
			walk_other_user(task, scratch, copy);
		else
			rec->user_end = END_UNSEEN;
	}
	id = stack_intern(scratch);
	if (t) {
		thread_adopt(t, task, left, id);
		return 0;
	}
	first.owner = task_start(task);
	first.since = cut ?: gate.began;
	first.id = id;
	first.weight = 1;
	if (by_peer)
		first.peer = peer_of_other(task, SCRATCH_ITERATOR);
	first.cpu = task_number(task, wake_cpu);
	first.state = state;
	err = bpf_map_update_elem(&threads, &tid, &first, BPF_NOEXIST);
	if (err && err != -EEXIST)
		stat_add(STAT_UNFOLLOWED, 1);
	/* The thread came back before the entry existed: no switch will end this period. */
	if (!err && task_on_cpu(task) && (t = thread_find(task))) {
		t->cut_at = UNKNOWN_TIME;
		t->cut_since = first.since;
	}
	return 0;
}

/* In ns, far more than a switch from a thread takes. */
#define SWITCH_TIME 1000000

/*
 * Counts the periods of threads that are off their CPU, until the end of the
 * measurement or of a window. The time after a window's end is a separate period.
 */
SEC("iter/task")
int offcpu_cut(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct stack_scratch *scratch;
	u64 since, rest, kernel, until = gate.ended ?: cut;
	struct thread *t, part;

	if (!task)
		return 0;
	t = thread_find(task);
	scratch = stack_scratch(SCRATCH_ITERATOR);
	if (!t || !scratch)
		return 0;
	since = t->since;
	rest = rest_since(t, since);
	if (!since || rest >= until || !time_wanted(rest, until))
		return 0;
	/* It is running, and the switch to it was not reported: it is unknown when the period
	 * ended. */
	if (task_on_cpu(task) && until - rest > SWITCH_TIME) {
		if (*(volatile u64 *)&t->since == since) {
			t->cut_at = UNKNOWN_TIME;
			t->cut_since = since;
			stat_add(STAT_MISSED, 1);
		}
		return 0;
	}
	part = *t;
	kernel = kernel_half(task, scratch);
	/* The copies are valid only if the thread has not come back meanwhile. */
	if (time_cut(t, task_pid(task), since, until))
		thread_count(&part, task, kernel, since, rest, until, false);
	return 0;
}
