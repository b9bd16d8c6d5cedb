// Package internal is fulgur but for its command line. Each folder is an area, and
// imports only from areas above it in this list, as areas_test.go checks:
//
//	testenv    what tests need from a machine
//	linux      the kernel's interfaces: perf events, rings, procfs, capabilities
//	files      foreign files, opened and read within time limits; files that appear whole
//	message    text for users that is safe to print, and usage errors
//	symbols    from a file and an address to functions and lines
//	process    which processes run, and what they map
//	unwind     tables for unwinding stacks, and their way into the kernel
//	runtimes   the runtimes of languages: which a process has, names and lines of their functions
//	bolt       branch records, and profiles for llvm-bolt
//	autofdo    sample profiles for clang, from branches and debug information
//	profile    the model of a profile; its encoders and decoders
//	containers which container, pod and unit a process belongs to
//	doctor     what fulgur needs from a machine
//	capture    the sources of samples, from the kernel's events to named stacks
//	ui         pages, the terminal, manual pages
//	export     profiles on their way to a back end
//	session    a run from its flags to its result
//
// The kernel side is in package fulgur/bpf, which imports none of these. The commands
// are in fulgur/cmd/fulgur, which imports all of them.
package internal
