package main

// addressSpace is the address space in bytes that fulgur needs to run, as a limit of the shell (ulimit -v) or
// the service counts it. Go reserves most of it without using it: under less than about 640 MiB, it ends a
// program before the first line of main. The rest was measured as in [fulgur/internal/doctor.MemoryNeed]:
// fulgur version needed 794 MiB, and fulgur record 857 MiB.
const addressSpace = 1 << 30

// tooLittleSpace is what [start] says if the limit is lower.
var tooLittleSpace = "fulgur: 1 GiB of address space is needed, most of it only reserved, but a limit (RLIMIT_AS) is lower: " +
	"run ulimit -v unlimited first, or remove LimitAS= from the service\n"

// start checks the limit on address space, and then starts Go. Releases are linked with this entry point
// (-ldflags '-E main.start'), since Go itself would end with a trace of its own.
func start() //nolint:unused // only the linker refers to it
