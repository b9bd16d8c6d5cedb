/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a thread does during an interval: the parts of the interval. While it is in progress, each
 * wait of its thread and each sample of the thread's code adds to a short list. At the end of the
 * interval, its length decides on which side it is, slow or not, and the parts are added to the
 * counts of that side. The family defines part_count(), which does that.
 *
 * A thread has one interval in progress at a time: calls in it belong to it. Its time is what
 * sched_switch reports: from one switch to the next, the thread runs, or is off its CPU. So these
 * times add up to the length of the interval. Samples have no time: user space divides the running
 * time of all intervals of a side among them.
 *
 * An entry belongs to its thread: the thread begins and ends intervals, sched_switch writes to it
 * when the thread leaves its CPU or comes back, and a sample may interrupt the thread. Only the
 * thread itself can be interrupted while it writes. The others change nothing but the number of
 * switches while open is not set. A waker on another CPU writes woken and waker, and nothing else.
 * The fields to show of the event at which the interval began are beside it, in the map shown.
 */
#ifndef FULGUR_PARTS_H
#define FULGUR_PARTS_H

#include "gate.h"
#include "hash.h"
#include "hit.h"
#include "kernel.h"
#include "loss.h"
#include "record.h"
#include "task.h"
#include "wait.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

/* Whether the parts of intervals are followed. */
const volatile bool follows;

/* The number of slowest intervals to keep on each CPU, at most SLOWEST_MAX. */
const volatile u32 slowest_rows;

/* Whether to tell waits apart by the stacks of the threads that ended them. */
const volatile bool follows_wakers;

/* Whether to keep the fields of the first event that are to be shown. */
const volatile bool shows;

/* The slowest intervals are kept for each window, which user space counts up. */
volatile u32 slowest_window;

/*
 * Intervals of at least slow_from and less than slow_until are slow, in ns. While slow_from is 0,
 * it is not known yet: intervals are on neither side.
 */
volatile u64 slow_from;
volatile u64 slow_until;

enum part_limits {
	PARTS_MAX = 64, /* of an interval */
	SLOWEST_MAX = 64,
	SLOWEST_LISTS = 2, /* of the window, and of the one before, which user space reads */
};

/* The kinds of parts. */
enum part_kind {
	PART_RUNNING = 0, /* all time on a CPU, with the stack at the beginning */
	PART_SAMPLE = 1, /* a sample of the running code, without a time */
	PART_WAIT = 2, /* a wait for something other than a CPU */
	PART_PREEMPTED = 3, /* a wait for a CPU that another thread took */
	PART_UNKEPT = 4, /* waits and samples whose stacks had no room */
};

/* Bits that the kinds have in the keys of counts. */
enum part_bit {
	PART_RUNNABLE = 8, /* the time during which the thread waited for a CPU */
	PART_SLOW = 16, /* on the slow side */
};

/* Make bpf2go generate Go types. */
const enum part_kind *unused_part_kind __attribute__((unused));
const enum part_bit *unused_part_bit __attribute__((unused));
const enum part_limits *unused_part_limits __attribute__((unused));

/* Matches the beginning and the end of an interval. */
struct interval_key {
	u64 of; /* the thread (address of its task), the caller, the goroutine, or field 0 */
	u64 which; /* the call, the field or the process */
};

/* Equal waits and samples of an interval. */
struct part {
	u64 tag; /* a hash of id, kernel, waker and kind */
	u64 id; /* of the stack, or of its user half */
	u64 kernel; /* of the kernel half of a wait's stack, else 0 */
	u64 waker; /* of the stack of the thread that ended the wait, else 0 */
	u64 time; /* ns, without waiting */
	u64 waiting; /* for a CPU, ns */
	u32 kind;
	u32 times;
};

/* The parts that each interval has. */
enum fixed_part {
	FIXED_RUNNING,
	FIXED_UNKEPT,
	FIXED_PARTS,
};

/* A thread that has had intervals. */
struct progress {
	u64 start; /* of the thread, since the address of a task is used again */
	struct interval_key key;
	u64 since; /* CLOCK_MONOTONIC, ns */
	u64 on; /* since when it runs */
	u64 left; /* when it left its CPU; 0 while it runs */
	u64 woken; /* when it was last woken; 0 if it was not since it last ran */
	u64 waker; /* ID of the stack of the thread that woke it; 0 if unknown */
	u64 stack; /* ID of the user half of the stack at which it left its CPU */
	u64 switches; /* from and to the thread */
	u32 runnable; /* it left its CPU, but does not sleep */
	u32 open; /* whether an interval is in progress */
	u32 broken; /* whether a switch was not reported in it */
	u32 n; /* parts */
	u32 pid; /* thread group */
	u32 tid;
	struct part parts[PARTS_MAX];
};

const struct progress *unused_progress __attribute__((unused));

/* By thread. Entries are deleted when their thread ends. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, u64); /* address of the task */
	__type(value, struct progress);
} progresses SEC(".maps");

/* The fields of the first event of the interval in progress, by thread. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, u64); /* address of the task */
	__type(value, struct shown_fields);
} shown SEC(".maps");

/* One of the slowest intervals. */
struct slow_interval {
	u64 since; /* CLOCK_MONOTONIC, ns */
	u64 time; /* ns */
	u64 running; /* parts of it, ns */
	u64 waiting; /* for a CPU */
	u64 id; /* of the stack at the beginning */
	u32 pid; /* thread group */
	u32 tid;
	u32 side; /* 0 or PART_SLOW */
	u32 pad;
	u8 comm[16];
};

struct slowest_list {
	u32 n;
	u32 fastest; /* index of the fastest one, if there are as many as fit */
	u32 window; /* to which they belong */
	u32 pad;
	struct slow_interval rows[SLOWEST_MAX];
};

const struct slowest_list *unused_slowest_list __attribute__((unused));

/* By the slot that the run of the program has claimed, see hit_claim(), and the list. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SCRATCH_HITS *SLOWEST_LISTS);
	__type(key, u32);
	__type(value, struct slowest_list);
} slowest SEC(".maps");

/* The fields of their first events, by the list and the row. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct shown_fields);
} slowest_shown SEC(".maps");

/*
 * The family defines part_count(), which adds a part of an interval to the counts, with a kind that
 * has the bits, and give_up(), which forgets an interval in progress.
 */
static __always_inline void part_count(const struct progress *p, const struct part *part, u32 kind,
				       u64 time);
static __always_inline void give_up(const struct interval_key *key);

/* The entry of a thread, or NULL if there is none. */
static __always_inline struct progress *progress_of(struct task_struct *task)
{
	u64 key = (u64)task;
	struct progress *p = bpf_map_lookup_elem(&progresses, &key);

	return p && p->start == task_start(task) ? p : NULL;
}

/* The entry of a thread, which is made if there is none; NULL if there is no room. */
static __always_inline struct progress *progress_make(struct task_struct *task)
{
	static const struct progress none;
	u64 key = (u64)task;
	struct progress *p = bpf_map_lookup_elem(&progresses, &key);

	if (!p) {
		bpf_map_update_elem(&progresses, &key, &none, BPF_NOEXIST);
		p = bpf_map_lookup_elem(&progresses, &key);
		if (!p)
			return NULL;
	}
	if (p->start != task_start(task)) {
		p->open = 0;
		p->start = task_start(task);
	}
	return p;
}

/* Keeps the fields of the first event of an interval of the current thread. */
__noinline int shown_note(u32 slot, u32 place)
{
	static const struct shown_fields none;
	u64 task = bpf_get_current_task();
	struct shown_fields *s = bpf_map_lookup_elem(&shown, &task);

	if (!s) {
		bpf_map_update_elem(&shown, &task, &none, BPF_NOEXIST);
		s = bpf_map_lookup_elem(&shown, &task);
		if (!s)
			return 0;
	}
	s->place = place;
	show_fields(slot, place, &s->texts, s->numbers, s->text, false);
	return 0;
}

/* Adds a wait or a sample to the parts of an interval. Its id is 0 if there was no memory to walk
 * its stack. */
static __noinline int part_add(struct progress *p, const struct part *add)
{
	struct part *part;
	u64 tag;
	u32 i;

	if (!p || !add)
		return 0;
	tag = hash_step(hash_step(hash_step(add->kind, add->id), add->kernel), add->waker);
	for (i = FIXED_PARTS; i < PARTS_MAX && add->id; i++) {
		part = &p->parts[i];
		if (i >= p->n) {
			*part = *add;
			part->tag = tag;
			p->n = i + 1;
			return 0;
		}
		if (part->tag == tag)
			goto found;
	}
	part = &p->parts[FIXED_UNKEPT];
found:
	part->time += add->time;
	part->waiting += add->waiting;
	part->times += add->times;
	return 0;
}

/*
 * Begins an interval in the entry of the current thread. Returns false if the thread was switched
 * meanwhile, again and again.
 */
static __always_inline bool progress_begin(struct progress *p, const struct interval_key *key,
					   u64 id, u32 pid, u32 tid)
{
	u64 switches;
	int i;

	p->key = *key;
	p->pid = pid;
	p->tid = tid;
	for (i = 0; i < 8; i++) {
		p->open = 0;
		barrier();
		p->left = p->woken = p->waker = 0;
		p->broken = 0;
		p->n = FIXED_PARTS;
		p->parts[FIXED_RUNNING] =
			(struct part){ .id = id, .kind = PART_RUNNING, .times = 1 };
		p->parts[FIXED_UNKEPT] = (struct part){ .id = id, .kind = PART_UNKEPT };
		switches = *(volatile u64 *)&p->switches;
		p->on = p->since = bpf_ktime_get_ns();
		barrier();
		p->open = 1;
		barrier();
		/* Since Linux 6.0, programs in programs can be preempted. */
		if (*(volatile u64 *)&p->switches == switches)
			return true;
	}
	p->open = 0;
	return false;
}

/* Adds a part of an interval to the counts of its side, 0 or PART_SLOW. It is global, so that the
 * verifier checks it once. */
__noinline int part_flush(u64 task, u32 i, u32 side)
{
	struct progress *p = bpf_map_lookup_elem(&progresses, &task);
	struct part *part;
	u32 n;

	if (!p || i >= PARTS_MAX || i >= p->n)
		return 0;
	part = &p->parts[i];
	for (n = 0; n < 2; n++) {
		u64 time = n ? part->waiting : part->time;

		/* Samples have no time, and those without room count. */
		if (time ||
		    (!n && part->times && part->kind != PART_WAIT && part->kind != PART_PREEMPTED))
			part_count(p, part, part->kind | side | (n ? PART_RUNNABLE : 0), time);
	}
	return 0;
}

/*
 * Keeps an interval if it is one of the slowest. slot is the one that this run has claimed. Sums
 * and indexes are in memory: for registers, verifiers would follow each value.
 */
__noinline int slowest_note(u64 task, u32 slot, u64 time, u32 side)
{
	u32 window = slowest_window, rows = slowest_rows;
	u32 list = slot * SLOWEST_LISTS + window % SLOWEST_LISTS, at, i;
	struct progress *p = bpf_map_lookup_elem(&progresses, &task);
	struct slowest_list *s = bpf_map_lookup_elem(&slowest, &list);
	struct slow_interval *row;
	struct shown_fields *fields;

	if (!p || !s || !rows)
		return 0;
	if (s->window != window) {
		s->n = s->fastest = 0;
		s->window = window;
	}
	at = s->n;
	if (at >= rows || at >= SLOWEST_MAX) {
		at = s->fastest;
		if (at >= SLOWEST_MAX || s->rows[at].time >= time)
			return 0;
	} else {
		s->n = at + 1;
	}
	row = &s->rows[at];
	row->since = p->since;
	row->time = time;
	row->running = p->parts[FIXED_RUNNING].time;
	row->waiting = 0;
	row->id = p->parts[FIXED_RUNNING].id;
	row->pid = p->pid;
	row->tid = p->tid;
	row->side = side;
	bpf_get_current_comm(row->comm, sizeof(row->comm));
	fields = bpf_map_lookup_elem(&shown, &task);
	if (fields) {
		list = list * SLOWEST_MAX + at;
		bpf_map_update_elem(&slowest_shown, &list, fields, BPF_ANY);
	}
	for (i = FIXED_UNKEPT; i < PARTS_MAX; i++) {
		if (i >= p->n)
			break;
		*(volatile u64 *)&row->waiting += p->parts[i].waiting;
	}
	*(volatile u32 *)&s->fastest = 0;
	for (i = 1; i < SLOWEST_MAX; i++) {
		if (i >= s->n)
			break;
		at = *(volatile u32 *)&s->fastest;
		barrier_var(at);
		if (at < SLOWEST_MAX && s->rows[i].time < s->rows[at].time)
			*(volatile u32 *)&s->fastest = i;
	}
	return 0;
}

/*
 * Ends the interval of the current thread with a key, at the time now, and adds its parts to the
 * counts of its side. ctx is the program's.
 */
static __always_inline void progress_end(void *ctx, const struct interval_key *key, u64 now)
{
	struct task_struct *task = current_task();
	struct progress *p = progress_of(task);
	u64 time, from = slow_from;
	struct part *running;
	u32 slot, side, i;

	if (!p || !p->open || p->key.of != key->of || p->key.which != key->which) {
		stat_add(STAT_MOVED, 1);
		return;
	}
	p->open = 0;
	barrier();
	if (p->left || p->broken) { /* it runs, but the switch to it was not reported */
		stat_add(STAT_MISSED, 1);
		return;
	}
	if (p->on > now) /* this program was preempted */
		now = p->on;
	time = now - p->since;
	running = &p->parts[FIXED_RUNNING];
	running->time += now - p->on;
	if (!from) {
		stat_add(STAT_UNDECIDED, 1);
		return;
	}
	stat_add(STAT_SAMPLES, 1);
	side = time >= from && time < slow_until ? PART_SLOW : 0;
	for (i = 0; i < PARTS_MAX; i++)
		part_flush(bpf_get_current_task(), i, side);
	slot = hit_claim(ctx);
	if (slot == SCRATCH_HITS)
		return;
	slowest_note(bpf_get_current_task(), slot, time, side);
	hit_release(slot);
}

/* The thread of an open interval leaves its CPU. */
static __always_inline void progress_leave(void *ctx, struct progress *p, struct task_struct *task,
					   u32 state, u64 now)
{
	struct stack_scratch *scratch;
	u32 slot;

	if (p->left) {
		p->broken = 1;
		return;
	}
	p->parts[FIXED_RUNNING].time += now - p->on;
	p->left = now;
	p->stack = 0;
	p->runnable = state == STATE_RUNNABLE;
	/* A wake-up that was noted came before, and kept the thread from sleeping at that time. */
	if (p->runnable || task_sleeps(task))
		p->woken = p->waker = 0;
	slot = hit_claim(ctx);
	if (slot == SCRATCH_HITS)
		return;
	scratch = stack_scratch(slot);
	if (scratch)
		p->stack = hit_stack(ctx, task, scratch, INSIDE_FUNCTION);
	hit_release(slot);
}

/* The thread of an open interval comes back to a CPU. */
static __always_inline void progress_back(void *ctx, struct progress *p, struct task_struct *task,
					  u64 now)
{
	u64 off = now - p->left, woken = p->woken;
	struct stack_scratch *scratch;
	struct part add = { .times = 1, .id = p->stack };
	u32 slot;

	if (!p->left) {
		p->broken = 1;
		return;
	}
	add.kind = p->runnable ? PART_PREEMPTED : PART_WAIT;
	if (p->runnable)
		add.time = 0;
	else if (!woken || woken > now)
		add.time = off;
	else if (woken > p->left)
		add.time = woken - p->left;
	add.waiting = off - add.time;
	add.waker = p->waker;
	p->left = p->woken = p->waker = 0;
	p->on = now;
	slot = hit_claim(ctx);
	if (slot != SCRATCH_HITS) {
		scratch = stack_scratch(slot);
		if (scratch && add.id)
			add.kernel = kernel_half(task, scratch);
		hit_release(slot);
	}
	part_add(p, &add);
}

/* Deletes the entry of the current thread, which ends. */
static __always_inline void progress_delete(struct progress *p, struct task_struct *task)
{
	struct interval_key interval = p->key;
	u64 key = (u64)task;

	if (p->open)
		give_up(&interval);
	bpf_map_delete_elem(&progresses, &key);
	if (shows)
		bpf_map_delete_elem(&shown, &key);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(parts_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	u64 now = bpf_ktime_get_ns();
	struct progress *p;
	u32 state;

	p = progress_of(prev);
	if (p) {
		p->switches++;
		state = class_of_switch(ctx, preempt, prev);
		if (state == STATE_DEAD)
			progress_delete(p, prev);
		else if (p->open)
			progress_leave(ctx, p, prev, state, now);
	}
	p = progress_of(next);
	if (p) {
		p->switches++;
		if (p->open)
			progress_back(ctx, p, next, now);
	}
	return 0;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(parts_waking, struct task_struct *task)
{
	struct task_struct *waker = current_task();
	struct progress *p = progress_of(task);
	struct stack_scratch *scratch;
	u32 slot;

	if (!p || !p->open)
		return 0;
	p->woken = bpf_ktime_get_ns();
	if (!follows_wakers || task == waker)
		return 0;
	slot = hit_claim(ctx);
	if (slot == SCRATCH_HITS)
		return 0;
	scratch = stack_scratch(slot);
	if (scratch)
		p->waker = hit_stack(ctx, waker, scratch, IN_TRACEPOINT);
	hit_release(slot);
	return 0;
}

/* A program that a thread executes has none of the functions whose calls are in progress. */
SEC("tp_btf/sched_process_exec")
int BPF_PROG(parts_exec, struct task_struct *task)
{
	struct progress *p = progress_of(task);

	if (p)
		progress_delete(p, task);
	return 0;
}

/* A sample of the running code. */
SEC("perf_event")
int parts_sample(struct bpf_perf_event_data *ctx)
{
	struct task_struct *task = current_task();
	struct part add = { .kind = PART_SAMPLE, .times = 1 };
	struct stack_scratch *scratch;
	struct progress *p;
	u32 slot;

	if (task_is_idle(task))
		return 0;
	p = progress_of(task);
	if (!p || !p->open || !gate_is_open())
		return 0;
	slot = hit_claim(ctx);
	if (slot == SCRATCH_HITS)
		return 0;
	scratch = stack_scratch(slot);
	if (scratch) {
		add.id = hit_stack(ctx, task, scratch,
				   regs_in_user(ctx) ? INSIDE_FUNCTION : IN_TRACEPOINT);
		part_add(p, &add);
	}
	hit_release(slot);
	return 0;
}

#endif
