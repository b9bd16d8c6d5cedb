// Package dwarf finds the functions, files and lines at addresses in DWARF
// debug information, versions 2 to 5: the chain of functions that the compiler
// inlined there, each with the line from which it calls the next one.
//
// It reads as little as the question needs. Opening reads the address ranges
// of units. An address makes its unit known: one pass over the unit's bytes
// finds the functions that have code, skipping everything else, and one run
// of its line program notes where to resume it. A function's tree of inlined
// calls is read when an address falls into it, names when a frame shows them.
// What was read is kept as long as a budget of memory allows, the units least
// recently used going first. Batches of addresses are spread over CPUs by
// unit.
//
// Section numbers in comments are those of the DWARF 5 standard,
// https://dwarfstd.org/doc/DWARF5.pdf. GNU's split DWARF 4 is described at
// https://gcc.gnu.org/wiki/DebugFission, its package files at
// https://gcc.gnu.org/wiki/DebugFissionDWP.
package dwarf
