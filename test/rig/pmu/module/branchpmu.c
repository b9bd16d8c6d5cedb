// SPDX-License-Identifier: GPL-2.0-only
/*
 * branchpmu: a PMU for virtual machines without one. It samples by timer, and
 * gives each sample of a process the next window of the branch records that were
 * written to /dev/branchpmu for the process.
 *
 * It is registered twice. As "cpu" it has PERF_TYPE_RAW, which is free on a
 * machine without a PMU, and so also gets the kernel's generic hardware events:
 * profilers use it like a real PMU. As "branchpmu" it has its own type.
 *
 * Real PMUs interrupt by NMI, and so does this one with nmi=1: the timer of
 * each event then runs on another CPU, and sends an NMI to the event's CPU. The
 * NMI can interrupt any code, even code that runs with interrupts disabled.
 *
 * The module cannot be unloaded: in Linux 6.1 a task that had an event points
 * to the event's PMU until it exits. Parameters are changed while no event is
 * open.
 */
#include <linux/cpumask.h>
#include <linux/hrtimer.h>
#include <linux/kprobes.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/perf_event.h>
#include <linux/sched/clock.h>
#include <linux/smp.h>
#include <linux/uaccess.h>
#include <linux/version.h>
#include <linux/vmalloc.h>
#include <asm/apic.h>
#include <asm/irq_regs.h>
#include <asm/nmi.h>

#define NAME "branchpmu"
#define MAX_DEPTH 64 /* records in a window; what Arm's BRBE has at most */
#define MAX_QUEUES 64
#define MAX_QUEUE_BYTES (64 << 20)
#define SLOTS 4 /* events on a CPU at a time, as the counters of a real one */

static bool present;
module_param(present, bool, 0644);
MODULE_PARM_DESC(present, "whether events can be opened");

static bool nmi;
module_param(nmi, bool, 0644);
MODULE_PARM_DESC(nmi, "interrupt by NMI");

static uint depth = 32;
module_param(depth, uint, 0644);
MODULE_PARM_DESC(depth, "records that the hardware has, in caps/branches; 0 refuses branch stacks");

static uint min_period = 50000;
module_param(min_period, uint, 0644);
MODULE_PARM_DESC(min_period, "shortest time between two samples of an event, in ns");

static int (*overflow)(struct perf_event *, struct perf_sample_data *, struct pt_regs *);

/*
 * Queues: the records that user space prepared, one queue for each process.
 * While there are events, queues are only added, so that samples can read
 * them in NMI context without a lock.
 */

/* The header of a write to the device, followed by the records. */
struct queue_header {
	__s32 tgid; /* process of the records; 0: all processes */
	__u32 window; /* records in a sample */
	__u32 repeat; /* start over after the last window, instead of empty samples */
	__u32 pad;
};

struct queue {
	struct queue_header head;
	struct perf_branch_entry *records;
	u32 nr; /* number of records */
	u32 windows;
	atomic_t next; /* window of the next sample */
};

static DEFINE_MUTEX(queue_lock); /* for adding and removing queues */
static struct queue queues[MAX_QUEUES];
static unsigned int nr_queues;
static atomic_t users; /* open events */

static atomic64_t samples, nmis;

static struct queue *current_queue(void)
{
	unsigned int i, n = smp_load_acquire(&nr_queues);

	for (i = 0; i < n; i++)
		if (!queues[i].head.tgid || queues[i].head.tgid == current->tgid)
			return &queues[i];
	return NULL;
}

struct stack {
	struct perf_branch_stack s; /* its last member is an array without size */
	struct perf_branch_entry room[MAX_DEPTH];
};
static DEFINE_PER_CPU(struct stack, stacks);

/* The branch stack of the next sample of the current process. */
static struct perf_branch_stack *next_window(void)
{
	struct stack *stack = this_cpu_ptr(&stacks);
	struct queue *q = current_queue();
	u32 at, n;

	stack->s.nr = 0;
	stack->s.hw_idx = -1ULL;
	if (!q)
		return &stack->s;
	at = (u32)atomic_inc_return(&q->next) - 1;
	if (q->head.repeat)
		at %= q->windows;
	else if (at >= q->windows)
		return &stack->s;
	n = min(q->head.window, q->nr - at * q->head.window);
	memcpy(stack->room, q->records + at * q->head.window, n * sizeof(*stack->room));
	stack->s.nr = n;
	return &stack->s;
}

static int add_queue(struct queue_header head, struct perf_branch_entry *records, u32 nr)
{
	struct queue *q = &queues[nr_queues];

	if (nr_queues == MAX_QUEUES)
		return -ENOSPC;
	q->head = head;
	q->records = records;
	q->nr = nr;
	q->windows = DIV_ROUND_UP(nr, head.window);
	atomic_set(&q->next, 0);
	smp_store_release(&nr_queues, nr_queues + 1);
	return 0;
}

static void reset(void)
{
	while (nr_queues)
		vfree(queues[--nr_queues].records);
	atomic64_set(&samples, 0);
	atomic64_set(&nmis, 0);
}

/* Opening the device with O_TRUNC discards all queues, if no event is open. */
static int dev_open(struct inode *inode, struct file *file)
{
	int err = 0;

	if (!(file->f_flags & O_TRUNC))
		return 0;
	mutex_lock(&queue_lock);
	if (atomic_read(&users))
		err = -EBUSY;
	else
		reset();
	mutex_unlock(&queue_lock);
	return err;
}

/* A write adds a queue: a header, then records. */
static ssize_t dev_write(struct file *file, const char __user *buf, size_t n, loff_t *off)
{
	struct perf_branch_entry *records;
	struct queue_header head;
	size_t size;
	int err;

	if (n <= sizeof(head) || n > MAX_QUEUE_BYTES)
		return -EINVAL;
	size = n - sizeof(head);
	if (copy_from_user(&head, buf, sizeof(head)))
		return -EFAULT;
	if (size % sizeof(*records) || !head.window || head.window > MAX_DEPTH)
		return -EINVAL;
	records = vmalloc(size);
	if (!records)
		return -ENOMEM;
	err = -EFAULT;
	if (!copy_from_user(records, buf + sizeof(head), size)) {
		mutex_lock(&queue_lock);
		err = add_queue(head, records, size / sizeof(*records));
		mutex_unlock(&queue_lock);
	}
	if (err) {
		vfree(records);
		return err;
	}
	return n;
}

/* A read returns the numbers of samples, NMIs and open events, then a line for each queue. */
static ssize_t dev_read(struct file *file, char __user *buf, size_t n, loff_t *off)
{
	static char text[64 * (MAX_QUEUES + 1)]; /* under queue_lock */
	ssize_t ret;
	int len, i;

	mutex_lock(&queue_lock);
	len = scnprintf(text, sizeof(text), "samples %lld nmis %lld events %d\n",
			atomic64_read(&samples), atomic64_read(&nmis), atomic_read(&users));
	for (i = 0; i < nr_queues; i++)
		len += scnprintf(text + len, sizeof(text) - len, "process %d windows %u taken %u\n",
				 queues[i].head.tgid, queues[i].windows,
				 (u32)atomic_read(&queues[i].next));
	ret = simple_read_from_buffer(buf, n, off, text, len);
	mutex_unlock(&queue_lock);
	return ret;
}

static const struct file_operations dev_fops = {
	.owner = THIS_MODULE,
	.open = dev_open,
	.write = dev_write,
	.read = dev_read,
	.llseek = default_llseek,
};
static struct miscdevice dev = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = NAME,
	.fops = &dev_fops,
	.mode = 0600,
};

/*
 * Slots: the counters of a CPU. An event is in its slot from add to del, both
 * of which run on the slot's CPU, as do its samples; an NMI comes before or
 * after them, or finds the event stopped.
 */
struct slot {
	struct perf_event *event;
	bool running; /* the timer is running */
	u64 period; /* ns */
	int cpu;
	int index;
	struct hrtimer timer;
	call_single_data_t start; /* starts the timer on another CPU */
};

struct cpu_slots {
	struct slot slot[SLOTS];
	atomic_t pending; /* bits of the slots with a pending NMI */
};
static DEFINE_PER_CPU(struct cpu_slots, cpus);

static struct slot *event_slot(struct perf_event *event)
{
	return &this_cpu_ptr(&cpus)->slot[event->hw.idx];
}

static void event_read(struct perf_event *event)
{
	u64 now = local_clock();

	local64_add(now - local64_xchg(&event->hw.prev_count, now), &event->count);
}

static bool wanted(struct perf_event *event, struct pt_regs *regs)
{
	return regs && !(event->attr.exclude_user && user_mode(regs)) &&
	       !(event->attr.exclude_kernel && !user_mode(regs));
}

/* Takes a sample of the slot's event, on its CPU. */
static void sample(struct slot *slot, struct pt_regs *regs)
{
	struct perf_event *event = READ_ONCE(slot->event);
	struct perf_sample_data data;

	if (!event || (event->hw.state & PERF_HES_STOPPED))
		return;
	event_read(event);
	if (!wanted(event, regs))
		return;
	atomic64_inc(&samples);
	perf_sample_data_init(&data, 0, event->hw.last_period);
	if (has_branch_stack(event)) {
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 8, 0)
		perf_sample_save_brstack(&data, event, next_window(), NULL);
#else
		data.br_stack = next_window();
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 0, 0)
		data.sample_flags |= PERF_SAMPLE_BRANCH_STACK;
#endif
#endif
	}
	if (overflow(event, &data, regs)) {
		/* Throttled: the core calls start to continue. */
		event->hw.state |= PERF_HES_STOPPED;
		WRITE_ONCE(slot->running, false);
	}
}

static enum hrtimer_restart tick(struct hrtimer *timer)
{
	struct slot *slot = container_of(timer, struct slot, timer);

	if (READ_ONCE(slot->running)) {
		if (!nmi)
			sample(slot, get_irq_regs());
		else if (!atomic_fetch_or(1 << slot->index, &per_cpu(cpus, slot->cpu).pending))
			apic->send_IPI(slot->cpu, NMI_VECTOR);
	}
	if (!READ_ONCE(slot->running))
		return HRTIMER_NORESTART;
	hrtimer_forward_now(timer, ns_to_ktime(READ_ONCE(slot->period)));
	return HRTIMER_RESTART;
}

static int on_nmi(unsigned int type, struct pt_regs *regs)
{
	struct cpu_slots *cpu = this_cpu_ptr(&cpus);
	unsigned int pending = atomic_xchg(&cpu->pending, 0);
	int i;

	if (!pending)
		return NMI_DONE;
	atomic64_inc(&nmis);
	for (i = 0; i < SLOTS; i++)
		if (pending & (1 << i))
			sample(&cpu->slot[i], regs);
	return NMI_HANDLED;
}

static void start_timer(void *info)
{
	struct slot *slot = info;

	hrtimer_start(&slot->timer, ns_to_ktime(READ_ONCE(slot->period)),
		      HRTIMER_MODE_REL_PINNED_HARD);
}

static void event_start(struct perf_event *event, int flags)
{
	struct slot *slot = event_slot(event);

	local64_set(&event->hw.prev_count, local_clock());
	event->hw.state = 0;
	if (!is_sampling_event(event))
		return;
	WRITE_ONCE(slot->period, max_t(u64, min_period, event->hw.sample_period));
	WRITE_ONCE(slot->running, true);
	if (nmi) {
		int other = cpumask_any_but(cpu_online_mask, slot->cpu);

		/* -EBUSY: an earlier call is about to start the timer anyway. */
		if (other < nr_cpu_ids &&
		    smp_call_function_single_async(other, &slot->start) != -ENXIO)
			return;
	}
	start_timer(slot);
}

static void event_stop(struct perf_event *event, int flags)
{
	WRITE_ONCE(event_slot(event)->running, false);
	if (!(event->hw.state & PERF_HES_STOPPED))
		event_read(event);
	event->hw.state = PERF_HES_STOPPED | PERF_HES_UPTODATE;
}

static int event_add(struct perf_event *event, int flags)
{
	struct cpu_slots *cpu = this_cpu_ptr(&cpus);
	int i;

	for (i = 0; i < SLOTS && cpu->slot[i].event; i++)
		;
	if (i == SLOTS)
		return -EAGAIN;
	event->hw.idx = i;
	event->hw.state = PERF_HES_STOPPED | PERF_HES_UPTODATE;
	WRITE_ONCE(cpu->slot[i].event, event);
	if (flags & PERF_EF_START)
		event_start(event, flags);
	perf_event_update_userpage(event);
	return 0;
}

static void event_del(struct perf_event *event, int flags)
{
	event_stop(event, PERF_EF_UPDATE);
	WRITE_ONCE(event_slot(event)->event, NULL);
}

static void event_destroy(struct perf_event *event)
{
	atomic_dec(&users);
}

static int event_init(struct perf_event *event)
{
	struct hw_perf_event *hw = &event->hw;

	if (!present)
		return -ENOENT;
	if (event->attr.type == PERF_TYPE_HARDWARE) {
		if (event->attr.config != PERF_COUNT_HW_CPU_CYCLES)
			return -ENOENT;
	} else if (event->attr.type != event->pmu->type) {
		return -ENOENT;
	}
	if (has_branch_stack(event) && !depth)
		return -EOPNOTSUPP;
	mutex_lock(&queue_lock);
	atomic_inc(&users);
	mutex_unlock(&queue_lock);
	event->destroy = event_destroy;
	/* A cycle is a nanosecond, so that frequencies are periods. */
	if (is_sampling_event(event) && event->attr.freq) {
		hw->sample_period = NSEC_PER_SEC / event->attr.sample_freq;
		hw->last_period = hw->sample_period;
		local64_set(&hw->period_left, hw->sample_period);
		event->attr.sample_period = hw->sample_period;
		event->attr.freq = 0;
	}
	return 0;
}

static ssize_t branches_show(struct device *device, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%u\n", depth);
}
static DEVICE_ATTR_RO(branches);
static struct attribute *caps_attrs[] = { &dev_attr_branches.attr, NULL };
static const struct attribute_group caps_group = { .name = "caps", .attrs = caps_attrs };

PMU_FORMAT_ATTR(event, "config:0-63");
static struct attribute *format_attrs[] = { &format_attr_event.attr, NULL };
static const struct attribute_group format_group = { .name = "format", .attrs = format_attrs };
static const struct attribute_group *groups[] = { &caps_group, &format_group, NULL };

#ifndef PERF_PMU_CAP_HETEROGENEOUS_CPUS
#define PERF_PMU_CAP_HETEROGENEOUS_CPUS 0
#endif

#define PMU                                                                                        \
	{                                                                                          \
		/* Otherwise, in 6.1, only one PMU could have task events. */                      \
		.capabilities = PERF_PMU_CAP_HETEROGENEOUS_CPUS,                                   \
		.module = THIS_MODULE,                                                             \
		.attr_groups = groups,                                                             \
		.task_ctx_nr = perf_hw_context,                                                    \
		.event_init = event_init,                                                          \
		.add = event_add,                                                                  \
		.del = event_del,                                                                  \
		.start = event_start,                                                              \
		.stop = event_stop,                                                                \
		.read = event_read,                                                                \
	}

static struct pmu cpu_pmu = PMU;
static struct pmu own_pmu = PMU;

static void set_up_timer(struct slot *slot)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 15, 0)
	hrtimer_setup(&slot->timer, tick, CLOCK_MONOTONIC, HRTIMER_MODE_REL_PINNED_HARD);
#else
	hrtimer_init(&slot->timer, CLOCK_MONOTONIC, HRTIMER_MODE_REL_PINNED_HARD);
	slot->timer.function = tick;
#endif
}

static void init_slots(void)
{
	int cpu, i;

	for_each_possible_cpu (cpu) {
		for (i = 0; i < SLOTS; i++) {
			struct slot *slot = &per_cpu(cpus, cpu).slot[i];

			slot->cpu = cpu;
			slot->index = i;
			set_up_timer(slot);
			slot->start.func = start_timer;
			slot->start.info = slot;
		}
	}
}

/*
 * perf_event_overflow is not exported to modules, and neither is
 * kallsyms_lookup_name, which could find it. A kprobe finds it by its name.
 */
static int find_overflow(void)
{
	struct kprobe probe = { .symbol_name = "kallsyms_lookup_name" };
	unsigned long (*lookup)(const char *);
	int err = register_kprobe(&probe);

	if (err)
		return err;
	lookup = (void *)probe.addr;
	unregister_kprobe(&probe);
	overflow = (void *)lookup("perf_event_overflow");
	return overflow ? 0 : -ENOENT;
}

static int __init branchpmu_init(void)
{
	int err = find_overflow();

	if (err)
		return err;
	init_slots();
	err = misc_register(&dev);
	if (err)
		return err;
	err = register_nmi_handler(NMI_LOCAL, on_nmi, 0, NAME);
	if (err)
		goto no_nmi;
	err = perf_pmu_register(&cpu_pmu, "cpu", PERF_TYPE_RAW);
	if (err)
		goto no_cpu;
	err = perf_pmu_register(&own_pmu, NAME, -1);
	if (err)
		goto no_own;
	return 0;
no_own:
	perf_pmu_unregister(&cpu_pmu);
no_cpu:
	unregister_nmi_handler(NMI_LOCAL, NAME);
no_nmi:
	misc_deregister(&dev);
	return err;
}

module_init(branchpmu_init);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("PMU with prepared branch records, for tests");
