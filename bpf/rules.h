/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Rules: which processes of the target are measured. A rule is a bit of a word. It tests up to
 * three properties of a process: its user, its group (its cgroup, which leads to its unit, its
 * container and its pod) and its program. A table for each property has the rules that match, so
 * user space compares names, and a sample costs a lookup in each table that is in use.
 *
 * User space fills the tables of groups and programs when it meets a new one: few are ever new,
 * although processes are. Until then, a sample of a process that they decide is taken, and its
 * stack says what is known (struct rule_match), for user space to decide later.
 *
 * Probes run this in any context, including NMI. User space alone writes the LRU tables, whose
 * lookups take no locks.
 */
#ifndef FULGUR_RULES_H
#define FULGUR_RULES_H

#include "hash.h"
#include "kernel.h"
#include "record.h"
#include "task.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

/* The properties that any rule tests. */
const volatile bool rules_test_user;
const volatile bool rules_test_group;
const volatile bool rules_test_program;

/* Whether the key of a group is the image of a process; see rules_group(). */
const volatile bool rules_group_by_image;

/* The rules that include processes and those that exclude them. Without the former, all are
 * included. */
const volatile u64 rules_include;
const volatile u64 rules_exclude;

/* The rules that lower the rate of samples. */
const volatile u64 rules_slow;

/* The rules that do not test a property. */
const volatile u64 rules_any_user;
const volatile u64 rules_any_group;
const volatile u64 rules_any_program;

/* Processes are not measured until they are this old, in ns. */
const volatile u64 rules_min_age;

/*
 * Rules that match a user. Other users match rules_any_user.
 *
 * User space makes this map and the next ones, which all probes share.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} rules_users SEC(".maps");

/* Rules that match a group. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, u64);
	__type(value, u64);
} rules_groups SEC(".maps");

/* Rules that match a program; see program_key(). */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, u64);
	__type(value, u64);
} rules_programs SEC(".maps");

/* The program of a process, for the time when it has no address space any more. */
struct rule_process {
	u64 start; /* start_boottime, because an ID may be reused */
	u64 program;
};

/* By thread group ID in the initial PID namespace. rules.bpf.c writes it. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct rule_process);
} rules_processes SEC(".maps");

/*
 * Identifies a program by its file and the file's name: a file may have several. 0 for kernel
 * threads, and for a process that tears down its address space.
 */
static __noinline u64 program_key(struct task_struct *task)
{
	struct file *file = BPF_CORE_READ(task, mm, exe_file);
	struct inode *inode;
	u64 key;

	if (!file)
		return 0;
	inode = BPF_CORE_READ(file, f_inode);
	key = hash_step(0, BPF_CORE_READ(inode, i_sb, s_dev));
	key = hash_step(key, BPF_CORE_READ_BITFIELD_PROBED(inode, i_ino));
	key = hash_step(key, BPF_CORE_READ(file, f_path.dentry, d_name.hash_len));
	return key ? key : 1;
}

/*
 * The program of a process. While a process ends, it runs in the kernel without an address space,
 * for a large part of a short life.
 */
static __always_inline u64 rules_program(struct task_struct *task)
{
	u64 key = program_key(task);
	struct rule_process *known;
	u32 id;

	if (key || task_flags(task) & PF_KTHREAD)
		return key;
	id = task_number(task, tgid);
	known = bpf_map_lookup_elem(&rules_processes, &id);
	return known && known->start == process_start(task) ? known->program : 0;
}

/*
 * The group of a process: its cgroup of version 2. On a machine with hierarchies of version 1, that
 * may not be the container's. There, user space decides about each image of a process.
 */
static __always_inline u64 rules_group(struct task_struct *task)
{
	return rules_group_by_image ? process_image(task) : task_cgroup(task);
}

/* The effective user of a process, in the initial user namespace. */
static __always_inline u32 rules_user(struct task_struct *task)
{
	return BPF_CORE_READ(task, group_leader, real_cred, euid.val);
}

enum rule_verdict {
	VERDICT_MEASURE,
	VERDICT_LEAVE,
	VERDICT_OPEN, /* user space has to decide: the rest is in struct rule_match */
};

/*
 * Judges the process of task. In match, it sets the keys that rules need, and rules if open. surely
 * becomes the rules that are known to match.
 */
static __always_inline enum rule_verdict rules_judge(struct task_struct *task,
						     struct rule_match *match, u64 *surely)
{
	u64 may = ~0ULL, must = ~0ULL; /* rules that may match, and those that surely do */
	u64 *matched;

	__builtin_memset(match, 0, sizeof(*match));
	*surely = 0;
	if (rules_min_age && bpf_ktime_get_boot_ns() - process_start(task) < rules_min_age)
		return VERDICT_LEAVE;
	if (rules_test_user) {
		u32 user = rules_user(task);

		matched = bpf_map_lookup_elem(&rules_users, &user);
		may = must = matched ? *matched : rules_any_user;
	}
	if (rules_test_group) {
		match->group = rules_group(task);
		matched = bpf_map_lookup_elem(&rules_groups, &match->group);
		may &= matched ? *matched : ~0ULL;
		must &= matched ? *matched : rules_any_group;
	}
	if (rules_test_program) {
		match->program = rules_program(task);
		matched = bpf_map_lookup_elem(&rules_programs, &match->program);
		if (matched || !match->program) {
			may &= matched ? *matched : rules_any_program;
			must &= matched ? *matched : rules_any_program;
		} else {
			must &= rules_any_program;
		}
	}
	*surely = must;
	if (must & rules_exclude || (rules_include && !(may & rules_include)))
		return VERDICT_LEAVE;
	if (!(may & rules_exclude) && (!rules_include || must & rules_include) &&
	    !((may ^ must) & rules_slow))
		return VERDICT_MEASURE;
	match->rules = may;
	return VERDICT_OPEN;
}

#endif
