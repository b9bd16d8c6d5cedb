// Package unwindmap loads unwind tables into the maps that the kernel's walker reads
// (bpf/unwind.h), and updates them when processes change their mappings.
//
// The vocabulary is the header's. A file's table consists of two runs of 32-bit words, its
// blocks and its rows, in an address space of words shared by all files. The words are in
// pages of 64 KiB, which can be evicted and reloaded. All files share the rules. A layout is
// the sorted list of a process's executable mappings, each with the place of its file's
// table. A space is a layout plus the salt that distinguishes it in the walker's cache. A
// process has a space and an epoch, which distinguishes the successive programs that it ran.
//
// A layout or space that programs may read never changes. New data is written first, then
// published by changing one word. Old data is reused once neither a program nor a recently
// forked process can refer to it.
//
// A [Loader] compiles files in its own goroutines and in no particular order, so that
// handling the kernel's requests never waits for a file.
package unwindmap
