// Package process tracks the machine's processes: which files they mapped, where and when. It
// does not know stacks, symbols or profiles.
//
// A [Table] has two inputs. The kernel's sideband records (see [Sideband]) report changes
// from the moment the profiler listens. Earlier mappings are read from /proc, only for
// processes that are looked up: once, and again if code is where no record put it. Records and
// stacks arrive through channels without a common order, so every lookup is by time
// (CLOCK_MONOTONIC, in nanoseconds).
//
// Read table.go first, then image.go for the mappings of a single process, and file.go
// and open.go for how a mapped file is opened safely. look.go and copy.go are about code that
// is not where its file was mapped. [Tracker] connects the parts.
package process
