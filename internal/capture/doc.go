// Package capture is the area between the kernel's events and named stacks. It contains the
// sources of samples, which package sources lists, the target that they measure, package rules, which
// leaves out some of its processes, the loop that reads their rings, package unwinding, which makes the tables that stacks need, package stacks, which
// resolves addresses, and package naming, which names them. Package uprobe attaches to programs, and
// package trial tries all of this for the doctor. No package here knows an output format, a session or a command.
// This package itself is empty.
//
// Start with stacks and loop, then oncpu, the simplest source.
package capture
