//go:build ignore

// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Requests to block devices, by the stack and the task that made them. These are
 * taken where a request is born, in the submitter's context; what hands it to the
 * device is often a kernel worker, and what completes it an interrupt.
 *
 * Where the kernel tells of a new request (block_io_start, since 6.5), that is its
 * birth. Before, it tells of the first bio of a request (block_getrq), and the two
 * are brought together when the request is queued or issued. A request that is
 * met for the first time there, as flushes are, is born there.
 *
 * A request is inserted, issued and completed in this order, but on any CPU, and
 * the last often in an interrupt. Only births walk stacks; each program that does
 * has scratch of its own, since the kernel runs no program twice at a time on a
 * CPU.
 */

#include "kernel.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

/* What counts are kept for. */
struct count_key {
	u64 id;
	u32 device; /* major << 20 | minor */
	u32 operation; /* number of the operation, and enum request_flag */
	u32 tid;
	u32 cpu; /* that it was born on */
};

struct count_value {
	u64 requests;
	u64 bytes;
	u64 queued; /* ns from birth to issue */
	u64 in_device; /* ns from issue to completion */
};

static __always_inline void count_add(struct count_value *to, const struct count_value *add)
{
	__sync_fetch_and_add(&to->requests, add->requests);
	__sync_fetch_and_add(&to->bytes, add->bytes);
	__sync_fetch_and_add(&to->queued, add->queued);
	__sync_fetch_and_add(&to->in_device, add->in_device);
}

#include "count.h"
#include "event.h"
#include "target.h"
#include "unwind.h"
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

const volatile bool queue_in_latency; /* histograms count from birth, not issue */

#define OPERATION_MASK 0xff /* REQ_OP_MASK */

/* Flags of a request, by numbers that are the same on every kernel. */
enum request_flag {
	FLAG_SYNC = 1 << 8,
	FLAG_META = 1 << 9,
	FLAG_FUA = 1 << 10,
	FLAG_PREFLUSH = 1 << 11,
	FLAG_RAHEAD = 1 << 12,
	FLAG_BACKGROUND = 1 << 13,
};

const enum request_flag *unused_request_flag __attribute__((unused));

/* The kernel's, whose numbers change; only the names count here. */
enum req_flag_bits {
	__REQ_SYNC,
	__REQ_META,
	__REQ_FUA,
	__REQ_PREFLUSH,
	__REQ_RAHEAD,
	__REQ_BACKGROUND,
};

/* A request under way. */
struct request_state {
	u64 id; /* of the stack that made it; 0 while it is not of the target */
	u64 born;
	u64 issued; /* 0 while it is not */
	u64 bytes;
	u64 sector;
	u32 pid; /* thread group */
	u32 tid;
	u32 cpu;
	u32 device;
	u32 operation;
};

/* A request that is complete, where a timeline is asked for. */
struct timeline_event {
	u32 type;
	u32 cpu; /* that it was born on */
	u64 born; /* CLOCK_MONOTONIC, ns, as the next two */
	u64 issued;
	u64 completed;
	u64 id;
	u64 sector; /* the first one, of 512 bytes */
	u64 bytes;
	u32 device; /* as in count_key, as the next one */
	u32 operation;
	u32 pid; /* thread group */
	u32 tid;
};

const struct timeline_event *unused_timeline_event __attribute__((unused));

/* By the address of the request, or before it is known of its first bio. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, u64);
	__type(value, struct request_state);
} requests SEC(".maps");

/* How long requests took: by powers of two of microseconds. */
#define LATENCY_SLOTS 32

struct latency_key {
	u32 device;
	u32 operation; /* without flags */
};

struct latency {
	u64 slots[LATENCY_SLOTS];
};

const struct latency_key *unused_latency_key __attribute__((unused));
const struct latency *unused_latency __attribute__((unused));

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, struct latency_key);
	__type(value, struct latency);
} latencies SEC(".maps");

enum scratch {
	SCRATCH_START,
	SCRATCH_INSERT,
	SCRATCH_ISSUE,
	SCRATCH_MAX,
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SCRATCH_MAX);
	__type(key, u32);
	__type(value, struct stack_scratch);
} blockio_scratch SEC(".maps");

/* The state of a request that is born now, in this task. */
static __always_inline bool born(void *ctx, u32 program, struct request_state *state)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct stack_scratch *scratch;
	struct stack_record *rec;

	if (!target_has(task))
		return false;
	scratch = bpf_map_lookup_elem(&blockio_scratch, &program);
	if (!scratch)
		return false;
	rec = &scratch->record;
	stack_begin(rec, task);
	bpf_get_current_comm(rec->comm, sizeof(rec->comm));
	walk_kernel(ctx, rec);
	if (!skip_user_stack && task_has_user_stack(task))
		walk_user(task, rec, &scratch->walk);
	state->id = stack_intern(rec);
	state->born = bpf_ktime_get_ns();
	state->pid = task->tgid;
	state->tid = task->pid;
	state->cpu = bpf_get_smp_processor_id();
	return true;
}

static __always_inline void remember(u64 key, struct request_state *state)
{
	if (bpf_map_update_elem(&requests, &key, state, BPF_ANY))
		stat_add(STAT_UNFOLLOWED, 1);
}

SEC("tp_btf/block_io_start")
int BPF_PROG(request_start, struct request *rq)
{
	struct request_state state = {};

	if (born(ctx, SCRATCH_START, &state))
		remember((u64)rq, &state);
	return 0;
}

SEC("tp_btf/block_getrq")
int BPF_PROG(bio_start, struct bio *bio)
{
	struct request_state state = {};

	if (born(ctx, SCRATCH_START, &state))
		remember((u64)bio, &state);
	return 0;
}

/*
 * The state of a request that is queued or issued: known by its address, by its
 * first bio, or unknown so far. What is then taken as its birth is not in the
 * submitter's context for sure, so it counts where everybody is the target.
 */
static __always_inline struct request_state *find(void *ctx, u32 program, struct request *rq)
{
	struct request_state first = {}, *state;
	u64 key = (u64)rq, bio = (u64)rq->bio;

	state = bpf_map_lookup_elem(&requests, &key);
	if (state)
		return state;
	state = bio ? bpf_map_lookup_elem(&requests, &bio) : NULL;
	if (state) {
		first = *state;
		bpf_map_delete_elem(&requests, &bio);
	} else if (target != TARGET_ALL || !born(ctx, program, &first)) {
		return NULL;
	}
	remember(key, &first);
	return bpf_map_lookup_elem(&requests, &key);
}

SEC("tp_btf/block_rq_insert")
int BPF_PROG(request_insert, struct request *rq)
{
	find(ctx, SCRATCH_INSERT, rq);
	return 0;
}

static __always_inline u32 operation(struct request *rq)
{
	u32 flags = rq->cmd_flags, operation = flags & OPERATION_MASK;

	if (flags & 1U << bpf_core_enum_value(enum req_flag_bits, __REQ_SYNC))
		operation |= FLAG_SYNC;
	if (flags & 1U << bpf_core_enum_value(enum req_flag_bits, __REQ_META))
		operation |= FLAG_META;
	if (flags & 1U << bpf_core_enum_value(enum req_flag_bits, __REQ_FUA))
		operation |= FLAG_FUA;
	if (flags & 1U << bpf_core_enum_value(enum req_flag_bits, __REQ_PREFLUSH))
		operation |= FLAG_PREFLUSH;
	if (flags & 1U << bpf_core_enum_value(enum req_flag_bits, __REQ_RAHEAD))
		operation |= FLAG_RAHEAD;
	if (flags & 1U << bpf_core_enum_value(enum req_flag_bits, __REQ_BACKGROUND))
		operation |= FLAG_BACKGROUND;
	return operation;
}

SEC("tp_btf/block_rq_issue")
int BPF_PROG(request_issue, struct request *rq)
{
	struct request_state *state = find(ctx, SCRATCH_ISSUE, rq);
	struct gendisk *disk;

	if (!state || state->issued)
		return 0; /* issued again, as the device had no room */
	disk = rq->q->disk;
	state->device = disk ? disk->major << 20 | disk->first_minor : 0;
	state->operation = operation(rq);
	state->bytes = rq->__data_len;
	state->sector = rq->__sector;
	state->issued = bpf_ktime_get_ns();
	return 0;
}

static __always_inline void add_latency(struct request_state *state, u64 now)
{
	struct latency_key key = {
		.device = state->device,
		.operation = state->operation & OPERATION_MASK,
	};
	u64 us = (now - (queue_in_latency ? state->born : state->issued)) / 1000;
	static const struct latency none;
	struct latency *latency;
	u32 slot = 0, i;

	latency = bpf_map_lookup_elem(&latencies, &key);
	if (!latency) {
		bpf_map_update_elem(&latencies, &key, &none, BPF_NOEXIST);
		latency = bpf_map_lookup_elem(&latencies, &key);
		if (!latency)
			return;
	}
	for (i = 1; i < LATENCY_SLOTS && us >> i; i++)
		slot = i;
	__sync_fetch_and_add(&latency->slots[slot & (LATENCY_SLOTS - 1)], 1);
}

static __always_inline void send_event(const struct request_state *state, u64 now)
{
	struct timeline_event event = {
		.type = RECORD_TIMELINE,
		.cpu = state->cpu,
		.born = state->born,
		.issued = state->issued,
		.completed = now,
		.id = state->id,
		.sector = state->sector,
		.bytes = state->bytes,
		.device = state->device,
		.operation = state->operation,
		.pid = state->pid,
		.tid = state->tid,
	};

	event_send(&event, sizeof(event));
}

SEC("tp_btf/block_rq_complete")
int BPF_PROG(request_complete, struct request *rq, int error, unsigned int bytes)
{
	u64 key = (u64)rq, now;
	struct count_value value = { .requests = 1 };
	struct count_key counted = {};
	struct request_state *state;

	state = bpf_map_lookup_elem(&requests, &key);
	if (!state)
		return 0;
	if (bytes < rq->__data_len)
		return 0; /* a part of it */
	if (state->issued) {
		now = bpf_ktime_get_ns();
		value.bytes = state->bytes;
		value.queued = state->issued - state->born;
		value.in_device = now - state->issued;
		counted.id = state->id;
		counted.device = state->device;
		counted.operation = state->operation;
		if (by_thread)
			counted.tid = state->tid;
		if (by_cpu)
			counted.cpu = state->cpu;
		stat_add(STAT_SAMPLES, 1);
		if (timeline)
			send_event(state, now);
		else
			count(&counted, &value);
		add_latency(state, now);
	}
	bpf_map_delete_elem(&requests, &key);
	return 0;
}
