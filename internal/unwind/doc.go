// Package unwind turns the call frame information of ELF files into tables that
// are small enough for the kernel to walk stacks by.
//
// The vocabulary is DWARF's (version 5, section 6.4). A function has an FDE, a
// program that says, for ranges of its addresses, where the caller's registers
// are; programs share what is common in a CIE. The CFA, the canonical frame
// address, is the value that the stack pointer had before the call: all else is
// described relative to it. .eh_frame is .debug_frame in the form that the
// Linux Standard Base gave it for exceptions; it is in nearly every program.
//
// [Compile] runs these programs and keeps of each address what a profiler
// needs: the CFA, the caller's frame pointer and the return address, as a
// [Rule]. A few hundred rules describe a whole library, so that an address
// costs four bytes ([Row]). What no rule can describe is said in a rule too:
// no table, unsupported, end of the stack.
//
// [Walker] walks a stack by such tables. It is what the kernel's walker must
// do, written for reading.
package unwind
