// Package branches makes profiles for compilers from branches: for llvm-bolt, and for clang (AutoFDO).
// Commands use this package only, not the packages in its folder.
//
// [Measure] records branches: with the CPU, by counting jumps with uprobes or hardware breakpoints, or
// by stepping; [Collect] does so for an agent. [Convert] takes the branches that perf has recorded, and
// [Merge] adds up profiles. If llvm-bolt is installed, Measure also optimizes the binary, checks the
// result and compares its speed.
//
// Read measure.go first, then recorder.go, run.go and writer.go. Package [fulgur/internal/bolt] counts
// branches by file, and defines the format for llvm-bolt.
package branches
