// Package callframe reads call frame information: .eh_frame, the table .eh_frame_hdr that
// leads into it, and .debug_frame. It finds where functions begin ([Find]), which also
// stripped programs have, and leaves the programs of the entries to package unwind.
//
// The vocabulary is DWARF's (version 5, section 6.4): an FDE describes a function, and a
// CIE has what FDEs share. .eh_frame is the variant of .debug_frame that the Linux Standard
// Base defines for exceptions ("DWARF Extensions").
package callframe
