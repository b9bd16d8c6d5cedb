// Package capture is the area between the kernel's events and named stacks: the sources
// of samples (oncpu, offcpu, blockio, faults, branch, stepping), the target that they
// measure, the loop that reads their rings, and stacks, which resolves addresses. No
// package here knows an output format, a session or a command. This package itself is
// empty.
//
// Start with stacks and loop, then oncpu, the simplest source.
package capture
