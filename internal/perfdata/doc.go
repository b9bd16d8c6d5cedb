// Package perfdata reads perf.data files, either as files or in the pipe format. Branch records feed a
// [bolt.Collector], as do those in the output of `perf script -F pid,ip,brstack --show-mmap-events`.
// Call chains become a profile; copied stacks are unwound for it.
//
// The format is described in tools/perf/Documentation/perf.data-file-format.txt and
// include/uapi/linux/perf_event.h of the kernel. The package reads files of perf 3.x to
// 7.2 in this machine's byte order; records.go lists what it does with each type of record.
//
// It reads a perf.data file twice: first the mappings and forks of processes, then the
// samples. So samples need not be sorted by time, which perf leaves to the reader, and
// memory depends only on the relevant mappings.
package perfdata
