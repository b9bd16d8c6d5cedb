// Package unwind compiles the call frame information of ELF files into tables small
// enough for the kernel to walk stacks with. Package unwindmap loads the tables into the
// kernel, and stackend lists the reasons why stacks end. None knows symbols, samples or profiles.
//
// The vocabulary is DWARF's (version 5, section 6.4). A function has an FDE: a program that
// computes, for ranges of its addresses, where the caller's registers are. A CIE holds the
// common parts of several FDEs. The CFA, the canonical frame address, is the value of the
// stack pointer before the call; all other locations are relative to it. .eh_frame is the
// variant of .debug_frame that the Linux Standard Base defines for exceptions; nearly every
// program has it.
//
// [Compile] executes these programs. For each address, it keeps the parts that a profiler
// needs as a [Rule]: the CFA, the caller's frame pointer and the return address. A few
// hundred rules describe a whole library, so an address costs four bytes ([Row]). Special
// rules mark addresses without a table, frames that no rule can express, and the end of the
// stack.
//
// [Walker] walks a stack with such tables. It is the readable reference for the kernel's
// walker, so read it first, then rule.go and table.go.
package unwind
