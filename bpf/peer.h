/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The other ends of sockets. A system call on a socket has its descriptor as the first argument,
 * but another thread may have put another file there meanwhile. So a thread waits for a socket only
 * if it is in the socket's own queue of waiting threads, which proves it for every system call.
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
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SCRATCHES);
	__type(key, u32);
	__type(value, struct peer);
} peer_scratch SEC(".maps");

/* The first argument of the system call that task is in, or of its last one. */
static __always_inline u64 task_first_argument(struct task_struct *task)
{
#if defined(__TARGET_ARCH_x86)
	return regs_read(task_regs(task), di);
#else
	return regs_read(task_regs(task), orig_x0);
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

/* Whether a place in a queue is that of task. */
static __always_inline bool waits_at(struct list_head *at, struct task_struct *task)
{
	struct wait_queue_entry *entry =
		(void *)at - bpf_core_field_offset(struct wait_queue_entry, entry);

	return BPF_CORE_READ(entry, private) == task;
}

/* Whether task is in the socket's queue of waiting threads. */
static __always_inline bool waits_for(struct task_struct *task, struct sock *sk)
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
		if (waits_at(first, task) || waits_at(last, task))
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

/* See peer_of(). A global function, which the verifier checks once, and which takes no pointers. */
__noinline u64 peer_of_descriptor(u64 waiting, u32 fd, u32 slot)
{
	struct task_struct *task = (void *)waiting;
	struct peer *p = bpf_map_lookup_elem(&peer_scratch, &slot);
	struct sock *sk;
	u64 id = 1;
	u32 i;

	if (!p || !task)
		return 0;
	sk = task_socket(task, fd);
	if (!sk || !waits_for(task, sk))
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
 * The ID of the peer of the socket for which task waits, or 0 if it waits for none, or that is not
 * certain.
 */
static __noinline u64 peer_of(struct task_struct *task, u32 slot)
{
	u64 address = 0;

	bpf_probe_read_kernel(&address, sizeof(address), &task);
	return peer_of_descriptor(address, task_first_argument(task), slot);
}

#endif
