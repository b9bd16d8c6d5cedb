//go:build ignore

// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Names of kernel addresses and addresses of names, from the kernel itself.
 * Reading /proc/kallsyms would make it write out all of its symbols, a hundred
 * thousand and more, for the few hundred in a profile.
 */

#include "kernel.h"
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/*
 * An address and its symbol, as %pS prints it: "name+0x1/0x2 [module]". To find an
 * address, the text is the name alone.
 */
struct symbol {
	u64 addr;
	u8 text[504];
};

const struct symbol *unused_symbol __attribute__((unused));

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 256);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, u32);
	__type(value, struct symbol);
} ksyms SEC(".maps");

/* The input of a run, from user space. */
struct context {
	u32 entries; /* of ksyms, from the first on */
};

static long name_one(u32 index, void *unused)
{
	static const char format[] = "%pS";
	struct symbol *sym = bpf_map_lookup_elem(&ksyms, &index);

	if (!sym)
		return 1;
	bpf_snprintf((char *)sym->text, sizeof(sym->text), format, &sym->addr, sizeof(sym->addr));
	return 0;
}

SEC("syscall")
int name_ksyms(struct context *ctx)
{
	bpf_loop(ctx->entries, name_one, NULL, 0);
	return 0;
}

static long find_one(u32 index, void *unused)
{
	struct symbol *sym = bpf_map_lookup_elem(&ksyms, &index);
	u64 addr = 0;

	if (!sym)
		return 1;
	/* An error leaves 0: there is no such symbol, or addresses are hidden. */
	bpf_kallsyms_lookup_name((char *)sym->text, sizeof(sym->text), 0, &addr);
	sym->addr = addr;
	return 0;
}

SEC("syscall")
int find_ksyms(struct context *ctx)
{
	bpf_loop(ctx->entries, find_one, NULL, 0);
	return 0;
}
