// Package process knows the processes of the machine: who they are, what was
// mapped where in them at what time, and which file that was.
//
// A [Table] learns from two sources. The kernel's sideband records (see
// [Sideband]) tell what processes do from the moment the profiler listens;
// what they had mapped before is read from /proc, once and only for those
// that are asked about. Records and stacks come through different channels
// that have no common order, so everything is looked up by time
// (CLOCK_MONOTONIC, in nanoseconds).
package process
