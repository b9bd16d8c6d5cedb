// Package capture is the area between the kernel's events and named stacks. It contains the
// sources of samples, which package sources lists, the recorders of branches (branch, stepping,
// jumps), the target that they measure, the loop that reads their rings, and package stacks,
// which resolves addresses. No package here knows an output format, a session or a command.
// This package itself is empty.
//
// Start with stacks and loop, then oncpu, the simplest source.
package capture
