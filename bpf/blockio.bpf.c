//go:build ignore

// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Requests to block devices, by the stack and the task that made them. Both are
 * recorded when a request is created, in the submitter's context. Often a
 * kernel worker issues it to the device, and an interrupt completes it.
 *
 * Kernels since 6.5 report new requests (block_io_start). Older ones report the
 * first bio of a request (block_getrq), and the two are matched when the
 * request is queued or issued. A request that is first seen there, such as a
 * flush, counts as created there.
 *
 * The file of a request is found by its first page if that is cached, or by the
 * call that made it for file systems that bypass the cache. The bytes of merged
 * requests and bios belong to the request.
 *
 * A request is inserted, issued and completed in this order, but on any CPU,
 * and completion is often in an interrupt. Only creation walks stacks. Each
 * program that does so has its own scratch, since the kernel never runs a
 * program twice at the same time on a CPU.
 */

enum scratch {
	SCRATCH_START,
	SCRATCH_INSERT,
	SCRATCH_ISSUE,
	SCRATCH_MAX,
};
#define SCRATCHES SCRATCH_MAX

#include "count.h"
#include "event.h"
#include "file.h"
#include "histogram.h"
#include "kernel.h"
#include "target.h"
#include "unwind.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

/* The key of a count. */
struct count_key {
	u64 id;
	u64 file; /* that it reads or writes; 0 if unknown */
	u64 cgroup; /* that wrote what is written back; 0 if the kernel keeps none */
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

COUNT_RECORD

char LICENSE[] SEC("license") = "Dual BSD/GPL";

const volatile bool queue_in_latency; /* histograms count from creation, not issue */

#define OPERATION_READ 0
#define OPERATION_WRITE 1
#define OPERATION_FLUSH 2
#define OPERATION_ZONE_APPEND 7

/* Flags of a request. The numbers are the same on every kernel. */
enum request_flag {
	OPERATION_MASK = 0xff, /* REQ_OP_MASK: bits that are not flags */
	FLAG_SYNC = 1 << 8,
	FLAG_META = 1 << 9,
	FLAG_FUA = 1 << 10,
	FLAG_PREFLUSH = 1 << 11,
	FLAG_RAHEAD = 1 << 12,
	FLAG_BACKGROUND = 1 << 13,
	FLAG_SWAP = 1 << 14,
	FLAG_FAILED = 1 << 15, /* the device reported an error */
};

const enum request_flag *unused_request_flag __attribute__((unused));

/* The kernel's flags. Their numbers change; only the names count here. */
enum req_flag_bits {
	__REQ_SYNC,
	__REQ_META,
	__REQ_FUA,
	__REQ_PREFLUSH,
	__REQ_RAHEAD,
	__REQ_BACKGROUND,
	__REQ_SWAP,
};

/* A request in flight. */
struct request_state {
	u64 id; /* of the stack that made it; 0 if it is the kernel's own */
	u64 file;
	u64 cgroup;
	u64 born;
	u64 issued; /* 0 if not issued */
	u64 bytes;
	u64 sector;
	u32 pid; /* thread group */
	u32 tid;
	u32 cpu;
	u32 device;
	u32 operation;
};

const struct request_state *unused_request_state __attribute__((unused));

/* A completed request, for timelines. */
struct timeline_event {
	u32 type;
	u32 cpu; /* that it was born on */
	u64 born; /* CLOCK_MONOTONIC, ns, as the next two */
	u64 issued;
	u64 completed;
	u64 id;
	u64 file; /* as in count_key */
	u64 sector; /* the first one, of 512 bytes */
	u64 bytes;
	u32 device; /* as in count_key, as the next one */
	u32 operation;
	u32 pid; /* thread group */
	u32 tid;
};

const struct timeline_event *unused_timeline_event __attribute__((unused));

/* Keyed by the request, or by its first bio before the request is known. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, u64);
	__type(value, struct request_state);
} requests SEC(".maps");

struct latency_key {
	u32 device;
	u32 operation; /* without flags */
};

const struct latency_key *unused_latency_key __attribute__((unused));

/* User space sets the size. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct latency_key);
	__type(value, struct histogram);
} latencies SEC(".maps");

u64 unplaced; /* requests whose histogram had no room */

/* Completes the bios of file systems that bypass the page cache. */
extern void iomap_dio_bio_end_io __ksym __weak;
/* Completes a part split off a bio; the private word is that bio. */
extern void bio_chain_endio __ksym __weak;

/* How many levels of split bios to follow. */
#define MAX_SPLITS 3

/* The file of a bio that bypasses the page cache, if known. */
static __always_inline struct file *direct_file(struct bio *bio)
{
	struct iomap_dio *dio;
	int i;

	for (i = 0; i < MAX_SPLITS && &bio_chain_endio &&
		    BPF_CORE_READ(bio, bi_end_io) == &bio_chain_endio;
	     i++)
		bio = BPF_CORE_READ(bio, bi_private);
	if (!&iomap_dio_bio_end_io || BPF_CORE_READ(bio, bi_end_io) != &iomap_dio_bio_end_io)
		return NULL;
	dio = BPF_CORE_READ(bio, bi_private);
	return BPF_CORE_READ(dio, iocb, ki_filp);
}

#define MAPPING_FLAGS 3 /* of memory that does not belong to a file */

/* Maximum number of address bits for the struct pages of the largest folio. */
#define FOLIO_ADDRESS_BITS 40

/*
 * The head of page's folio, which is page itself unless bit 0 is set. compound_head
 * then contains the head's address. compound_info may contain a mask instead, to be
 * applied to the page's own address; no struct page has an address of the form of
 * such a mask.
 */
static __always_inline void *page_head(struct page *page)
{
	struct page___head *old = (void *)page;
	u64 info = 0, below;

	if (bpf_core_field_exists(page->compound_info))
		info = BPF_CORE_READ(page, compound_info);
	else if (bpf_core_field_exists(old->compound_head))
		info = BPF_CORE_READ(old, compound_head);
	if (!(info & 1))
		return page;
	info &= ~1ULL;
	below = ~info;
	if (below >> FOLIO_ADDRESS_BITS == 0 && (below & (below + 1)) == 0)
		return (void *)((u64)page & info);
	return (void *)info;
}

/* The mapping of a folio, given its head. */
static __always_inline struct address_space *page_mapping(void *head)
{
	struct page___head *page = head;
	struct folio *folio = head;

	if (bpf_core_field_exists(folio->mapping))
		return BPF_CORE_READ(folio, mapping);
	return BPF_CORE_READ(page, mapping);
}

/*
 * The inode whose cached page is a bio's first page. Pages without a mapping may
 * have other data in the field, so the result must point back.
 */
static __always_inline struct inode *cached_inode(struct bio *bio)
{
	struct bio_vec *first = BPF_CORE_READ(bio, bi_io_vec) + BPF_CORE_READ(bio, bi_iter.bi_idx);
	struct page *page = BPF_CORE_READ(first, bv_page);
	struct address_space *mapping = page ? page_mapping(page_head(page)) : NULL;
	struct inode *inode;

	if (!mapping || (unsigned long)mapping & MAPPING_FLAGS)
		return NULL;
	inode = BPF_CORE_READ(mapping, host);
	return BPF_CORE_READ(inode, i_mapping) == mapping ? inode : NULL;
}

/* A name of an inode in use. */
static __always_inline struct dentry *inode_name(struct inode *inode)
{
	struct hlist_node *alias = BPF_CORE_READ(inode, i_dentry.first);

	if (!alias)
		return NULL;
	if (bpf_core_field_exists(struct dentry, d_alias))
		return (void *)alias - bpf_core_field_offset(struct dentry, d_alias);
	if (bpf_core_field_exists(struct dentry___d_u, d_u.d_alias))
		return (void *)alias - bpf_core_field_offset(struct dentry___d_u, d_u.d_alias);
	return NULL;
}

/* Returns the ID of the file that a bio reads or writes, or 0. */
static __always_inline u64 bio_file(struct bio *bio, u32 program)
{
	struct file *file = direct_file(bio);
	struct dentry *dentry;
	struct inode *inode;

	if (file) {
		inode = BPF_CORE_READ(file, f_inode);
		dentry = BPF_CORE_READ(file, f_path.dentry);
	} else {
		inode = cached_inode(bio);
		dentry = inode ? inode_name(inode) : NULL;
	}
	return inode ? file_id(inode, dentry, program) : 0;
}

/*
 * The control group (v2) to which a bio is charged, or 0. It is the group of the
 * task or, for writeback, of the tasks that dirtied the pages.
 */
static __always_inline u64 bio_cgroup(struct bio *bio)
{
	struct cgroup *cgroup;

	if (!bpf_core_field_exists(bio->bi_blkg))
		return 0;
	cgroup = BPF_CORE_READ(bio, bi_blkg, blkcg, css.cgroup);
	if (!cgroup || BPF_CORE_READ(cgroup, root, hierarchy_id))
		return 0;
	return BPF_CORE_READ(cgroup, kn, id);
}

/* Sets the file and cgroup of a request, given its first bio. */
static __always_inline void describe(struct request_state *state, struct task_struct *task,
				     struct bio *bio, u32 program)
{
	u32 operation;

	if (!bio || !BPF_CORE_READ(bio, bi_iter.bi_size))
		return;
	operation = BPF_CORE_READ(bio, bi_opf) & OPERATION_MASK;
	if (operation != OPERATION_READ && operation != OPERATION_WRITE &&
	    operation != OPERATION_ZONE_APPEND)
		return;
	state->file = bio_file(bio, program);
	if (operation != OPERATION_READ && task_flags(task) & PF_KTHREAD)
		state->cgroup = bio_cgroup(bio);
}

/* The state of a new request of this task, given its first bio. */
static __always_inline bool born(void *ctx, u32 program, struct bio *bio,
				 struct request_state *state)
{
	struct task_struct *task = current_task();
	struct stack_scratch *scratch;
	struct stack_record *rec;

	if (!target_has(task))
		return false;
	scratch = stack_scratch(program);
	if (!scratch)
		return false;
	rec = &scratch->record;
	stack_begin(rec, task);
	bpf_get_current_comm(rec->comm, sizeof(rec->comm));
	walk_kernel(ctx, rec);
	if (!skip_user_stack && task_has_user_stack(task))
		walk_user(ctx, task, scratch);
	state->id = stack_intern(scratch);
	state->born = bpf_ktime_get_ns();
	state->pid = task_tgid(task);
	state->tid = task_pid(task);
	state->cpu = bpf_get_smp_processor_id();
	describe(state, task, bio, program);
	return true;
}

static __always_inline void send_event(const struct request_state *state, u64 completed)
{
	struct timeline_event event = {
		.type = RECORD_TIMELINE,
		.cpu = state->cpu,
		.born = state->born,
		.issued = state->issued,
		.completed = completed,
		.id = state->id,
		.file = state->file,
		.sector = state->sector,
		.bytes = state->bytes,
		.device = state->device,
		.operation = state->operation,
		.pid = state->pid,
		.tid = state->tid,
	};

	event_send(&event, sizeof(event));
}

/*
 * Counts a request that the device had for in_device ns. This is a separate
 * function, so that its variables are not on the stack during a stack walk.
 */
static __noinline void count_request(const struct request_state *state, u64 in_device)
{
	struct count_value value = {
		.requests = 1,
		.bytes = state->bytes,
		.queued = state->issued - state->born,
		.in_device = in_device,
	};
	struct count_key key = {
		.id = state->id,
		.file = state->file,
		.cgroup = state->cgroup,
		.device = state->device,
		.operation = state->operation,
		.tid = by_thread ? state->tid : 0,
		.cpu = by_cpu ? state->cpu : 0,
	};

	stat_add(STAT_SAMPLES, 1);
	if (timeline)
		send_event(state, state->issued + in_device);
	else
		count(&key, &value);
}

/*
 * A request at a known address is new. If the address still has an entry, the
 * completion of the old request was missed: tracepoints may miss events while
 * another program attaches or detaches.
 */
static __always_inline void count_abandoned(u64 key)
{
	struct request_state *state = bpf_map_lookup_elem(&requests, &key);

	if (!state || !state->id || !state->issued)
		return;
	stat_add(STAT_UNFINISHED, 1);
	count_request(state, 0);
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
	u64 key = (u64)rq;

	if (!gate_is_open())
		return 0;
	count_abandoned((u64)rq);
	if (born(ctx, SCRATCH_START, rq->bio, &state))
		remember((u64)rq, &state);
	else
		bpf_map_delete_elem(&requests, &key);
	return 0;
}

static __always_inline int bio_born(void *ctx, struct bio *bio)
{
	struct request_state state = {};

	if (gate_is_open() && born(ctx, SCRATCH_START, bio, &state))
		remember((u64)bio, &state);
	return 0;
}

SEC("tp_btf/block_getrq")
int BPF_PROG(bio_start, struct bio *bio)
{
	return bio_born(ctx, bio);
}

/* Before 5.11. */
SEC("tp_btf/block_getrq")
int BPF_PROG(bio_start_queue, struct request_queue *queue, struct bio *bio)
{
	return bio_born(ctx, bio);
}

/*
 * The state of a request that is queued or issued, found by its first bio or its address. A request
 * that is not found counts only if everything is the target: it is unknown when and where it was
 * created. If it is a flush, the kernel made it for one or more flushes that tasks requested. It
 * has no stack, and counts only for the histograms.
 */
static __always_inline struct request_state *find(void *ctx, u32 program, struct request *rq)
{
	struct request_state first = {}, *state;
	u64 key = (u64)rq, bio = (u64)rq->bio;

	state = bio ? bpf_map_lookup_elem(&requests, &bio) : NULL;
	if (state) {
		first = *state;
		bpf_map_delete_elem(&requests, &bio);
		count_abandoned(key);
	} else {
		state = bpf_map_lookup_elem(&requests, &key);
		if (state)
			return state;
		if (target != TARGET_ALL)
			return NULL;
		if ((rq->cmd_flags & OPERATION_MASK) == OPERATION_FLUSH)
			first.born = bpf_ktime_get_ns();
		else if (!born(ctx, program, rq->bio, &first))
			return NULL;
	}
	remember(key, &first);
	return bpf_map_lookup_elem(&requests, &key);
}

/* A request was merged into another one, and will not be completed itself. */
SEC("tp_btf/block_rq_merge")
int BPF_PROG(request_merge, struct request *rq)
{
	u64 key = (u64)rq, bio = (u64)rq->bio;

	if (!gate_is_open())
		return 0;
	if (!bpf_map_delete_elem(&requests, &key) || !bpf_map_delete_elem(&requests, &bio))
		stat_add(STAT_MERGED, 1);
	return 0;
}

SEC("tp_btf/block_rq_insert")
int BPF_PROG(request_insert, struct request *rq)
{
	if (gate_is_open())
		find(ctx, SCRATCH_INSERT, rq);
	return 0;
}

/* The bit of a flag; 0 if the kernel does not have the flag. */
#define req_flag(name)                                                                             \
	(bpf_core_enum_value_exists(enum req_flag_bits, name)                                      \
		 ? 1U << bpf_core_enum_value(enum req_flag_bits, name)                             \
		 : 0)

static __always_inline u32 operation(struct request *rq)
{
	u32 preflush = req_flag(__REQ_PREFLUSH);
	u32 flags = rq->cmd_flags, operation = flags & OPERATION_MASK;

	/* An empty write with a preflush is a request for a flush. */
	if (operation == OPERATION_WRITE && flags & preflush && !rq->__data_len) {
		operation = OPERATION_FLUSH;
		flags &= ~preflush;
	}
	if (flags & req_flag(__REQ_SYNC))
		operation |= FLAG_SYNC;
	if (flags & req_flag(__REQ_META))
		operation |= FLAG_META;
	if (flags & req_flag(__REQ_FUA))
		operation |= FLAG_FUA;
	if (flags & preflush)
		operation |= FLAG_PREFLUSH;
	if (flags & req_flag(__REQ_RAHEAD))
		operation |= FLAG_RAHEAD;
	if (flags & req_flag(__REQ_BACKGROUND))
		operation |= FLAG_BACKGROUND;
	if (flags & req_flag(__REQ_SWAP))
		operation |= FLAG_SWAP;
	return operation;
}

static __always_inline struct gendisk *request_disk(struct request *rq)
{
	struct request___rq_disk *old = (void *)rq;

	if (bpf_core_field_exists(rq->q->disk))
		return rq->q->disk;
	return bpf_core_field_exists(old->rq_disk) ? old->rq_disk : NULL;
}

static __always_inline void issued(struct request_state *state, struct request *rq, u64 time)
{
	struct gendisk *disk = request_disk(rq);

	state->device = disk ? disk->major << 20 | disk->first_minor : 0;
	state->operation = operation(rq);
	state->bytes = rq->__data_len;
	state->sector = rq->__sector;
	state->issued = time;
}

SEC("tp_btf/block_rq_issue")
int BPF_PROG(request_issue, struct request *rq)
{
	struct request_state *state;

	if (!gate_is_open())
		return 0;
	state = find(ctx, SCRATCH_ISSUE, rq);
	/* It may be issued again if the device had no room. */
	if (state && !state->issued)
		issued(state, rq, bpf_ktime_get_ns());
	return 0;
}

static __always_inline void add_latency(struct request_state *state, u64 now)
{
	struct latency_key key = {
		.device = state->device,
		.operation = state->operation & OPERATION_MASK,
	};
	static const struct histogram none;
	struct histogram *latency;

	latency = bpf_map_lookup_elem(&latencies, &key);
	if (!latency) {
		bpf_map_update_elem(&latencies, &key, &none, BPF_NOEXIST);
		latency = bpf_map_lookup_elem(&latencies, &key);
	}
	if (latency)
		histogram_add(latency, now - (queue_in_latency ? state->born : state->issued));
	else
		__sync_fetch_and_add(&unplaced, 1);
}

SEC("tp_btf/block_rq_complete")
int BPF_PROG(request_complete, struct request *rq, int error, unsigned int bytes)
{
	u64 key = (u64)rq, now = bpf_ktime_get_ns();
	struct request_state *state;

	if (!gate_is_open())
		return 0;
	state = bpf_map_lookup_elem(&requests, &key);
	if (!state)
		return 0;
	if (bytes < rq->__data_len)
		return 0; /* a part of the request */
	if (state->issued)
		add_latency(state, now);
	else
		/* A requested flush; the device received the kernel's own. */
		issued(state, rq, state->born);
	if (error)
		state->operation |= FLAG_FAILED;
	if (state->id)
		count_request(state, now - state->issued);
	bpf_map_delete_elem(&requests, &key);
	return 0;
}
