//go:build ignore

// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Waits of goroutines, by the stack with which a goroutine parks, from uprobes at four functions
 * of Go's runtime:
 *
 *   gopark(unlockf, lock, reason, …)  the current goroutine begins to wait
 *   ready(g, …)                       another goroutine or a timer makes g runnable
 *   injectglist(list)                 the network poller makes a list of goroutines runnable
 *   execute(g, …)                     a thread begins to run g
 *
 * The thread that runs the scheduler also takes a goroutine from the network poller and executes
 * it at once: such a goroutine is runnable only in execute.
 *
 * A goroutine is woken after it has parked, and executed after it was woken, each time with the
 * scheduler's locks or atomic operations between. So the programs for one goroutine never run at
 * the same time, though on different threads. No program runs at a return: Go moves stacks.
 *
 * ready, injectglist and execute run on the stack of the thread, which uprobes do not touch.
 */

#include "hit.h"
#include "count.h"
#include "event.h"
#include "kernel.h"
#include "snapshot.h"
#include "target.h"
#include "unwind.h"
#include <bpf/bpf_helpers.h>

/* The key of a count. tid and cpu are 0 if not distinguished. */
struct count_key {
	u64 id;
	u64 waker; /* the waker's stack; 0 if not distinguished, or the network poller */
	u32 tid; /* on which the goroutine parked */
	u32 cpu; /* likewise */
	u64 reason; /* Go's number of the reason, which depends on its version */
};

struct count_value {
	u64 times;
	u64 waiting; /* until it was runnable, ns */
	u64 runnable; /* from then on until it ran, ns */
};

static __always_inline void count_add(struct count_value *to, const struct count_value *add)
{
	__sync_fetch_and_add(&to->times, add->times);
	__sync_fetch_and_add(&to->waiting, add->waiting);
	__sync_fetch_and_add(&to->runnable, add->runnable);
}

COUNT_RECORD

char LICENSE[] SEC("license") = "Dual BSD/GPL";

const volatile u64 shortest; /* minimum wait to count, until the goroutine runs, in ns */
const volatile u64 longest = ~0ULL; /* and maximum */
const volatile bool by_waker;

/* The functions with programs. */
enum goroutine_program {
	GOROUTINE_PARK,
	GOROUTINE_READY,
	GOROUTINE_LIST,
	GOROUTINE_EXECUTE,
	GOROUTINE_PROGRAMS,
};

const enum goroutine_program *unused_goroutine_program __attribute__((unused));

/* Counts of a CPU. */
struct hit_counts {
	u64 hits[GOROUTINE_PROGRAMS]; /* by the target */
	u64 others; /* by other processes, which map the same files */
	u64 earlier; /* goroutines that were woken from waits whose beginning was not seen */
	u64 unlisted; /* lists that were longer than GOROUTINE_LISTED */
};

const struct hit_counts *unused_hit_counts __attribute__((unused));

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct hit_counts);
} goroutine_hits SEC(".maps");

static __always_inline struct hit_counts *hits_here(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&goroutine_hits, &zero);
}

/* Counts a hit of a program. Returns whether it is one of the target. */
static __always_inline bool hit_by(struct task_struct *task, enum goroutine_program by)
{
	struct hit_counts *here = hits_here();

	if (!gate_is_open() || !here)
		return false;
	if (!target_has(task)) {
		here->others++;
		return false;
	}
	here->hits[by]++;
	return true;
}

/* Go keeps the memory of a g for the next goroutine, and never frees it. */
struct goroutine {
	u64 image; /* of the process; see task_image() */
	u64 g; /* address */
};

const struct goroutine *unused_goroutine __attribute__((unused));

/* A wait in progress. */
struct goroutine_wait {
	u64 since; /* CLOCK_MONOTONIC, ns */
	u64 woken; /* when it was made runnable; 0 if it was not */
	u64 id; /* of the stack */
	u64 waker; /* likewise, 0 if unknown */
	u32 reason;
	u32 tid;
	u32 cpu;
	u32 pad;
};

const struct goroutine_wait *unused_goroutine_wait __attribute__((unused));

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct goroutine);
	__type(value, struct goroutine_wait);
} goroutine_waits SEC(".maps");

/* When the last thread of a process image exited so far, if any did; CLOCK_MONOTONIC, ns. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, u64);
	__type(value, u64);
} goroutine_exits SEC(".maps");

/* include/uapi/linux/bpf.h */
#define BPF_F_NO_PREALLOC 1

/* The images of the target's processes that exist, as goroutine_images found them. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 16);
	__type(key, u64);
	__type(value, u32);
} goroutine_living SEC(".maps");

/* The current goroutine, in the register where Go keeps it in compiled functions. */
static __always_inline u64 current_goroutine(void *ctx)
{
#if defined(__TARGET_ARCH_x86)
	return ((struct bpf_user_regs *)ctx)->r14;
#else
	return ((struct bpf_user_regs *)ctx)->regs[28];
#endif
}

/* The first argument of a Go function. */
static __always_inline u64 first_argument(void *ctx)
{
#if defined(__TARGET_ARCH_x86)
	return ((struct bpf_user_regs *)ctx)->rax;
#else
	return ((struct bpf_user_regs *)ctx)->regs[0];
#endif
}

/* The third one. */
static __always_inline u64 third_argument(void *ctx)
{
#if defined(__TARGET_ARCH_x86)
	return ((struct bpf_user_regs *)ctx)->rcx;
#else
	return ((struct bpf_user_regs *)ctx)->regs[2];
#endif
}

static __always_inline void park_in(void *ctx, struct task_struct *task, u32 slot)
{
	struct goroutine key = { .image = task_image(task), .g = current_goroutine(ctx) };
	struct goroutine_wait wait = { .reason = (u8)third_argument(ctx) };
	struct stack_scratch *scratch = stack_scratch(slot);

	if (!scratch)
		return;
	wait.id = hit_stack(ctx, task, scratch, IN_PROGRAM);
	wait.tid = scratch->record.tid;
	wait.cpu = bpf_get_smp_processor_id();
	/* A wait whose end the kernel skipped may be there. */
	if (bpf_map_lookup_elem(&goroutine_waits, &key))
		stat_add(STAT_MISSED, 1);
	wait.since = bpf_ktime_get_ns();
	if (bpf_map_update_elem(&goroutine_waits, &key, &wait, BPF_ANY))
		stat_add(STAT_UNFOLLOWED, 1);
}

/* gopark(unlockf, lock, reason, …) */
SEC("kprobe")
int goroutine_park(void *ctx)
{
	struct task_struct *task = current_task();
	u32 slot;

	if (!hit_by(task, GOROUTINE_PARK))
		return 0;
	slot = hit_claim(ctx);
	if (slot == SCRATCH_HITS)
		return 0;
	park_in(ctx, task, slot);
	hit_release(slot);
	return 0;
}

/* Notes that a goroutine is runnable from now on. Returns its wait, NULL if it is not known. */
static __always_inline struct goroutine_wait *make_runnable(u64 image, u64 g, u64 now)
{
	struct goroutine key = { .image = image, .g = g };
	struct goroutine_wait *wait = bpf_map_lookup_elem(&goroutine_waits, &key);
	struct hit_counts *here;

	if (wait) {
		wait->woken = now;
		return wait;
	}
	here = hits_here();
	if (here)
		here->earlier++;
	return NULL;
}

/* ready(g, …), in the waker's thread */
SEC("kprobe")
int goroutine_ready(void *ctx)
{
	struct task_struct *task = current_task();
	struct stack_scratch *scratch;
	struct goroutine_wait *wait;
	u32 slot;

	if (!hit_by(task, GOROUTINE_READY))
		return 0;
	wait = make_runnable(task_image(task), first_argument(ctx), bpf_ktime_get_ns());
	if (!wait || !by_waker)
		return 0;
	slot = hit_claim(ctx);
	if (slot == SCRATCH_HITS)
		return 0;
	scratch = stack_scratch(slot);
	if (scratch)
		wait->waker = hit_stack(ctx, task, scratch, IN_PROGRAM);
	hit_release(slot);
	return 0;
}

/* The network poller takes 128 events at a time, each of which can wake a reader and a writer. */
enum goroutine_limit {
	GOROUTINE_LISTED = 256,
};

const enum goroutine_limit *unused_goroutine_limit __attribute__((unused));

/* A global function, which the verifier checks once rather than in each iteration. */
__noinline int goroutine_listed(u64 image, u64 g, u64 now)
{
	make_runnable(image, g, now);
	return 0;
}

/* The offset of schedlink in the runtime's g is a part of the program. */
static __always_inline int list(void *ctx, u64 schedlink)
{
	struct task_struct *task = current_task();
	u64 g = 0, now = bpf_ktime_get_ns(), image;
	struct hit_counts *here;
	u32 i;

	if (!hit_by(task, GOROUTINE_LIST))
		return 0;
	if (bpf_probe_read_user(&g, sizeof(g), (void *)first_argument(ctx)) || !g)
		return 0;
	image = task_image(task);
	for (i = 0; i < GOROUTINE_LISTED; i++) {
		goroutine_listed(image, g, now);
		if (bpf_probe_read_user(&g, sizeof(g), (void *)(g + schedlink)) || !g)
			return 0;
	}
	here = hits_here();
	if (here)
		here->unlisted++;
	return 0;
}

/* injectglist(list) of Go 1.21, 1.22, and 1.25 on */
SEC("kprobe")
int goroutine_list_160(void *ctx)
{
	return list(ctx, 160);
}

/* injectglist(list) of Go 1.23 and 1.24 */
SEC("kprobe")
int goroutine_list_168(void *ctx)
{
	return list(ctx, 168);
}

/* execute(g, …), in the thread that will run g */
SEC("kprobe")
int goroutine_execute(void *ctx)
{
	struct task_struct *task = current_task();
	u64 now = bpf_ktime_get_ns();
	struct count_value value = { .times = 1 };
	struct goroutine_wait *found, wait;
	struct count_key counted = {};
	struct goroutine key = {};

	if (!hit_by(task, GOROUTINE_EXECUTE))
		return 0;
	key.image = task_image(task);
	key.g = first_argument(ctx);
	found = bpf_map_lookup_elem(&goroutine_waits, &key);
	if (!found) /* it did not wait, or its wait is not known */
		return 0;
	wait = *found;
	bpf_map_delete_elem(&goroutine_waits, &key);
	if (now < wait.since || now - wait.since < shortest || now - wait.since > longest)
		return 0;
	if (wait.woken < wait.since || wait.woken > now)
		wait.woken = now;
	value.waiting = wait.woken - wait.since;
	value.runnable = now - wait.woken;
	counted.id = wait.id;
	counted.waker = wait.waker;
	counted.reason = wait.reason;
	if (by_thread)
		counted.tid = wait.tid;
	if (by_cpu)
		counted.cpu = wait.cpu;
	stat_add(STAT_SAMPLES, 1);
	count(&counted, &value);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(goroutine_exit, struct task_struct *task)
{
	struct task_struct *current = current_task();
	u64 image, now = bpf_ktime_get_ns();

	/* Also after the end, before user space looks which processes are left. */
	if (!gate.began || !target_has(current))
		return 0;
	image = task_image(current);
	bpf_map_update_elem(&goroutine_exits, &image, &now, BPF_ANY);
	return 0;
}

/* include/linux/sched.h */
#define PF_EXITING 0x00000004

/* Lists the images of processes, so that the waits of those that have ended can be told. */
SEC("iter/task")
int goroutine_images(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	u32 one = 1;
	u64 image;

	if (!task || !task_leads(task) || task_flags(task) & (PF_KTHREAD | PF_EXITING) ||
	    !target_has_other(task))
		return 0;
	image = process_image(task);
	bpf_map_update_elem(&goroutine_living, &image, &one, BPF_ANY);
	return 0;
}

static __always_inline void snapshot_take(struct stack_scratch *scratch, const struct snapshot *s)
{
	stack_intern_as(scratch, s->weight);
}
