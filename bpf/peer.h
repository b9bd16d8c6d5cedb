/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The other ends of sockets. A system call on a socket has its descriptor as the first argument,
 * and poll() has it in memory, but another thread may have put another file there meanwhile. So a
 * thread waits for a socket only if it is in the socket's own queue of waiting threads, which
 * proves it for every system call.
 *
 * Other CPUs may change all that is read here, so every pointer is copied, and may lead nowhere.
 * Whoever frees a socket first wakes the threads in its queue.
 */
#ifndef FULGUR_PEER_H
#define FULGUR_PEER_H

#include "hash.h"
#include "kernel.h"
#include "scratch.h"
#include "task.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

/* Whether waits for sockets with different peers are different waits. */
const volatile bool by_peer;

enum peer_limit {
	PEER_PATH = 104, /* bytes of a path; a longer one is cut */
	PEER_WAITERS = 8, /* waiting threads to look at from each end of the queue */
	PEER_POLLED = 7, /* descriptors of poll() to look at, and a mask for them */
};

const enum peer_limit *unused_peer_limit __attribute__((unused));

enum peer_kind {
	PEER_CONNECTED = 1, /* the address is that of the peer */
	PEER_ANY = 2, /* there is no peer: the address is the socket's own */
	PEER_CLIENT = 3, /* the peer has no address: it connected to the socket's own */
};

const enum peer_kind *unused_peer_kind __attribute__((unused));

/* A peer, or a socket without one. Its ID is its hash. */
struct peer {
	u16 kind; /* enum peer_kind */
	u16 family;
	u16 type;
	u16 protocol;
	u16 port; /* of the address */
	u16 length; /* of path */
	u32 pad;
	u64 address[2]; /* as in memory; IPv4 has 4 bytes */
	u64 path[PEER_PATH / 8]; /* of a Unix socket; zeros after length */
};

const struct peer *unused_peer __attribute__((unused));

/* Known peers by ID. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, u64);
	__type(value, struct peer);
} peers SEC(".maps");

u64 peers_lost; /* waits whose peer did not fit into the map */

/* Like other scratch memory, one for each program that may be interrupted by the others. */
struct peer_scratch {
	struct peer peer;
	struct pollfd polled[PEER_POLLED];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SCRATCHES);
	__type(key, u32);
	__type(value, struct peer_scratch);
} peer_scratches SEC(".maps");

/* The system call that a task is in, or its last one, with two arguments. */
struct task_call {
	u64 number, first, second;
};

static __always_inline struct task_call task_call(struct task_struct *task)
{
	struct pt_regs *regs = task_regs(task);

#if defined(__TARGET_ARCH_x86)
	return (struct task_call){ regs_read(regs, orig_ax), regs_read(regs, di),
				   regs_read(regs, si) };
#else
	return (struct task_call){ regs_read(regs, syscallno), regs_read(regs, orig_x0),
				   regs_read(regs, regs[1]) };
#endif
}

/* Whether a system call is poll() or ppoll(). */
static __always_inline bool call_polls(u64 number)
{
#if defined(__TARGET_ARCH_x86)
	return number == 7 || number == 271;
#else
	return number == 73;
#endif
}

/* The socket with a descriptor of task, or NULL. */
static __always_inline struct sock *task_socket(struct task_struct *task, u32 fd)
{
	struct fdtable *table = BPF_CORE_READ(task, files, fdt);
	struct file **files = BPF_CORE_READ(table, fd), *file = NULL;
	struct socket *socket;

	if (fd >= BPF_CORE_READ(table, max_fds))
		return NULL;
	bpf_probe_read_kernel(&file, sizeof(file), files + fd);
	if ((BPF_CORE_READ(file, f_inode, i_mode) & S_IFMT) != S_IFSOCK)
		return NULL;
	socket = BPF_CORE_READ(file, private_data);
	return BPF_CORE_READ(socket, sk);
}

/* Whether a place in a queue is that of task, which polls or not. */
static __always_inline bool waits_at(struct list_head *at, struct task_struct *task, bool polls)
{
	struct wait_queue_entry *entry =
		(void *)at - bpf_core_field_offset(struct wait_queue_entry, entry);
	void *owner = BPF_CORE_READ(entry, private);

	if (polls)
		owner = BPF_CORE_READ((struct poll_wqueues *)owner, polling_task);
	return owner == task;
}

/* Whether task is in the socket's queue of waiting threads. */
static __always_inline bool waits_for(struct task_struct *task, struct sock *sk, bool polls)
{
	struct list_head *head = (void *)BPF_CORE_READ(sk, sk_wq) +
				 bpf_core_field_offset(struct socket_wq, wait.head);
	struct list_head *first = head, *last = head;
	int i;

	for (i = 0; i < PEER_WAITERS; i++) {
		first = BPF_CORE_READ(first, next);
		last = BPF_CORE_READ(last, prev);
		if (first == head || !first || !last)
			return false;
		if (waits_at(first, task, polls) || waits_at(last, task, polls))
			return true;
	}
	return false;
}

static __always_inline void peer_of_inet(struct peer *p, struct sock *sk)
{
	bool v6 = p->family == AF_INET6;

	p->port = bpf_ntohs(BPF_CORE_READ(sk, __sk_common.skc_dport));
	p->kind = p->port ? PEER_CONNECTED : PEER_ANY;
	if (p->kind == PEER_ANY)
		p->port = BPF_CORE_READ(sk, __sk_common.skc_num);
	if (v6 && p->kind == PEER_CONNECTED)
		BPF_CORE_READ_INTO(&p->address, sk, __sk_common.skc_v6_daddr);
	else if (v6)
		BPF_CORE_READ_INTO(&p->address, sk, __sk_common.skc_v6_rcv_saddr);
	else if (p->kind == PEER_CONNECTED)
		p->address[0] = BPF_CORE_READ(sk, __sk_common.skc_daddr);
	else
		p->address[0] = BPF_CORE_READ(sk, __sk_common.skc_rcv_saddr);
}

static __always_inline void peer_of_unix(struct peer *p, struct sock *sk)
{
	struct sock *other = BPF_CORE_READ((struct unix_sock *)sk, peer);
	struct unix_address *addr = NULL;
	u32 length;

	p->kind = PEER_CONNECTED;
	if (other)
		addr = BPF_CORE_READ((struct unix_sock *)other, addr);
	if (!addr) {
		p->kind = other ? PEER_CLIENT : PEER_ANY;
		addr = BPF_CORE_READ((struct unix_sock *)sk, addr);
	}
	if (!addr)
		return;
	length = BPF_CORE_READ(addr, len) - sizeof(u16); /* without the family */
	if (length > PEER_PATH)
		length = PEER_PATH;
	p->length = length;
	bpf_probe_read_kernel(p->path, length,
			      (void *)addr + bpf_core_field_offset(struct unix_address, name) +
				      sizeof(u16));
}

/*
 * The ID of the peer of the socket with a descriptor if the thread waits for it, else 0. A global
 * function, which the verifier checks once, and which takes no pointers.
 */
__noinline u64 peer_of_descriptor(u64 waiting, u32 fd, bool polls, u32 slot)
{
	struct task_struct *task = (void *)waiting;
	struct peer_scratch *scratch = bpf_map_lookup_elem(&peer_scratches, &slot);
	struct peer *p;
	struct sock *sk;
	u64 id = 1;
	u32 i;

	if (!scratch || !task)
		return 0;
	p = &scratch->peer;
	sk = task_socket(task, fd);
	if (!sk || !waits_for(task, sk, polls))
		return 0;
	__builtin_memset(p, 0, sizeof(*p));
	p->family = BPF_CORE_READ(sk, __sk_common.skc_family);
	p->type = BPF_CORE_READ(sk, sk_type);
	p->protocol = BPF_CORE_READ(sk, sk_protocol);
	if (p->family == AF_INET || p->family == AF_INET6)
		peer_of_inet(p, sk);
	else if (p->family == AF_UNIX)
		peer_of_unix(p, sk);
	else
		return 0;
	for (i = 0; i < sizeof(*p) / 8; i++)
		id = hash_step(id, ((u64 *)p)[i]);
	id >>= 2; /* user space adds two bits */
	if (!bpf_map_lookup_elem(&peers, &id) && bpf_map_update_elem(&peers, &id, p, BPF_NOEXIST) &&
	    !bpf_map_lookup_elem(&peers, &id)) {
		__sync_fetch_and_add(&peers_lost, 1);
		return 0;
	}
	return id;
}

/*
 * The ID of the peer of the only socket among the polled descriptors in the scratch memory. Also a
 * global function. A thread that polls several sockets waits for none in particular.
 */
__noinline u64 peer_of_polled(u64 waiting, u32 n, u32 slot)
{
	struct peer_scratch *scratch = bpf_map_lookup_elem(&peer_scratches, &slot);
	u64 id = 0, next;
	u32 i;

	if (!scratch)
		return 0;
	for (i = 0; i < PEER_POLLED && i < n; i++) {
		next = peer_of_descriptor(waiting, scratch->polled[i].fd, true, slot);
		if (next && id)
			return 0;
		id = next ?: id;
	}
	return id;
}

/* See peer_of(). The task is the current one, or another. */
static __always_inline u64 peer_of_task(struct task_struct *task, u32 slot, bool other)
{
	struct task_call call = task_call(task);
	struct peer_scratch *scratch;
	u64 address = 0, n = call.second;
	long err;

	bpf_probe_read_kernel(&address, sizeof(address), &task);
	if (!call_polls(call.number))
		return peer_of_descriptor(address, call.first, false, slot);
	scratch = bpf_map_lookup_elem(&peer_scratches, &slot);
	if (!scratch || !n || n > PEER_POLLED)
		return 0;
	barrier_var(n);
	n &= PEER_POLLED; /* verifiers may not see the bounds above */
	if (!other)
		err = bpf_probe_read_user(scratch->polled, n * sizeof(struct pollfd),
					  (void *)call.first);
	else if (has_helper(copy_from_user_task))
		err = bpf_copy_from_user_task(scratch->polled, n * sizeof(struct pollfd),
					      (void *)call.first, task, 0);
	else
		return 0;
	return err ? 0 : peer_of_polled(address, n, slot);
}

/*
 * The ID of the peer of the socket for which the current task waits, or 0 if it waits for none, or
 * that is not certain.
 */
static __noinline u64 peer_of(struct task_struct *task, u32 slot)
{
	return peer_of_task(task, slot, false);
}

/* The same for a task that is not current. */
static __always_inline u64 peer_of_other(struct task_struct *task, u32 slot)
{
	return peer_of_task(task, slot, true);
}

#endif
