// Package perfevent opens perf events with typed attributes and reads the records that
// the kernel writes to their rings.
//
// It covers the part of perf_event_open(2) that a profiler needs. Sampling events have an attached BPF
// program, or a ring for samples (registers, copies of stacks, call chains), which needs no privileges for
// a user's own code. Software "dummy" events report changes to address spaces (the sideband: mappings,
// exec, fork, exit). [Layout] describes the records in rings and in perf.data.
//
// The layouts follow include/uapi/linux/perf_event.h.
package perfevent
