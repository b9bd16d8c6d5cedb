// Package perfevent opens perf events by typed attributes and reads the
// records that the kernel writes to their rings.
//
// It covers what a profiler needs of perf_event_open(2): sampling events with
// a BPF program attached, and software "dummy" events that report what
// processes do to their address spaces (the sideband: mappings, exec, fork,
// exit). Samples themselves never travel through a perf ring here. The
// layouts follow include/uapi/linux/perf_event.h.
package perfevent
