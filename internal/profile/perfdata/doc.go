// Package perfdata reads the branch records of perf: perf.data files, as files
// or as perf wrote them to a pipe, and the text of
// `perf script -F pid,ip,brstack --show-mmap-events`. Both feed a
// [bolt.Collector].
//
// The format is described in tools/perf/Documentation/perf.data-file-format.txt
// and include/uapi/linux/perf_event.h of the kernel. Files of perf 3.x to 6.x
// in this machine's byte order are read.
//
// A perf.data file is read twice: first what processes mapped and forked, then
// the samples. So samples need not be sorted by time, which perf leaves to the
// reader, and memory depends on the mappings of interest alone.
package perfdata
