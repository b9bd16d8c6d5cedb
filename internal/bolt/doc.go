// Package bolt turns branch records into profiles for llvm-bolt.
//
// A branch record says that the processor jumped from one address to another;
// a sample is the last 16 to 64 of them. Between one branch's target and the
// next one's source the code ran straight on, so that a sample tells of every
// instruction in between. The unit of aggregation is therefore the [Trace]: a
// taken branch and the fall-through after it.
//
// [Collector] cuts samples into traces, for each ELF file apart, by the rules
// of perf2bolt's own reader of perf.data (LLVM's DataAggregator), and counts
// them in bounded memory. [WriteTraces] and [WriteBranches] write the
// pre-aggregated format that `perf2bolt --pa` reads, and [Merge] sums such
// files up. What perf2bolt makes of them is, line by line, what it makes of
// the records themselves.
//
// It differs from perf2bolt where that is plainly wrong: branches on a path
// that was only speculated on and aborted transactions do not count, duplicates
// that Skylake servers record are found and left out (unless
// [KeepDuplicates]), a process may map a binary several times, and what a
// forked process did before it executed another program counts.
//
// All addresses in profiles are link-time virtual addresses of the file, and 0
// stands for every address outside of it.
package bolt
