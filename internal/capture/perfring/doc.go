// Package perfring samples a user's own processes without BPF, and so without privileges: perf events write the user
// registers, a copy of the stack and the call chain of each sample to rings, and also mappings, forks and execs of the
// sampled processes. [Source] walks the copies in user space, by the rules of the kernel side's walker, and passes the
// stacks on as records like the kernel side's. [Source.Unmeasured] is what it could not see.
package perfring
