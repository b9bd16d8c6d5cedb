//go:build ignore

// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Page faults: the software events of minor and major faults, counted by the
 * stack that accessed the page and by the page's file. The programs run in the
 * context of the task, after the fault was handled and before the task
 * continues. The latency is known if handle_mm_fault can be traced.
 */

#include "count.h"
#include "event.h"
#include "file.h"
#include "kernel.h"
#include "target.h"
#include "unwind.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

/* The kinds of pages. */
enum page_kind {
	PAGE_UNKNOWN = 0, /* the mapping could not be looked up */
	PAGE_ANONYMOUS = 1,
	PAGE_FILE = 2,
};

/* The key of a count. */
struct count_key {
	u64 id;
	u64 file; /* 0 if the page has no file */
	u64 page; /* of the file, counted from its start; 0 unless asked for */
	u32 tid;
	u16 cpu;
	u16 kind; /* enum page_kind */
};

struct count_value {
	u64 samples;
	u64 minor; /* sum of their periods */
	u64 major;
	u64 latency; /* ns, of samples times their periods; 0 where unknown */
};

static __always_inline void count_add(struct count_value *to, const struct count_value *add)
{
	__sync_fetch_and_add(&to->samples, add->samples);
	__sync_fetch_and_add(&to->minor, add->minor);
	__sync_fetch_and_add(&to->major, add->major);
	__sync_fetch_and_add(&to->latency, add->latency);
}

COUNT_RECORD

char LICENSE[] SEC("license") = "Dual BSD/GPL";

const enum page_kind *unused_page_kind __attribute__((unused));
const struct file_record *unused_file_record __attribute__((unused));
const enum path_end *unused_path_end __attribute__((unused));

/* A fault, for timelines. */
struct timeline_event {
	u32 type;
	u16 kind; /* enum page_kind */
	u16 cpu;
	u64 time; /* CLOCK_MONOTONIC, ns: when it was handled */
	u64 id;
	u64 address;
	u64 file; /* as in count_key */
	u64 offset; /* of the address in the file, in bytes */
	u64 latency; /* ns; 0 where unknown */
	u64 period; /* number of faults that it represents */
	u32 pid; /* thread group */
	u32 tid;
	u32 major;
	u32 pad;
};

const struct timeline_event *unused_timeline_event __attribute__((unused));

const volatile bool skip_kernel_stack;
const volatile bool by_page; /* whether to count pages of a file separately */
const volatile u32 page_shift = 12; /* the kernel's pages have 1 << page_shift bytes */

/* A fault that is being handled, by thread. */
struct fault {
	u64 page;
	u64 since;
};

/* LRU, since a fault that fails is never counted and its entry never used. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, u32);
	__type(value, struct fault);
} faults SEC(".maps");

/*
 * A fault that waits for a page is handled again, and keeps its start time. A fault
 * without registers is the kernel's own, and is not counted.
 */
SEC("fentry/handle_mm_fault")
int BPF_PROG(fault_begin, struct vm_area_struct *vma, unsigned long address, unsigned int flags,
	     struct pt_regs *regs)
{
	struct task_struct *task = current_task();
	struct fault begun = { .page = address >> page_shift };
	struct fault *known;
	u32 tid = task_pid(task);

	if (!regs || !target_has(task))
		return 0;
	known = bpf_map_lookup_elem(&faults, &tid);
	if (known && known->page == begun.page && known->since)
		return 0;
	begun.since = bpf_ktime_get_ns();
	bpf_map_update_elem(&faults, &tid, &begun, BPF_ANY);
	return 0;
}

/* How long the thread's fault has been in progress, in ns; 0 if unknown. */
static __always_inline u64 fault_latency(u32 tid, u64 address)
{
	struct fault *begun = bpf_map_lookup_elem(&faults, &tid);
	u64 since;

	if (!begun || begun->page != address >> page_shift)
		return 0;
	since = begun->since;
	begun->since = 0;
	return since ? bpf_ktime_get_ns() - since : 0;
}

/*
 * Cached mappings. A look-up takes the lock of the address space. If interrupts are
 * disabled, releasing it needs an interrupt, which takes ten microseconds in a
 * virtual machine. So look-ups are repeated only if the address space has changed:
 * the kernel then increments the sequence count of its per-mapping locks. Kernels
 * before 6.4 have no such count, and look up every time.
 */
struct known_mapping {
	u64 epoch;
	u64 start, end;
	u64 file;
	u64 offset; /* of start in the file, in bytes */
	u32 sequence;
	u32 kind;
};

#define KNOWN_MAPPINGS 256
/* Nearby pages share an entry. */
#define KNOWN_SHIFT 21

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, KNOWN_MAPPINGS);
	__type(key, u32);
	__type(value, struct known_mapping);
} known_mappings SEC(".maps");

/* Reads the change counter of mm's mappings; false if there is none. */
static __always_inline bool mm_sequence(struct mm_struct *mm, u32 *sequence)
{
	struct mm_struct___int *older = (void *)mm;

	if (bpf_core_field_exists(mm->mm_lock_seq.sequence))
		*sequence = BPF_CORE_READ(mm, mm_lock_seq.sequence);
	else if (bpf_core_field_exists(older->mm_lock_seq))
		*sequence = BPF_CORE_READ(older, mm_lock_seq);
	else
		return false;
	return true;
}

static long page_of(struct task_struct *task, struct vm_area_struct *vma, struct known_mapping *at)
{
	struct file *file = BPF_CORE_READ(vma, vm_file);

	at->start = BPF_CORE_READ(vma, vm_start);
	at->end = BPF_CORE_READ(vma, vm_end);
	at->kind = file ? PAGE_FILE : PAGE_ANONYMOUS;
	if (file) {
		at->file = file_id(BPF_CORE_READ(file, f_inode), BPF_CORE_READ(file, f_path.dentry),
				   0);
		at->offset = (u64)BPF_CORE_READ(vma, vm_pgoff) << page_shift;
	}
	return 0;
}

/* How to find mappings. */
enum find_by {
	FIND_BY_HELPER, /* bpf_find_vma() */
	/*
	 * In the tree of mappings of kernels before 6.1, for those without the
	 * helper. A fault is counted before the lock of its address space is
	 * released, so the tree does not change.
	 */
	FIND_BY_TREE,
};

/* A balanced tree of this depth exceeds a process's limit of mappings. */
#define MAX_TREE_DEPTH 40

static __always_inline bool find_in_tree(struct task_struct *task, u64 address,
					 struct known_mapping *found)
{
	struct rb_node *node = BPF_CORE_READ(task, mm, mm_rb.rb_node);
	struct vm_area_struct *vma;
	u32 i;

	for (i = 0; i < MAX_TREE_DEPTH && node; i++) {
		vma = (void *)node - bpf_core_field_offset(vma->vm_rb);
		if (address < BPF_CORE_READ(vma, vm_start))
			node = BPF_CORE_READ(node, rb_left);
		else if (address >= BPF_CORE_READ(vma, vm_end))
			node = BPF_CORE_READ(node, rb_right);
		else
			return !page_of(task, vma, found);
	}
	return false;
}

/* Describes a page by its mapping, and the file offset of an address. */
static __always_inline void found_page(const struct known_mapping *at, u64 address,
				       struct count_key *key, u64 *offset)
{
	key->kind = at->kind;
	key->file = at->file;
	*offset = at->kind == PAGE_FILE ? at->offset + (address - at->start) : 0;
	if (by_page)
		key->page = *offset >> page_shift;
}

/*
 * Describes the page at an address of task, which is current, and finds the
 * file offset of the address.
 */
static __always_inline void find_page(struct task_struct *task, u64 epoch, u64 address,
				      enum find_by by, struct count_key *key, u64 *offset)
{
	u32 index = hash_step(epoch, address >> KNOWN_SHIFT) % KNOWN_MAPPINGS;
	struct known_mapping *known = bpf_map_lookup_elem(&known_mappings, &index);
	struct known_mapping found = { .epoch = epoch };
	bool keeps;

	if (!known)
		return;
	keeps = mm_sequence(task_pointer(task, mm), &found.sequence);
	if (keeps && known->epoch == epoch && known->sequence == found.sequence &&
	    address >= known->start && address < known->end) {
		found_page(known, address, key, offset);
		return;
	}
	if (by == FIND_BY_HELPER ? bpf_find_vma(task, address, page_of, &found, 0)
				 : !find_in_tree(task, address, &found))
		return;
	found_page(&found, address, key, offset);
	if (keeps)
		*known = found;
}

/*
 * The fault that a program counts. The BPF stack has no room for it beside the walk of the
 * user stack. A CPU runs one program of an event at a time, so the programs share it.
 */
struct fault_sample {
	struct count_key key;
	u64 address;
	u64 offset; /* of the address in the file, in bytes */
	u64 latency; /* ns */
	u64 period;
	u32 pid;
	u32 tid;
	u32 major;
	u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct fault_sample);
} fault_samples SEC(".maps");

/* Counts the fault in fault_samples, or sends it, with the stack in scratch. */
__noinline int fault_count(void)
{
	u32 zero = 0;
	struct fault_sample *sample = bpf_map_lookup_elem(&fault_samples, &zero);
	struct stack_scratch *scratch = stack_scratch(0);
	struct count_value value;
	struct count_key key;

	if (!sample || !scratch)
		return 0;
	key = sample->key;
	key.id = stack_intern(scratch);
	if (timeline) {
		struct timeline_event event = {
			.type = RECORD_TIMELINE,
			.kind = key.kind,
			.cpu = bpf_get_smp_processor_id(),
			.time = bpf_ktime_get_ns(),
			.id = key.id,
			.address = sample->address,
			.file = key.file,
			.offset = sample->offset,
			.latency = sample->latency,
			.period = sample->period,
			.pid = sample->pid,
			.tid = sample->tid,
			.major = sample->major,
		};

		event_send(&event, sizeof(event));
		return 0;
	}
	if (by_thread)
		key.tid = sample->tid;
	if (by_cpu)
		key.cpu = bpf_get_smp_processor_id();
	value = (struct count_value){
		.samples = 1,
		.minor = sample->major ? 0 : sample->period,
		.major = sample->major ? sample->period : 0,
		.latency = sample->latency * sample->period,
	};
	count(&key, &value);
	return 0;
}

/* Walks the stack of the fault in fault_samples, and counts it. */
static __always_inline int walk_fault(struct bpf_perf_event_data *ctx, enum find_by by)
{
	struct task_struct *task = current_task();
	struct stack_scratch *scratch;
	struct fault_sample *sample;
	struct stack_record *rec;
	u32 zero = 0;

	sample = bpf_map_lookup_elem(&fault_samples, &zero);
	scratch = stack_scratch(0);
	if (!sample || !scratch)
		return 0;
	sample->latency = fault_latency(sample->tid, sample->address);
	rec = &scratch->record;

	stack_begin(rec, task);
	find_page(task, rec->epoch, sample->address, by, &sample->key, &sample->offset);
	bpf_get_current_comm(rec->comm, sizeof(rec->comm));
	if (!skip_kernel_stack && !regs_in_user(ctx))
		walk_kernel(ctx, rec);
	if (!skip_user_stack && task_has_user_stack(task))
		walk_user(ctx, task, scratch);
	return fault_count();
}

SEC("perf_event")
int fault_walk(struct bpf_perf_event_data *ctx)
{
	return walk_fault(ctx, FIND_BY_HELPER);
}

/*
 * A separate program: if the helper is missing, the verifier rejects its callback,
 * even in a branch that is never taken.
 */
SEC("perf_event")
int fault_walk_by_tree(struct bpf_perf_event_data *ctx)
{
	return walk_fault(ctx, FIND_BY_TREE);
}

/*
 * One of the two programs above, to which both kinds of faults jump. As a function, the kernel
 * would verify it once for each kind.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u32);
} fault_walks SEC(".maps");

static __always_inline int fault(struct bpf_perf_event_data *ctx, bool major)
{
	struct task_struct *task = current_task();
	struct fault_sample *sample;
	u32 zero = 0;

	stat_add(major ? STAT_MAJOR_RUNS : STAT_RUNS, 1);
	stat_add(major ? STAT_MAJOR_PERIODS : STAT_PERIODS, ctx->sample_period);
	/* The counters above are compared with those of the perf events. */
	if (!gate_is_open() || !target_has(task))
		return 0;
	sample = bpf_map_lookup_elem(&fault_samples, &zero);
	if (!sample)
		return 0;
	*sample = (struct fault_sample){
		.address = ctx->addr,
		.period = ctx->sample_period,
		.pid = task_tgid(task),
		.tid = task_pid(task),
		.major = major,
	};
	stat_add(STAT_SAMPLES, 1);
	bpf_tail_call(ctx, &fault_walks, 0);
	stat_add(STAT_LOST, 1);
	return 0;
}

SEC("perf_event")
int minor_fault(struct bpf_perf_event_data *ctx)
{
	return fault(ctx, false);
}

SEC("perf_event")
int major_fault(struct bpf_perf_event_data *ctx)
{
	return fault(ctx, true);
}
