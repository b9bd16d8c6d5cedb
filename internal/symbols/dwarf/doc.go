// Package dwarf finds the functions, files and lines at addresses in DWARF debug
// information, versions 2 to 5: the chain of functions inlined there, each with the line
// at which it calls the next.
//
// It reads as little as possible. Opening reads the address ranges of units. These lead from
// an address to its unit. One pass over the unit's bytes finds the functions that have code
// and skips everything else. One run of its line program records where to resume the program.
// A function's tree of inlined calls is read when an address is in the function, and names
// are read when a frame needs them. Parsed units are cached within a memory budget, least
// recently used first out. Batches of addresses are distributed over CPUs by unit.
//
// Section numbers in comments refer to the DWARF 5 standard,
// https://dwarfstd.org/doc/DWARF5.pdf. GNU's split DWARF 4 is described at
// https://gcc.gnu.org/wiki/DebugFission, its package files at
// https://gcc.gnu.org/wiki/DebugFissionDWP.
package dwarf
