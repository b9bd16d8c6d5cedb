/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The few kernel types that the programs touch, instead of a vmlinux.h of a
 * hundred thousand lines: CO-RE moves every field to where the running kernel
 * has it, so only names have to be right here. The size of a number that differs
 * between kernels is looked up, see task_number(): a plain load alone would keep
 * its width. A type with three underscores in its name is another kernel's form of
 * the type before them.
 */
#ifndef FULGUR_KERNEL_H
#define FULGUR_KERNEL_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s16 s16;
typedef __s32 s32;
typedef __s64 s64;
typedef _Bool bool;

#ifndef NULL
#define NULL ((void *)0)
#endif
#define true 1
#define false 0

enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PROG_ARRAY = 3,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_CGROUP_ARRAY = 8,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_ARRAY_OF_MAPS = 12,
	BPF_MAP_TYPE_RINGBUF = 27,
};

enum {
	BPF_ANY = 0,
	BPF_NOEXIST = 1,
};

enum {
	BPF_F_USER_STACK = 1 << 8,
	BPF_F_MMAPABLE = 1 << 10,
};

enum {
	BPF_RB_NO_WAKEUP = 1,
	BPF_RB_FORCE_WAKEUP = 2,
	BPF_RB_AVAIL_DATA = 0,
};

/* task_struct.flags; PF_USER_WORKER is an unused bit before 6.4. */
#define PF_IO_WORKER 0x00000010
#define PF_USER_WORKER 0x00004000
#define PF_KTHREAD 0x00200000

#define USER32_CS 0x23 /* the code segment of 32-bit programs on x86-64 */
#define PSR_MODE32_BIT 0x10
#define TS_COMPAT 0x0002 /* thread_info.status: in a system call of the 32-bit interface */

/* inode.i_mode */
#define S_IFMT 00170000
#define S_IFBLK 0060000
#define S_IFSOCK 0140000

#define AF_UNIX 1
#define AF_INET 2
#define AF_INET6 10

#define EFAULT 14
#define EEXIST 17

/* Context of perf_event programs: layout is UAPI, not relocated. */
#if defined(__TARGET_ARCH_x86)
struct bpf_user_regs {
	u64 r15, r14, r13, r12, rbp, rbx, r11, r10, r9, r8;
	u64 rax, rcx, rdx, rsi, rdi, orig_rax;
	u64 rip, cs, eflags, rsp, ss;
};
#elif defined(__TARGET_ARCH_arm64)
struct bpf_user_regs {
	u64 regs[31];
	u64 sp, pc, pstate;
};
#else
#error "unsupported architecture"
#endif

struct bpf_perf_event_data {
	struct bpf_user_regs regs;
	u64 sample_period;
	u64 addr;
};

#ifdef __bpf__

/* Numbers of helpers; only the names count here. */
enum bpf_func_id {
	BPF_FUNC_get_current_task_btf,
	BPF_FUNC_task_pt_regs,
	BPF_FUNC_copy_from_user_task,
	BPF_FUNC_get_attach_cookie,
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct kernfs_node {
	u64 id;
};

struct cgroup;

struct cgroup_subsys_state {
	struct cgroup *cgroup;
	struct cgroup_subsys_state *parent;
};

struct cgroup_root {
	int hierarchy_id;
};

struct cgroup {
	struct cgroup_subsys_state self;
	struct kernfs_node *kn;
	struct cgroup_root *root;
};

struct css_set {
	struct cgroup *dfl_cgrp;
};

struct thread_struct {
#if defined(__TARGET_ARCH_x86)
	unsigned long sp;
	unsigned long fsbase;
#elif defined(__TARGET_ARCH_arm64)
	struct {
		unsigned long tp_value;
	} uw;
#endif
};

#if defined(__TARGET_ARCH_x86)
struct thread_info {
	u32 status;
};
#endif

/* A user ID in the initial user namespace. */
typedef struct {
	u32 val;
} kuid_t;

struct cred {
	kuid_t euid;
};

struct pid_namespace;

/* The number of a task in a PID namespace. */
struct upid {
	int nr;
	struct pid_namespace *ns;
};

struct pid {
	unsigned int level; /* of the task's own namespace; the initial one has 0 */
	struct upid numbers[]; /* one for each level, up to its own */
};

/* The run queue of a CPU. */
struct rq {
	struct task_struct *curr; /* the one that runs */
};

/* A group of tasks on a run queue. */
struct cfs_rq {
	struct rq *rq;
};

struct sched_entity {
	struct cfs_rq *cfs_rq; /* with group scheduling */
};

struct task_struct {
#if defined(__TARGET_ARCH_x86)
	struct thread_info thread_info;
#endif
	unsigned int __state;
	unsigned int flags;
	int on_cpu; /* a u8 in 7.2 */
	int wake_cpu;
	void *stack;
	struct sched_entity se;
	struct mm_struct *mm;
	struct files_struct *files;
	int pid;
	int tgid;
	struct pid *thread_pid;
	struct task_struct *parent; /* the tracer, if there is one */
	struct task_struct *group_leader;
	u64 start_boottime;
	u64 self_exec_id;
	const struct cred *real_cred;
	char comm[16];
	struct css_set *cgroups;
	struct thread_struct thread;
};

/* Before 5.14. */
struct task_struct___state {
	long state;
};

struct hlist_node {
	struct hlist_node *next;
};

struct hlist_head {
	struct hlist_node *first;
};

struct super_block {
	u32 s_dev;
};

struct inode {
	unsigned short i_mode;
	u32 i_rdev;
	u64 i_ino;
	struct super_block *i_sb;
	struct address_space *i_mapping;
	struct hlist_head i_dentry;
};

struct address_space {
	struct inode *host;
};

/* The head of pages that are managed as one, or a page alone. */
struct folio {
	struct address_space *mapping;
};

struct page {
	unsigned long compound_info;
};

/* Without compound_info, and without struct folio. */
struct page___head {
	unsigned long compound_head;
	struct address_space *mapping;
};

struct qstr {
	u64 hash_len; /* a hash of the directory's address and the name */
	const unsigned char *name;
};

struct dentry {
	struct dentry *d_parent;
	struct qstr d_name;
	struct hlist_node d_alias;
};

/* With a name for the union that d_alias is in. */
struct dentry___d_u {
	union {
		struct hlist_node d_alias;
	} d_u;
};

struct path {
	struct dentry *dentry;
};

struct file {
	struct path f_path;
	struct inode *f_inode;
	void *private_data; /* of a socket's file: a struct socket */
};

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
};

struct files_struct {
	struct fdtable *fdt;
};

struct list_head {
	struct list_head *next, *prev;
};

struct wait_queue_entry {
	void *private; /* the waiting task */
	struct list_head entry;
};

/* The owner of the entries of poll(). */
struct poll_wqueues {
	struct task_struct *polling_task;
};

struct pollfd {
	int fd;
	short events;
	short revents;
};

struct wait_queue_head {
	struct list_head head;
};

struct socket_wq {
	struct wait_queue_head wait;
};

struct in6_addr {
	u8 in6_u[16];
};

struct sock_common {
	u32 skc_daddr;
	u32 skc_rcv_saddr;
	u16 skc_dport; /* big-endian */
	u16 skc_num;
	u16 skc_family;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
};

struct sock {
	struct sock_common __sk_common;
	struct socket_wq *sk_wq;
	u16 sk_type;
	u16 sk_protocol;
};

struct socket {
	struct sock *sk;
};

struct sockaddr_un {
	u16 sun_family;
	char sun_path[108];
};

struct unix_address {
	int len; /* of name */
	struct sockaddr_un name[];
};

struct unix_sock {
	struct unix_address *addr;
	struct sock *peer;
};

struct rb_node {
	struct rb_node *rb_left;
	struct rb_node *rb_right;
};

struct rb_root {
	struct rb_node *rb_node;
};

struct vm_area_struct {
	unsigned long vm_start;
	unsigned long vm_end;
	struct rb_node vm_rb; /* before 6.1 */
	unsigned long vm_pgoff;
	struct file *vm_file;
};

struct seqcount {
	unsigned int sequence;
};

struct mm_struct {
	unsigned long end_code, start_data, end_data, start_stack;
	struct rb_root mm_rb; /* before 6.1 */
	struct file *exe_file;
	struct seqcount mm_lock_seq;
};

/* Its form since Linux 6.4, before it became a sequence counter. */
struct mm_struct___int {
	int mm_lock_seq;
};

struct blkcg {
	struct cgroup_subsys_state css;
};

struct blkcg_gq {
	struct blkcg *blkcg;
};

struct bio_vec {
	struct page *bv_page;
	unsigned int bv_len;
	unsigned int bv_offset;
};

struct bvec_iter {
	unsigned int bi_size;
	unsigned int bi_idx;
};

struct bio {
	u32 bi_opf;
	struct bvec_iter bi_iter;
	void *bi_end_io;
	void *bi_private;
	struct blkcg_gq *bi_blkg;
	struct bio_vec *bi_io_vec;
};

struct kiocb {
	struct file *ki_filp;
};

struct iomap_dio {
	struct kiocb *iocb;
};

struct gendisk {
	int major;
	int first_minor;
};

struct request_queue {
	struct gendisk *disk;
};

struct request {
	struct request_queue *q;
	u32 cmd_flags;
	unsigned int __data_len;
	u64 __sector;
	struct bio *bio;
};

/* For kernels whose request_queue has no disk. */
struct request___rq_disk {
	struct gendisk *rq_disk;
};

/* atomic_long_t */
struct atomic_long {
	s64 counter;
};

struct mutex {
	struct atomic_long owner;
};

struct rw_semaphore {
	struct atomic_long owner;
};

#if defined(__TARGET_ARCH_x86)
struct pt_regs {
	unsigned long bp;
	unsigned long si;
	unsigned long di;
	unsigned long orig_ax; /* the number of the system call */
	unsigned long ip;
	unsigned long sp;
};
#elif defined(__TARGET_ARCH_arm64)
struct pt_regs {
	u64 regs[31];
	u64 sp;
	u64 pc;
	u64 pstate;
	u64 orig_x0; /* the first argument of a system call */
	s32 syscallno;
};
#endif

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

#pragma clang attribute pop

#endif /* __bpf__: tests also compile kernel-independent parts for user space */
#endif
