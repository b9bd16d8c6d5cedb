// Package unwindmap brings unwind tables into the maps that the kernel's walker
// reads (bpf/unwind.h), and keeps them true to what processes have mapped.
//
// The vocabulary is the header's. A file's table is two runs of 32-bit words,
// its blocks and its rows, in one space of words for all files; the words lie
// in pages of 64 KiB, which come and go. Rules are shared by all files. A
// layout is the sorted list of a process's executable mappings, each with the
// place of its file's table; a space is a layout and the salt by which the
// walker's cache tells it from others; a process has a space and an epoch,
// which tells one program that it ran from the next.
//
// A layout or space that programs may read is never changed. What is new is
// written first, then one word points to it; what is old is used again when no
// program and no process that was just forked can have it any more.
//
// A [Loader] compiles files in goroutines of its own and in no order, so that
// whoever polls the kernel side never waits for a file.
package unwindmap
