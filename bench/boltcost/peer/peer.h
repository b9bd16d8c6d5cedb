/* What crosses the peer's ring: a sample, whole, however few records it has. */
#ifndef PEER_H
#define PEER_H

#include <linux/perf_event.h>

#define PEER_ENTRIES 32

struct peer_sample {
	__u64 bytes; /* of entries */
	struct perf_branch_entry entries[PEER_ENTRIES]; /* the newest first */
};

#endif
