// SPDX-License-Identifier: GPL-2.0-only
/* The kernel side of the peer: see peer.cpp. */
#include <linux/bpf.h>
#include <linux/bpf_perf_event.h>
#include <bpf/bpf_helpers.h>
#include "peer.h"

char LICENSE[] SEC("license") = "GPL";

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} ring SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} lost SEC(".maps");

SEC("perf_event")
int sample(struct bpf_perf_event_data *ctx)
{
	struct peer_sample *s = bpf_ringbuf_reserve(&ring, sizeof(*s), 0);
	long bytes;

	if (!s) {
		__u32 zero = 0;
		__u64 *n = bpf_map_lookup_elem(&lost, &zero);

		if (n)
			__sync_fetch_and_add(n, 1);
		return 0;
	}
	bytes = bpf_read_branch_records(ctx, s->entries, sizeof(s->entries), 0);
	if (bytes <= 0) {
		bpf_ringbuf_discard(s, 0);
		return 0;
	}
	s->bytes = bytes;
	bpf_ringbuf_submit(s, 0);
	return 0;
}
