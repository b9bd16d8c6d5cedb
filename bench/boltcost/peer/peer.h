/* A record of the peer's ring: a whole sample, regardless of its number of branch records. */
#ifndef PEER_H
#define PEER_H

#include <linux/perf_event.h>

#define PEER_ENTRIES 32

struct peer_sample {
	__u64 bytes; /* size of entries */
	struct perf_branch_entry entries[PEER_ENTRIES]; /* newest first */
};

#endif
