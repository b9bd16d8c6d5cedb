// Package perfdata reads perf's branch records: perf.data files, either as files or in
// the pipe format, and the output of `perf script -F pid,ip,brstack --show-mmap-events`.
// Both feed a [bolt.Collector]. It also reads call chains as a profile.
//
// The format is described in tools/perf/Documentation/perf.data-file-format.txt and
// include/uapi/linux/perf_event.h of the kernel. The package reads files of perf 3.x to
// 7.2 in this machine's byte order; records.go lists what it does with each type of record.
//
// It reads a perf.data file twice: first the mappings and forks of processes, then the
// samples. So samples need not be sorted by time, which perf leaves to the reader, and
// memory depends only on the relevant mappings.
package perfdata
