/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Names of files. A file is told by device and inode where it is met, and its
 * path crosses the ring once, or again if the table has forgotten it. Several
 * CPUs may send it at the same time.
 */
#ifndef FULGUR_FILE_H
#define FULGUR_FILE_H

#include "stack.h"

/* Elements of a path, and bytes of each with its final 0, that are sent. */
#define FILE_DEPTH 12
#define FILE_NAME 64

/* The path of a file in its file system, the last element first. */
struct file_record {
	u32 type;
	u32 elements;
	u64 id;
	u64 inode;
	u32 device; /* major << 20 | minor */
	u32 cut; /* there are more elements */
	char names[FILE_DEPTH][FILE_NAME];
};

/* Ids of files that were sent: direct-mapped, with racy stores. */
#define FILES_SEEN 4096
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, FILES_SEEN);
	__type(key, u32);
	__type(value, u64);
} files_seen SEC(".maps");

/* Room for a record; it is one probe's, which nothing of its family interrupts. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct file_record);
} file_scratch SEC(".maps");

static __always_inline void file_send(struct file *file, struct file_record *rec)
{
	struct dentry *at = file->f_path.dentry;
	u64 size = __builtin_offsetof(struct file_record, names);
	u32 i;

	rec->type = RECORD_FILE;
	rec->elements = 0;
	rec->cut = 1;
	for (i = 0; i < FILE_DEPTH; i++) {
		struct dentry *parent = at->d_parent;

		/* What has no place in a tree, as a memfd, is its own parent. */
		if (!parent || (parent == at && i > 0)) {
			rec->cut = 0;
			break;
		}
		bpf_probe_read_kernel_str(rec->names[i], FILE_NAME, at->d_name.name);
		rec->elements = i + 1;
		size += FILE_NAME;
		at = parent;
	}
	barrier_var(size); /* or 6.1's verifier does not see what bounds it */
	if (size > sizeof(*rec) || ring_send(rec, size))
		stat_add(STAT_RETRY, 1);
}

/* The id of a file, whose path has been sent then, or 0. */
static __always_inline u64 file_id(struct file *file)
{
	u64 inode = file->f_inode->i_ino, id;
	u32 device = file->f_inode->i_sb->s_dev, zero = 0, index;
	struct file_record *rec;
	u64 *known;

	id = hash_step(hash_step(device, inode), 0);
	index = id % FILES_SEEN;
	known = bpf_map_lookup_elem(&files_seen, &index);
	if (!known)
		return 0;
	if (*known != id) {
		rec = bpf_map_lookup_elem(&file_scratch, &zero);
		if (!rec)
			return 0;
		rec->id = id;
		rec->inode = inode;
		rec->device = device;
		file_send(file, rec);
		*known = id;
	}
	return id;
}

#endif
