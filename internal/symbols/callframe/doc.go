// Package callframe reads call frame information: .eh_frame, its search table .eh_frame_hdr,
// and .debug_frame. [Find] finds the bounds of functions, even in stripped programs. Package
// unwind executes the call frame programs.
//
// The vocabulary is DWARF's (version 5, section 6.4): an FDE describes a function, and a CIE
// has the data that several FDEs share. .eh_frame is the variant of .debug_frame that the
// Linux Standard Base defines for exceptions ("DWARF Extensions").
package callframe
