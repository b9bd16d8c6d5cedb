// Package bolt converts branch records into profiles for llvm-bolt. It knows neither
// processes nor sessions; its callers resolve mappings to a [Layout].
//
// A branch record means that the processor jumped from one address to another. A sample
// holds the last 16 to 64 branches. Between the target of one branch and the source of
// the next the code ran straight, so a sample covers every instruction in between.
// Therefore the unit of aggregation is the [Trace]: a taken branch and the fall-through
// after it.
//
// [Collector] splits samples into traces for each ELF file, by the rules of perf2bolt's
// own reader of perf.data (LLVM's DataAggregator), and counts them in bounded memory.
// [WriteTraces] and [WriteBranches] write the pre-aggregated format that `perf2bolt --pa`
// reads, and [Merge] adds up such files. perf2bolt converts them to the same profile,
// line by line, as the records themselves.
//
// The package deviates from perf2bolt where that is clearly wrong. Branches on a
// mispredicted path and aborted transactions do not count. Duplicates recorded by Skylake
// servers are detected and dropped (unless [KeepDuplicates]). A process may map a binary
// several times. Branches of a forked process count before it executes another program.
//
// All addresses in profiles are link-time virtual addresses of the file, and 0 stands for
// every address outside of it.
//
// Read collector.go first, then write.go, and merge.go with line.go for existing
// profiles.
package bolt
