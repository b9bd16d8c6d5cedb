//go:build ignore

// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Allocations of memory by stack, from uprobes at the functions of allocators.
 *
 * An allocation of at least rate bytes counts as it is. A smaller one is sampled with
 * probability size / rate, independently of all others, and then counts for rate bytes:
 * the expected sums of bytes and of allocations equal the program's own.
 *
 * Functions of an allocator call each other: only the outermost call counts. Functions
 * that may call others have a uretprobe, so that the end of their calls is known.
 *
 * A program for each layout of arguments decides whether an allocation is sampled, and
 * then jumps to the one that walks the stack: a large one, which the kernel verifies once.
 *
 * A program can sample its allocations itself, and report the samples by the USDT probes
 * otel_memory:alloc and otel_memory:free, as OpenTelemetry's eBPF profiler expects them
 * (design-docs/00003-memory-profiling in open-telemetry/opentelemetry-ebpf-profiler).
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
	u32 tid;
	u32 cpu;
};

/* Frees subtract from the live values, modulo 2^64. */
struct count_value {
	u64 objects; /* allocations */
	u64 bytes;
	u64 live_objects; /* not freed */
	u64 live_bytes;
};

static __always_inline void count_add(struct count_value *to, const struct count_value *add)
{
	__sync_fetch_and_add(&to->objects, add->objects);
	__sync_fetch_and_add(&to->bytes, add->bytes);
	__sync_fetch_and_add(&to->live_objects, add->live_objects);
	__sync_fetch_and_add(&to->live_bytes, add->live_bytes);
}

COUNT_RECORD

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Bytes between two samples, on average; less than 2^32. */
const volatile u64 rate = 512 * 1024;

/* Whether to follow allocations until they are freed. */
const volatile bool live;

/* Requests of more bytes than an address space has fail. */
#define MAX_SIZE (1ULL << 56)

/* The programs at functions. */
enum alloc_program {
	ALLOC_LEAF,
	ALLOC_SIZE,
	ALLOC_NEW,
	ALLOC_ALIGNED,
	ALLOC_STORED,
	ALLOC_ARRAY,
	ALLOC_RESIZE,
	ALLOC_RESIZE_ARRAY,
	ALLOC_GO,
	ALLOC_FREE,
	ALLOC_RETURN,
	ALLOC_PROBE,
	ALLOC_PROBE_FREE,
	ALLOC_PROGRAMS,
};

const enum alloc_program *unused_alloc_program __attribute__((unused));

/* Counts of a CPU. */
struct trap_counts {
	u64 hits[ALLOC_PROGRAMS]; /* by the target */
	u64 others; /* by other processes, which map the same files */
	u64 walking; /* ns that walks of stacks took */
	u64 impossible; /* samples that programs reported with impossible numbers */
};

const struct trap_counts *unused_trap_counts __attribute__((unused));

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct trap_counts);
} traps SEC(".maps");

static __always_inline struct trap_counts *traps_here(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&traps, &zero);
}

/* Counts a hit of a program. Returns whether it is one of the target. */
static __always_inline bool hit_by(struct task_struct *task, enum alloc_program by)
{
	struct trap_counts *traps = traps_here();

	if (!gate_is_open() || !traps)
		return false;
	if (!target_has(task)) {
		traps->others++;
		return false;
	}
	traps->hits[by]++;
	return true;
}

/* Allocations that a sample stands for. */
struct weight {
	u64 objects;
	u64 bytes;
};

/* A sampled allocation. */
struct allocation {
	u64 id; /* of the stack */
	struct weight weight; /* objects is 0 if there is none */
	u32 tid;
	u32 cpu;
};

struct address {
	u64 image; /* of the process; see task_image() */
	u64 at;
};

/* A sample whose stack is being walked. */
struct sample {
	struct weight weight;
	struct address address; /* at is 0 if it is known when the function returns */
	u64 reported; /* by the program's own probe, inside of a function */
	/* Memory for alloc_walk, whose stack is full. */
	struct allocation made;
	struct allocation before;
};

/* By slot of scratch memory. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SCRATCH_HITS);
	__type(key, u32);
	__type(value, struct sample);
} samples SEC(".maps");

/* The outermost call of an allocator's function in a thread. */
struct call {
	u64 sp; /* at the entry */
	u64 ip;
	u64 out; /* where the function stores the address, 0 if it returns it */
	u64 old; /* address that the function frees if it succeeds */
	u64 size;
	struct allocation made;
	struct allocation freed;
	u64 tid;
	u64 ra; /* the return address */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, u64); /* address of the task */
	__type(value, struct call);
} calls SEC(".maps");

/* The sampled allocations that were not freed. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct address);
	__type(value, struct allocation);
} allocations SEC(".maps");

/* Whether to measure probes. */
volatile bool probes;

/* How the allocations of a process are known. */
enum sampler {
	BY_FUNCTIONS,
	BY_PROBES, /* all of them */
	TAKEN_OVER, /* by probes, since the first report of a sample */
};

/*
 * The sampler of each process that allocated memory, if there are probes. A process that the map
 * evicts is BY_FUNCTIONS until its next report.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, u64); /* see task_image() */
	__type(value, u32); /* enum sampler */
} samplers SEC(".maps");

/*
 * The threads whose last call of a function did not count, because their process was
 * TAKEN_OVER.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, u64); /* address of the task */
	__type(value, u8);
} switched SEC(".maps");

/* Returns the sampler of a process. If it has none yet, first becomes its sampler. */
static __always_inline u32 sampler_of(u64 image, u32 first)
{
	u32 *known = bpf_map_lookup_elem(&samplers, &image);

	if (known)
		return *known;
	if (!bpf_map_update_elem(&samplers, &image, &first, BPF_NOEXIST))
		return first;
	known = bpf_map_lookup_elem(&samplers, &image); /* another CPU has decided */
	return known ? *known : BY_FUNCTIONS;
}

/*
 * Whether a process reports its allocations by probes. Then its calls of functions do not count.
 * Other processes that map the same files may have no probes.
 */
static __always_inline bool samples_itself(struct task_struct *task)
{
	u32 by = sampler_of(task_image(task), BY_FUNCTIONS);
	u64 thread = bpf_get_current_task();
	u8 *known, yes = 1;

	if (by == BY_PROBES)
		return true;
	known = bpf_map_lookup_elem(&switched, &thread);
	if (by == TAKEN_OVER && !known && bpf_map_update_elem(&switched, &thread, &yes, BPF_ANY))
		stat_add(STAT_UNFOLLOWED, 1);
	if (by == BY_FUNCTIONS && known)
		bpf_map_delete_elem(&switched, &thread);
	return by == TAKEN_OVER;
}

/* Whether the sample that a thread reports counts. A function may have counted it already. */
static __always_inline bool counts_report(struct task_struct *task)
{
	u64 image = task_image(task), thread = bpf_get_current_task();
	u32 by = sampler_of(image, BY_PROBES), next = TAKEN_OVER;

	if (by == BY_FUNCTIONS && bpf_map_update_elem(&samplers, &image, &next, BPF_ANY))
		stat_add(STAT_UNFOLLOWED, 1);
	return by == BY_PROBES || (by == TAKEN_OVER && bpf_map_lookup_elem(&switched, &thread));
}

/* Returns a random number less than n, which is less than 2^32. */
static __always_inline u64 random_below(u64 n)
{
	u64 high = bpf_get_prandom_u32(), low = bpf_get_prandom_u32();

	return (high * n + (low * n >> 32)) >> 32;
}

/* Decides whether to sample an allocation, and of what weight the sample is. */
static __always_inline bool sampled(u64 size, struct weight *w)
{
	u64 least = size ? size : 1; /* so that allocations of nothing count */

	if (least >= rate) {
		w->objects = 1;
		w->bytes = size;
		return true;
	}
	if (random_below(rate) >= least)
		return false;
	/* rate / least, rounded so that the mean is exact. */
	w->objects = rate / least + (random_below(least) < rate % least);
	w->bytes = size ? rate : 0;
	return true;
}

/* Adds allocations of a sample to the counts of its stack; sign is 1 or -1 for live ones. */
static __always_inline void count_live(const struct allocation *a, s64 sign)
{
	struct count_key key = { .id = a->id, .tid = a->tid, .cpu = a->cpu };
	struct count_value value = {
		.live_objects = sign * a->weight.objects,
		.live_bytes = sign * a->weight.bytes,
	};

	count(&key, &value);
}

/* Forgets an allocation. Returns false if it is not known. */
static __always_inline bool forget(const struct address *address, struct allocation *to)
{
	struct allocation *a = bpf_map_lookup_elem(&allocations, address);

	if (!a)
		return false;
	*to = *a;
	if (bpf_map_delete_elem(&allocations, address))
		return false;
	count_live(to, -1);
	return true;
}

/*
 * Remembers an allocation until it is freed. before is scratch memory, for the previous allocation
 * at the address.
 */
static __always_inline void remember(const struct address *address, const struct allocation *a,
				     struct allocation *before)
{
	forget(address, before); /* the kernel skipped its free */
	if (bpf_map_update_elem(&allocations, address, a, BPF_ANY))
		stat_add(STAT_UNFOLLOWED, 1);
	else
		count_live(a, 1);
}

static __always_inline u64 argument(void *ctx, int n)
{
	struct bpf_user_regs *regs = ctx;

#if defined(__TARGET_ARCH_x86)
	return n == 0 ? regs->rdi : n == 1 ? regs->rsi : regs->rdx;
#else
	return regs->regs[n];
#endif
}

static __always_inline u64 returned(void *ctx)
{
#if defined(__TARGET_ARCH_x86)
	return ((struct bpf_user_regs *)ctx)->rax;
#else
	return ((struct bpf_user_regs *)ctx)->regs[0];
#endif
}

/* What a call of a function asks for. */
struct wanted {
	enum alloc_program by;
	u64 size;
	u64 old; /* see struct call */
	u64 out;
	bool leaf; /* whether it calls no other function of an allocator */
};

/*
 * Whether a call was left without a return, such as by an exception. Then later calls have
 * overwritten its return address. On arm64, that is in a register, and nothing tells.
 */
static __always_inline bool was_left(const struct call *call)
{
#if defined(__TARGET_ARCH_x86)
	u64 ra;

	return bpf_probe_read_user(&ra, sizeof(ra), (void *)call->sp) || !same_return(ra, call->ra);
#else
	return false;
#endif
}

/*
 * Whether a call comes from outer, a call in progress of another function of the allocator. Then
 * its stack pointer is lower than outer's, or the same if that function jumped here. If outer is a
 * call of the same function with the same stack pointer, the return of outer was missed.
 */
static __always_inline bool is_nested(const struct call *outer, const struct call *call)
{
	return outer && outer->tid == call->tid && !was_left(outer) &&
	       (call->sp < outer->sp || (call->sp == outer->sp && call->ip != outer->ip));
}

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u32);
} walk SEC(".maps");

static __always_inline int enter(void *ctx, const struct wanted *r)
{
	struct task_struct *task = current_task();
	u64 thread = bpf_get_current_task();
	struct sample *sample;
	struct address old = {};
	struct weight weight = {};
	struct call call = {};
	bool is_sampled = false, waits;
	u32 slot;

	if (!hit_by(task, r->by))
		return 0;
	if (probes && samples_itself(task))
		waits = live && r->old; /* a function may have counted it */
	else {
		if (r->size < MAX_SIZE && (r->size || !r->old)) /* otherwise it only frees */
			is_sampled = sampled(r->size, &weight);
		waits = !r->leaf || (live && is_sampled);
	}
	if (!is_sampled && !waits)
		return 0;
	call.sp = context_sp(ctx);
	call.ip = context_ip(ctx);
	call.tid = task_pid(task);
	if (is_nested(bpf_map_lookup_elem(&calls, &thread), &call))
		return 0;
	if (waits) {
		call.ra = return_address(ctx);
		call.out = r->out;
		call.size = r->size;
		if (live && r->old) {
			/* Afterwards, it is freed, and another thread can get the address. */
			old.image = task_image(task);
			old.at = call.old = r->old;
			forget(&old, &call.freed);
		}
		if (bpf_map_update_elem(&calls, &thread, &call, BPF_ANY))
			stat_add(STAT_UNFOLLOWED, 1);
	}
	if (!is_sampled)
		return 0;
	slot = hit_claim(ctx);
	if (slot == SCRATCH_HITS)
		return 0;
	sample = bpf_map_lookup_elem(&samples, &slot);
	if (sample) {
		sample->weight = weight;
		sample->address.at = 0;
		sample->reported = 0;
		bpf_tail_call(ctx, &walk, 0);
	}
	hit_release(slot);
	return 0;
}

/* malloc(size) of a C library or an allocator that is known. */
SEC("kprobe")
int alloc_leaf(void *ctx)
{
	return enter(ctx,
		     &(struct wanted){ .by = ALLOC_LEAF, .size = argument(ctx, 0), .leaf = true });
}

/* malloc(size), valloc(size), mallocx(size, flags), operator new(size, std::nothrow) */
SEC("kprobe")
int alloc_size(void *ctx)
{
	return enter(ctx, &(struct wanted){ .by = ALLOC_SIZE, .size = argument(ctx, 0) });
}

/* operator new(size) */
SEC("kprobe")
int alloc_new(void *ctx)
{
	return enter(ctx, &(struct wanted){ .by = ALLOC_NEW, .size = argument(ctx, 0) });
}

/* aligned_alloc(alignment, size), memalign(alignment, size) */
SEC("kprobe")
int alloc_aligned(void *ctx)
{
	return enter(ctx, &(struct wanted){ .by = ALLOC_ALIGNED, .size = argument(ctx, 1) });
}

/* posix_memalign(address, alignment, size) */
SEC("kprobe")
int alloc_stored(void *ctx)
{
	return enter(ctx, &(struct wanted){ .by = ALLOC_STORED,
					    .size = argument(ctx, 2),
					    .out = argument(ctx, 0) });
}

/* The size of an array. If it overflows, the request fails. */
static __always_inline u64 array_size(u64 n, u64 size)
{
	if (n >> 32 || size >> 32) {
		if (n && size > MAX_SIZE / n)
			return MAX_SIZE;
	}
	return n * size;
}

/* calloc(n, size) */
SEC("kprobe")
int alloc_array(void *ctx)
{
	return enter(ctx,
		     &(struct wanted){ .by = ALLOC_ARRAY,
				       .size = array_size(argument(ctx, 0), argument(ctx, 1)) });
}

/* realloc(old, size), rallocx(old, size, flags) */
SEC("kprobe")
int alloc_resize(void *ctx)
{
	return enter(ctx, &(struct wanted){ .by = ALLOC_RESIZE,
					    .size = argument(ctx, 1),
					    .old = argument(ctx, 0) });
}

/* reallocarray(old, n, size) */
SEC("kprobe")
int alloc_resize_array(void *ctx)
{
	return enter(ctx, &(struct wanted){ .by = ALLOC_RESIZE_ARRAY,
					    .size = array_size(argument(ctx, 1), argument(ctx, 2)),
					    .old = argument(ctx, 0) });
}

/* runtime.mallocgc(size, type, needzero) of Go, whose first argument is in AX or R0. */
SEC("kprobe")
int alloc_go(void *ctx)
{
	return enter(ctx, &(struct wanted){ .by = ALLOC_GO, .size = returned(ctx), .leaf = true });
}

#define ARGUMENTS 3 /* of a probe; a place has no other fields */

enum probe_limits {
	PROBE_ARGUMENTS = ARGUMENTS,
};

const enum probe_limits *unused_probe_limits __attribute__((unused));

/* An argument of the probe at which a run is that claimed a slot. */
static __always_inline u64 probe_argument(void *ctx, u32 slot, u32 n)
{
	u32 place = cookie_of(ctx, current_task());

	return field_number(slot, place * ARGUMENTS + n);
}

/* Reads a sample that a program reports. Returns false if the numbers are impossible. */
static __always_inline bool read_sample(void *ctx, u32 slot, struct sample *to)
{
	u64 size = probe_argument(ctx, slot, 1), bytes = probe_argument(ctx, slot, 2);

	to->address.image = task_image(current_task());
	to->address.at = probe_argument(ctx, slot, 0);
	to->reported = 1;
	to->weight.bytes = bytes;
	to->weight.objects = 1;
	if (size >= MAX_SIZE || bytes >= MAX_SIZE)
		return false;
	if (!size || bytes <= size)
		return true;
	/* bytes / size, rounded so that the mean is exact. */
	to->weight.objects = bytes / size;
	if (size >> 32 == 0)
		to->weight.objects += random_below(size) < bytes % size;
	return true;
}

/* otel_memory:alloc(address, size, bytes): the sample stands for this many bytes. */
SEC("kprobe")
int alloc_probe(void *ctx)
{
	struct task_struct *task = current_task();
	struct trap_counts *traps;
	struct sample *sample;
	u32 slot;

	if (!hit_by(task, ALLOC_PROBE) || !counts_report(task))
		return 0;
	slot = hit_claim(ctx);
	if (slot == SCRATCH_HITS)
		return 0;
	sample = bpf_map_lookup_elem(&samples, &slot);
	traps = traps_here();
	if (sample && read_sample(ctx, slot, sample))
		bpf_tail_call(ctx, &walk, 0);
	else if (traps)
		traps->impossible++;
	hit_release(slot);
	return 0;
}

/* The slot that this run claimed before it jumped here. */
static __always_inline u32 slot_of(void *ctx)
{
	struct field_context *c;
	u32 slot;

	for (slot = SCRATCH_HIT; slot < SCRATCH_HITS; slot++) {
		c = field_context(slot);
		if (c && c->ctx == (u64)ctx)
			return *(volatile u64 *)&c->slot;
	}
	return SCRATCH_HITS;
}

static __always_inline void take(struct stack_scratch *scratch, u32 cpu, u64 id,
				 const struct weight *weight, struct allocation *made)
{
	struct count_key key = { .id = id };
	struct count_value value = { .objects = weight->objects, .bytes = weight->bytes };

	if (by_thread)
		key.tid = scratch->record.tid;
	if (by_cpu)
		key.cpu = cpu;
	count(&key, &value);
	if (!made)
		return;
	made->tid = key.tid;
	made->cpu = key.cpu;
	made->id = id;
	made->weight = *weight;
}

static __always_inline void walk_in(void *ctx, struct task_struct *task, u32 slot)
{
	struct stack_scratch *scratch = stack_scratch(slot);
	struct sample *sample = bpf_map_lookup_elem(&samples, &slot);
	u64 thread = bpf_get_current_task(), id;
	struct call *call = NULL;
	u32 cpu = bpf_get_smp_processor_id();

	if (!scratch || !sample)
		return;
	stat_add(STAT_SAMPLES, sample->weight.objects);
	id = hit_stack(ctx, task, scratch, sample->reported ? INSIDE_FUNCTION : IN_PROGRAM);
	if (live && sample->address.at) {
		take(scratch, cpu, id, &sample->weight, &sample->made);
		remember(&sample->address, &sample->made, &sample->before);
		return;
	}
	if (live) {
		call = bpf_map_lookup_elem(&calls, &thread);
		if (call && (call->tid != scratch->record.tid || call->sp != context_sp(ctx)))
			call = NULL;
	}
	take(scratch, cpu, id, &sample->weight, call ? &call->made : NULL);
}

/* Walks the stack of a sampled allocation. The programs above jump here. */
SEC("kprobe")
int alloc_walk(void *ctx)
{
	u64 since = bpf_ktime_get_ns();
	struct trap_counts *traps = traps_here();
	u32 slot = slot_of(ctx);

	if (slot == SCRATCH_HITS)
		return 0;
	walk_in(ctx, current_task(), slot);
	hit_release(slot);
	if (traps)
		traps->walking += bpf_ktime_get_ns() - since;
	return 0;
}

/* Follows the memory of a call that returns. */
static __always_inline void follow(void *ctx, struct task_struct *task, const struct call *call)
{
	struct address address = { .image = task_image(task) };
	u64 result = returned(ctx);
	struct allocation before;

	if (!call->out)
		address.at = result;
	else if ((u32)result || bpf_probe_read_user(&address.at, 8, (void *)call->out))
		address.at = 0;
	if (address.at) {
		if (call->made.weight.objects)
			remember(&address, &call->made, &before);
	} else if (call->freed.weight.objects && call->size) {
		/* There is no room for a larger one: the old one remains. */
		address.at = call->old;
		remember(&address, &call->freed, &before);
	}
}

/* At the return of the outermost call. sp is the stack pointer at its entry. */
static __always_inline int leave(void *ctx, u64 sp, bool at_instruction)
{
	struct task_struct *task = current_task();
	u64 thread = bpf_get_current_task();
	struct call *call;

	if (!hit_by(task, ALLOC_RETURN))
		return 0;
	call = bpf_map_lookup_elem(&calls, &thread);
	if (!call || call->tid != task_pid(task) || call->sp != sp)
		return 0;
	/*
	 * With another return address, another function returns from the place of the call, which
	 * was left without a return.
	 */
	if (live && (!at_instruction || same_return(return_address(ctx), call->ra)))
		follow(ctx, task, call);
	bpf_map_delete_elem(&calls, &thread);
	return 0;
}

/* At a return instruction of a function. */
SEC("kprobe")
int alloc_return(void *ctx)
{
	return leave(ctx, context_sp(ctx), true);
}

/* After the return of a function, by a uretprobe. */
SEC("kprobe")
int alloc_uretprobe(void *ctx)
{
	return leave(ctx, context_sp(ctx) - RETURN_SIZE, false);
}

/* Forgets memory that is freed, by a program for that. */
static __always_inline void release(u64 at, enum alloc_program by)
{
	struct task_struct *task = current_task();
	struct address address = { .at = at };
	struct allocation freed;

	/* Also in threads outside the target: they can free memory of a thread in it. */
	hit_by(task, by);
	if (!at)
		return;
	address.image = task_image(task);
	forget(&address, &freed);
}

/* free(address) */
SEC("kprobe")
int alloc_free(void *ctx)
{
	if (gate_is_open())
		release(argument(ctx, 0), ALLOC_FREE);
	return 0;
}

/* otel_memory:free(address) */
SEC("kprobe")
int alloc_probe_free(void *ctx)
{
	u32 slot;
	u64 at;

	if (!gate_is_open())
		return 0;
	slot = hit_claim(ctx);
	if (slot == SCRATCH_HITS)
		return 0;
	at = probe_argument(ctx, slot, 0);
	hit_release(slot);
	release(at, ALLOC_PROBE_FREE);
	return 0;
}

static __always_inline void snapshot_take(struct stack_scratch *scratch, const struct snapshot *s)
{
	stack_intern_as(scratch, s->weight);
}
