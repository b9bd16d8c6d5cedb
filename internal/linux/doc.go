// Package linux is the area of the kernel's interfaces: perf events, BPF ring buffers, procfs, tracefs,
// capabilities, system calls, child processes, clocks, timers, limits, epoll and RCU. Each package wraps
// one interface and knows nothing of profiles, sessions or commands. Only package testenv may be imported from
// other areas. This package itself is empty.
//
// Start with perfevent, which opens events and reads their rings, then procfs and
// capability, which every access to another user's process goes through.
package linux
