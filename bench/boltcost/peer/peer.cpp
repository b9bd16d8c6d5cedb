// The peer: BOLT profiles from branch records with ebpf-bolt's design, for a
// comparison of cost. Each whole sample crosses a ring of 1 MB, and each of its
// traces goes into a sorted map.
//
//     peer OBJECT PID FREQUENCY >PROFILE
//
// samples until SIGINT. It prints the numbers of samples and of lost samples to
// standard error.
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <tuple>

#include "peer.h"

namespace
{

volatile std::sig_atomic_t done;

std::map<std::tuple<uint64_t, uint64_t, uint64_t>, uint64_t> traces;
uint64_t samples;

int count(void *, void *data, size_t)
{
	auto *s = static_cast<const peer_sample *>(data);
	uint64_t next = UINT64_MAX; // the branch after the newest one is unknown
	samples++;
	for (size_t i = 0; i < s->bytes / sizeof(s->entries[0]); i++) {
		traces[{ s->entries[i].from, s->entries[i].to, next }]++;
		next = s->entries[i].from;
	}
	return 0;
}

[[noreturn]] void fail(const char *what)
{
	std::perror(what);
	std::exit(1);
}

} // namespace

int main(int argc, char **argv)
{
	if (argc != 4) {
		std::fprintf(stderr, "usage: peer OBJECT PID FREQUENCY\n");
		return 2;
	}
	std::signal(SIGINT, [](int) { done = 1; });
	bpf_object *object = bpf_object__open_file(argv[1], nullptr);
	if (!object || bpf_object__load(object))
		fail("load");
	ring_buffer *ring = ring_buffer__new(bpf_object__find_map_fd_by_name(object, "ring"), count,
					     nullptr, nullptr);
	if (!ring)
		fail("ring");
	perf_event_attr attr{};
	attr.type = PERF_TYPE_HARDWARE;
	attr.config = PERF_COUNT_HW_CPU_CYCLES;
	attr.size = sizeof(attr);
	attr.freq = 1;
	attr.sample_freq = std::strtoull(argv[3], nullptr, 10);
	attr.sample_type = PERF_SAMPLE_BRANCH_STACK;
	attr.branch_sample_type = PERF_SAMPLE_BRANCH_USER | PERF_SAMPLE_BRANCH_ANY;
	for (int cpu = 0; cpu < libbpf_num_possible_cpus(); cpu++) {
		int fd = syscall(SYS_perf_event_open, &attr, std::atoi(argv[2]), cpu, -1, 0);
		if (fd < 0)
			fail("perf_event_open");
		if (!bpf_program__attach_perf_event(
			    bpf_object__find_program_by_name(object, "sample"), fd))
			fail("attach");
	}
	while (!done)
		ring_buffer__poll(ring, 100);
	ring_buffer__consume(ring);
	for (const auto &[trace, n] : traces) {
		const auto &[from, to, next] = trace;
		std::printf("T %lx %lx %lx %lu\n", from, to, next, n);
	}
	uint32_t zero = 0;
	uint64_t lost = 0;
	bpf_map_lookup_elem(bpf_object__find_map_fd_by_name(object, "lost"), &zero, &lost);
	std::fprintf(stderr, "%lu samples, %lu lost\n", samples, lost);
}
