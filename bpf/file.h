/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Names of files. A file is identified by device and inode, and its path
 * crosses the ring once, or again if the table has dropped it. Several CPUs may
 * send it at the same time.
 */
#ifndef FULGUR_FILE_H
#define FULGUR_FILE_H

#include "hash.h"
#include "kernel.h"
#include "loss.h"
#include "record.h"
#include "ring.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

/* Maximum elements of a path, and bytes of each with its final 0. */
#define FILE_DEPTH 12
#define FILE_NAME 64

/* How a path ends. */
enum path_end {
	PATH_WHOLE = 0,
	PATH_CUT = 1, /* there are more elements */
	PATH_DEVICE = 2, /* there are none: it is the block device itself */
};

/* The path of a file in its file system, last element first. */
struct file_record {
	u32 type;
	u32 elements; /* 0 if no path is known */
	u64 id;
	u64 inode;
	u32 device; /* major << 20 | minor */
	u32 end; /* enum path_end */
	u8 names[FILE_DEPTH][FILE_NAME];
};

/* IDs of files that were sent: direct-mapped, with racy stores. */
#define FILES_SEEN 4096
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, FILES_SEEN);
	__type(key, u32);
	__type(value, u64);
} files_seen SEC(".maps");

/* A record for each program of a family that may interrupt another. */
#define FILE_PROGRAMS 3
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, FILE_PROGRAMS);
	__type(key, u32);
	__type(value, struct file_record);
} file_scratch SEC(".maps");

static __always_inline bool file_send(struct file_record *rec, struct dentry *at)
{
	u64 size = __builtin_offsetof(struct file_record, names);
	struct dentry *parent;
	u32 i;

	rec->elements = 0;
	for (i = 0; i < FILE_DEPTH && at; i++) {
		parent = BPF_CORE_READ(at, d_parent);
		/* An inode outside of any tree, such as a memfd, is its own parent. */
		if (!parent || (parent == at && i > 0))
			break;
		bpf_probe_read_kernel_str(rec->names[i], FILE_NAME, BPF_CORE_READ(at, d_name.name));
		rec->elements = i + 1;
		size += FILE_NAME;
		at = parent;
	}
	if (i == FILE_DEPTH)
		rec->end = PATH_CUT;
	barrier_var(size); /* without this, the verifier of 6.1 loses the bound */
	return size <= sizeof(*rec) && !ring_send(rec, size);
}

/*
 * The ID of a file. One of its paths is sent before the ID is marked as seen.
 * If the ring is full, the next event on the file tries again.
 */
static __always_inline u64 file_id(struct inode *inode, struct dentry *dentry, u32 program)
{
	bool is_device = (BPF_CORE_READ(inode, i_mode) & S_IFMT) == S_IFBLK;
	u32 device = is_device ? BPF_CORE_READ(inode, i_rdev) : BPF_CORE_READ(inode, i_sb, s_dev);
	u64 number = BPF_CORE_READ_BITFIELD_PROBED(inode, i_ino), id;
	u32 index;
	struct file_record *rec;
	u64 *known;

	/* Device and inode numbers are small: their bits must not overlap. */
	id = hash_step(hash_step(0, (u64)device << 1 | is_device), number);
	index = id % FILES_SEEN;
	known = bpf_map_lookup_elem(&files_seen, &index);
	if (!known)
		return id;
	if (*known != id) {
		rec = bpf_map_lookup_elem(&file_scratch, &program);
		if (!rec)
			return id;
		rec->type = RECORD_FILE;
		rec->id = id;
		rec->inode = number;
		rec->device = device;
		rec->end = is_device ? PATH_DEVICE : PATH_WHOLE;
		if (file_send(rec, is_device ? NULL : dentry))
			*known = id;
		else
			stat_add(STAT_RETRY, 1);
	}
	return id;
}

#endif
