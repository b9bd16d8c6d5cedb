// Package internal is fulgur without its command line and kernel side. Each folder is an area, and
// imports only from areas above it in this list, as areas_test.go checks:
//
//	bpf        the compiled programs of the kernel side, and their Go bindings
//	testenv    requirements of tests on the machine
//	linux      the kernel's interfaces: perf events, rings, procfs, capabilities
//	files      foreign files, opened and read within time limits; complete output files
//	message    text for users that is safe to print, and usage errors
//	symbols    from a file and an address to functions and lines
//	process    running processes, and their mappings
//	unwind     stack unwinding: tables, and how they get into the kernel
//	runtimes   language runtimes: finding them in processes, names and lines of their functions
//	bolt       branch records, counted by file, and the format of llvm-bolt
//	profile    the model of a profile; its encoders and decoders
//	perfdata   perf.data: branches for area bolt, and call chains as a profile
//	containers the container, pod and unit of each process
//	doctor     fulgur's requirements on the machine
//	capture    the sources of samples, from the kernel's events to named stacks
//	ui         pages, the terminal, completion, manual pages
//	export     profiles on their way to a back end
//	session    a run from its flags to its result
//	branches   recorded branches, and profiles for compilers from them
//	offline    profiles in files: read, named, compared, converted
//	agent      continuous profiling for a back end
//	remote     runs on other machines and pods, by the user's own ssh and kubectl
//	assistant  measurements and questions by the Model Context Protocol
//
// Other areas and commands import only the package branches itself, not the packages in its folder.
//
// The sources of the kernel side are in fulgur/bpf, and the commands in fulgur/cmd/fulgur, which
// imports all areas.
package internal
