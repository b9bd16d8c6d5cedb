// Package bolt counts branch records by file, and writes the counts as profiles for llvm-bolt. It knows
// neither processes nor sessions; its callers resolve mappings to a [Layout].
//
// A branch record means that the processor jumped from one address to another. A sample holds
// the last 16 to 64 branches. The code between the target of one branch and the source of the
// next ran without a branch, so a sample covers every instruction in between. The unit of
// aggregation is therefore the [Trace]: a taken branch and the fall-through after it.
//
// [Collector] splits samples into traces for each ELF file, by the rules of perf2bolt's own
// reader of perf.data (LLVM's DataAggregator), and counts them in bounded memory.
// [WriteTraces] and [WriteBranches] write the pre-aggregated format that `perf2bolt --pa`
// reads, and [Merge] adds up such files. perf2bolt converts these files to the same profile,
// line by line, as the branch records themselves.
//
// The package deviates from perf2bolt where perf2bolt is clearly wrong. Branches on a
// mispredicted path and aborted transactions do not count. Duplicates recorded by Skylake
// servers are detected and dropped (unless [KeepDuplicates]). A process may map a binary
// several times. Branches of a forked process count even if it has not executed another
// program.
//
// All addresses in profiles are link-time virtual addresses of the file; 0 stands for any
// address outside the file.
//
// Read collector.go first, then write.go, and merge.go with line.go for existing
// profiles.
package bolt
