//go:build ignore

// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Outcomes of jumps: uprobes at jumps of the target, a few at a time, count how
 * often each is executed, and where it leads. All probes of a group count from
 * the moment when the last one is attached. Hardware breakpoints count the same
 * for up to three jumps or indirect calls of one thread.
 *
 * A perf event samples the addresses that the target executes. Its samples are
 * also the measure of the target's progress with and without probes.
 */

#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include "loss.h"
#include "target.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Whether to count hits. */
volatile bool counting;

/* Whether probes are attached, being attached or being detached. */
volatile bool disturbed;

/* The cookie of a probe or breakpoint: the index of the jump, and a code. */
enum jump_cookie {
	JUMP_CONDITION = 0xf, /* condition code */
	JUMP_INDIRECT = 0x10, /* the target is in a register or in memory */
	JUMP_TEST = 0x20, /* the condition is of a register; code 1: not zero */
	JUMP_INDEX_SHIFT = 8,
};

struct jump_count {
	u64 hits;
	u64 taken;
};

/* By index. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, u32);
	__type(value, struct jump_count);
} jump_counts SEC(".maps");

/*
 * The operand of an indirect jump or of a test; registers by their number in
 * instructions.
 */
struct jump_operand {
	s64 displacement; /* of a test: the tested bits of base */
	u8 base, index; /* 0xff: none */
	u8 scale;
	u8 memory; /* the target is not in base, but in memory */
	u8 relative; /* displacement is relative to the jump */
	u8 pad[3];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct jump_operand);
} jump_operands SEC(".maps");

/* Where an indirect jump led: the distance does not depend on the load address. */
struct jump_target {
	s64 distance;
	u32 jump; /* index */
	u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, struct jump_target);
	__type(value, u64);
} jump_targets SEC(".maps");

#if defined(__TARGET_ARCH_x86)
static __always_inline u64 user_flags(struct bpf_user_regs *regs)
{
	return regs->eflags;
}

static __always_inline u64 user_ip(struct bpf_user_regs *regs)
{
	return regs->rip;
}

static __always_inline bool in_user(struct bpf_user_regs *regs)
{
	return regs->cs & 3;
}

/*
 * Whether the condition code holds (Intel SDM volume 2, appendix B.1.4.7): pairs
 * of a condition and its negation.
 */
static __always_inline bool condition_holds(u32 code, u64 flags)
{
	bool cf = flags & 1, pf = flags >> 2 & 1, zf = flags >> 6 & 1;
	bool sf = flags >> 7 & 1, of = flags >> 11 & 1;
	bool holds;

	switch (code >> 1) {
	case 0:
		holds = of;
		break;
	case 1:
		holds = cf;
		break;
	case 2:
		holds = zf;
		break;
	case 3:
		holds = cf || zf;
		break;
	case 4:
		holds = sf;
		break;
	case 5:
		holds = pf;
		break;
	case 6:
		holds = sf != of;
		break;
	default:
		holds = zf || sf != of;
		break;
	}
	return holds != (code & 1);
}

/* The general registers, by their number in instructions. */
#define REGISTERS 16

static __always_inline void user_registers(struct bpf_user_regs *regs, u64 *to)
{
	to[0] = regs->rax;
	to[1] = regs->rcx;
	to[2] = regs->rdx;
	to[3] = regs->rbx;
	to[4] = regs->rsp;
	to[5] = regs->rbp;
	to[6] = regs->rsi;
	to[7] = regs->rdi;
	to[8] = regs->r8;
	to[9] = regs->r9;
	to[10] = regs->r10;
	to[11] = regs->r11;
	to[12] = regs->r12;
	to[13] = regs->r13;
	to[14] = regs->r14;
	to[15] = regs->r15;
}
#else
static __always_inline u64 user_flags(struct bpf_user_regs *regs)
{
	return regs->pstate;
}

static __always_inline u64 user_ip(struct bpf_user_regs *regs)
{
	return regs->pc;
}

static __always_inline bool in_user(struct bpf_user_regs *regs)
{
	return (regs->pstate & 0xf) == 0;
}

/*
 * Whether the condition code holds (Arm Architecture Reference Manual, C1.2.4):
 * pairs of a condition and its negation.
 */
static __always_inline bool condition_holds(u32 code, u64 flags)
{
	bool n = flags >> 31 & 1, z = flags >> 30 & 1;
	bool c = flags >> 29 & 1, v = flags >> 28 & 1;
	bool holds;

	switch (code >> 1) {
	case 0:
		holds = z;
		break;
	case 1:
		holds = c;
		break;
	case 2:
		holds = n;
		break;
	case 3:
		holds = v;
		break;
	case 4:
		holds = c && !z;
		break;
	case 5:
		holds = n == v;
		break;
	default:
		holds = !z && n == v;
		break;
	}
	return holds != (code & 1);
}

/* x0 to x30, and the zero register. */
#define REGISTERS 32

static __always_inline void user_registers(struct bpf_user_regs *regs, u64 *to)
{
	int i;

#pragma unroll
	for (i = 0; i < REGISTERS - 1; i++)
		to[i] = regs->regs[i];
	to[REGISTERS - 1] = 0;
}
#endif

/* Adds 1 to a count in a hash map, or to the lost counts if the map is full. */
static __always_inline void count_one(void *counts, const void *key)
{
	u64 one = 1, *n = bpf_map_lookup_elem(counts, key);

	if (!n) {
		if (!bpf_map_update_elem(counts, key, &one, BPF_NOEXIST))
			return;
		/* Another CPU may have inserted the key in between. */
		n = bpf_map_lookup_elem(counts, key);
	}
	if (n)
		__sync_fetch_and_add(n, 1);
	else
		stat_add(STAT_LOST, 1);
}

static __always_inline void count_target(struct bpf_user_regs *regs, u32 jump,
					 const struct jump_operand *operand, u64 to)
{
	struct jump_target key = { .jump = jump };

	if (operand->memory) {
		u64 at = to + operand->displacement;

		if (operand->relative)
			at += user_ip(regs);
		if (bpf_probe_read_user(&to, sizeof(to), (void *)at)) {
			stat_add(STAT_LOST, 1);
			return;
		}
	}
	key.distance = to - user_ip(regs);
	count_one(&jump_targets, &key);
}

/*
 * Counts the target of an indirect jump, or returns whether the condition of a
 * test holds.
 */
static __always_inline bool use_operand(struct bpf_user_regs *regs, u32 jump, u64 cookie)
{
	struct jump_operand *operand = bpf_map_lookup_elem(&jump_operands, &jump);
	u64 registers[REGISTERS];
	u64 value = 0;

	if (!operand)
		return false;
	user_registers(regs, registers);
	if (operand->base < REGISTERS)
		value = registers[operand->base];
	if (cookie & JUMP_TEST)
		return ((value & operand->displacement) != 0) == (cookie & 1);
	if (operand->index < REGISTERS)
		value += registers[operand->index] * operand->scale;
	count_target(regs, jump, operand, value);
	return false;
}

/* Processes that execute the code, whose waits are of interest. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, u32); /* thread group */
	__type(value, u8);
} jump_processes SEC(".maps");

static __always_inline void note_process(u32 id)
{
	u8 one = 1;

	if (!bpf_map_lookup_elem(&jump_processes, &id))
		bpf_map_update_elem(&jump_processes, &id, &one, BPF_ANY);
}

/* Counts that the jump with this cookie is about to be executed. */
static __always_inline void count_hit(struct bpf_user_regs *regs, u64 cookie)
{
	u32 index = cookie >> JUMP_INDEX_SHIFT;
	struct jump_count *count = bpf_map_lookup_elem(&jump_counts, &index);
	bool taken;

	if (!count)
		return;
	__sync_fetch_and_add(&count->hits, 1);
	if (cookie & (JUMP_INDIRECT | JUMP_TEST))
		taken = use_operand(regs, index, cookie);
	else
		taken = condition_holds(cookie & JUMP_CONDITION, user_flags(regs));
	if (taken)
		__sync_fetch_and_add(&count->taken, 1);
}

SEC("uprobe")
int jump_hit(struct bpf_user_regs *ctx)
{
	struct task_struct *task = current_task();

	if (!counting || !target_has(task))
		return 0;
	note_process(task_tgid(task));
	count_hit(ctx, bpf_get_attach_cookie(ctx));
	return 0;
}

/*
 * Processors have at least four breakpoints. One of them is left to debuggers.
 */
enum jump_limit {
	JUMP_BREAKPOINTS = 3,
	JUMP_THREADS = 64,
};

/* Makes bpf2go generate Go types. */
const enum jump_cookie *unused_jump_cookie __attribute__((unused));
const enum jump_limit *unused_jump_limit __attribute__((unused));

/* The breakpoints, which are all in one thread. */
struct jump_breakpoint {
	u64 ip;
	u64 cookie;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, JUMP_BREAKPOINTS);
	__type(key, u32);
	__type(value, struct jump_breakpoint);
} jump_breakpoints SEC(".maps");

/*
 * Hits are told apart by their address, since events have no cookies before Linux
 * 5.15.
 */
SEC("perf_event")
int jump_break(struct bpf_perf_event_data *ctx)
{
	u64 ip = user_ip(&ctx->regs);
	u32 i;

	for (i = 0; i < JUMP_BREAKPOINTS; i++) {
		u32 key = i;
		struct jump_breakpoint *b = bpf_map_lookup_elem(&jump_breakpoints, &key);

		if (b && b->ip == ip) {
			count_hit(&ctx->regs, b->cookie);
			break;
		}
	}
	return 1; /* since Linux 6.11, only such hits count towards the event's limit */
}

/* An address that was executed. */
struct executed {
	u64 ip;
	u32 pid; /* thread group */
	u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, struct executed);
	__type(value, u64); /* samples */
} jump_samples SEC(".maps");

/* Threads that ran recently, and where: each sample replaces a random entry. */
struct jump_thread {
	u64 ip;
	u32 pid; /* thread group */
	u32 tid;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, JUMP_THREADS);
	__type(key, u32);
	__type(value, struct jump_thread);
} jump_threads SEC(".maps");

static __always_inline void note_thread(u64 ip, struct task_struct *task)
{
	u32 at = bpf_get_prandom_u32() % JUMP_THREADS;
	struct jump_thread t = { .ip = ip, .pid = task_tgid(task), .tid = task_pid(task) };

	bpf_map_update_elem(&jump_threads, &at, &t, BPF_ANY);
}

/* Samples of the target's code, without and with probes. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2);
	__type(key, u32);
	__type(value, u64);
} jump_progress SEC(".maps");

SEC("perf_event")
int jump_sample(struct bpf_perf_event_data *ctx)
{
	struct task_struct *task = current_task();
	struct executed key = {};
	u32 phase = disturbed;
	u64 *n;

	if ((task_flags(task) & PF_KTHREAD) || !in_user(&ctx->regs) || !target_has(task))
		return 0;
	n = bpf_map_lookup_elem(&jump_progress, &phase);
	if (n)
		__sync_fetch_and_add(n, 1);
	key.ip = user_ip(&ctx->regs);
	key.pid = task_tgid(task);
	count_one(&jump_samples, &key);
	note_thread(key.ip, task);
	return 0;
}

#define TASK_UNINTERRUPTIBLE 2

/* Threads that began to wait while probes were there, and when. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, u32);
	__type(value, u64);
} jump_stalls SEC(".maps");

/* The longest wait, in ns; user space resets it. */
volatile u64 longest_stall;

struct task_struct___iowait {
	unsigned int in_iowait : 1;
} __attribute__((preserve_access_index));

/* Whether task, which is about to wait, may do so because of the probes. */
static __always_inline bool may_stall(struct task_struct *task)
{
	struct task_struct___iowait *io = (void *)task;
	u32 id = task_tgid(task);

	return task_state(task) == TASK_UNINTERRUPTIBLE && !BPF_CORE_READ_BITFIELD(io, in_iowait) &&
	       bpf_map_lookup_elem(&jump_processes, &id) && target_has_other(task);
}

/*
 * While the kernel changes code, threads of the target that enter it wait for
 * the lock of the address space (mmap_lock), uninterruptibly. Waits for disks are
 * not due to the probes, and neither are waits of processes that do not execute
 * the code.
 */
SEC("tp_btf/sched_switch")
int BPF_PROG(jump_stall, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	u32 id = task_pid(next);
	u64 *since = bpf_map_lookup_elem(&jump_stalls, &id);
	u64 now;

	if (since) {
		now = bpf_ktime_get_ns();
		if (now > *since && now - *since > longest_stall)
			longest_stall = now - *since;
		bpf_map_delete_elem(&jump_stalls, &id);
	}
	if (disturbed && !preempt && may_stall(prev)) {
		id = task_pid(prev);
		now = bpf_ktime_get_ns();
		bpf_map_update_elem(&jump_stalls, &id, &now, BPF_ANY);
	}
	return 0;
}
