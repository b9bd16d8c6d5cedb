// Package stopping samples a user's own processes by stopping their threads for a moment, by ptrace(2): without BPF, without
// perf events, and so without privileges where these are denied.
//
// [Sampler] looks at the processes of the target about as often as samples are wanted. A process that has used CPU time
// since the last look is due: one of its threads that runs or waits for a CPU is stopped, its registers and a part of its
// stack are copied, its frames of Python and Ruby are read, and it is let go. As many are due as CPUs were in use. A sample stands for the CPU time that its thread
// has used since its last sample, so that the samples add up to the CPU time of the target, except for what [Sampler.Total]
// has beyond them: the time of threads that were never found running, or since the last sample.
//
// # Safety
//
// The sampler attaches to a thread, stops it, and detaches, each time: an attached thread stops for each of its signals,
// and Go programs send each other many. The sampler never writes into the target's memory. Signals that arrive meanwhile
// are passed on. If fulgur ends at any moment, SIGKILL included, the kernel detaches and lets the thread run on. A stop of
// the target by SIGSTOP lasts until SIGCONT, as without the sampler.
//
// A thread that waits is never stopped. Between the look and the stop, a thread may begin to wait. Then it is let go without
// a sample, and most system calls go on waiting. Some return EINTR to the program, as if a signal had been handled:
// epoll_wait, semtimedop, sigtimedwait, and receiving with a timeout. [Stats.Interrupted] counts these.
//
// At most one thread of a process is attached at a time. A thread in execve waits until all other threads of its process
// have ended and their tracers have noticed, and whoever attaches to a thread of that process waits for that: a tracer with
// two threads of a process would wait for itself. A thread that does not stop at once, since it has no CPU or is in an
// uninterruptible wait, is let go as soon as it stops. Its process has no other samples until then.
//
// Other users' processes, process 1, and processes with another tracer, such as a debugger, are left alone, whoever runs
// fulgur. For the moment of a stop, no debugger can attach to the thread, and PTRACE_TRACEME fails in it.
package stopping
