// Package stepping takes branch records where the processor records none: it
// lets threads of the target execute instruction by instruction for a few
// milliseconds at a time and watches where they jump.
//
// [Start] runs the work in a process of its own, the stepper, since the kernel
// ties ptrace to one thread and to its life. A burst stops one running thread
// (PTRACE_SEIZE, PTRACE_INTERRUPT), steps it until it has taken as many branches
// as a sample holds, and detaches. Between bursts the target runs free: no thread
// is attached and no trap flag set. Nothing is ever written into its memory.
//
// # Safety
//
// A thread that the stepper leaves in the middle of a burst is killed by its
// next trap. The stepper therefore ends only between bursts: when the pipe
// from its parent closes, whatever became of the parent, and not by signals that
// can be ignored. It asks the kernel to spare it when memory runs out. SIGKILL of
// the stepper itself, in the middle of a burst, does kill the target; SIGKILL of
// its parent does not. SIGSTOP of the stepper then, or a frozen cgroup, holds the
// thread as long as it lasts. The parent does not wait longer than some seconds
// for that.
//
// Who may kill the stepper can thus kill the target. So the stepper drops the
// capabilities that the file of the program has lent it, and the kernel lets it
// attach only to what its user may trace, and kill, anyway. Process 1 is never
// stepped.
//
// The trap of a step is a signal. While it waits in the thread's queue, the
// thread may stop for something else: ptrace's own stops, as for SIGCONT, and
// those of SIGSTOP come before signals. A thread that has been stepped therefore
// is let go only when its queue holds no trap of ours; see [tracer.release]. A
// SIGTRAP of the program's own, which has another si_code, is delivered.
//
// A thread that stops for the delivery of a signal keeps it until it goes on
// (WNOWAIT), so that the signal is delivered even if the stepper is killed.
//
// A burst that has lasted for [Options.BurstMax] ends with the instruction it
// is at. Where processors are scarce that takes until the thread, which waits
// for one like any other, has had its turn. A thread that does not stop for its
// burst in time has none: its tracer lets it go as soon as it stops, and others
// are stepped by another tracer meanwhile. No two threads of a process are
// attached at a time, which would deadlock with execve; see [tracers].
//
// A burst ends before each instruction that would let the target see the trap
// flag or carry it away: system calls, pushf, popf, iret, int3 and other
// software interrupts, loads of SS, far calls and jumps, the begin of a hardware
// transaction. So no signal frame, no child and no executed program ever has it,
// and a thread is never held in a system call. A thread that blocks SIGTRAP does
// not for the time of its burst, and one that ignores it is refused. A burst ends,
// too, when a signal arrives, which is delivered on detaching, when the kernel
// moves the thread elsewhere (restartable sequences), and when one repeated
// instruction takes too long (rep movs).
//
// # What remains
//
// Only threads in state R are interrupted, since a blocked one takes no
// branches, and some system calls return EINTR when a thread in them is
// stopped (epoll_wait, sigtimedwait, semop, …; poll, read or futex restart).
// Between the look at the state and the stop a thread may enter one: this is
// counted ([Stats.Interrupted]). One that copies in the kernel is in state R
// too: large reads and writes of pipes, sockets and some devices return early,
// with the count of what is done, as they do at a signal. Nothing shows that.
// A debugger that attaches during a burst is refused by the kernel, and has to
// try again. So is PTRACE_TRACEME.
//
// The kernel keeps one SIGTRAP at a time for a thread. One that another thread
// sends to exactly this thread (pthread_kill) in the microseconds between a step
// and the stop for its trap is merged with that, and lost; and a program that sets
// SIGTRAP to be ignored while another of its threads is stepped finds the default
// action instead. Before Linux 5.16, a SIGTRAP sent to a whole process that
// arrives while a thread that blocks it is stepped stays with that thread.
//
// Without CAP_SYS_PTRACE in the stepper, a set-user-ID program that the target
// executes in the moment that it is being stopped gets no rights by that, as under
// any debugger.
//
// Bursts end at system calls, so that code right behind one is seen less often
// than code far from any. A transaction, a restartable sequence and, on arm64,
// a load-exclusive loop are not seen inside.
//
// # Cost
//
// Nearly all of it is the stop for each instruction, two changes of context:
// 28 to 35 µs on a small virtual machine (AMD EPYC), some 3 ms for the 32
// branches of tight code, 10 ms where a branch is taken every tenth
// instruction. At an overhead of 10 % that makes 300 to 400 branches a second
// and thread. One thread is stepped at a time, so that ten threads at 10 % keep it busy;
// with more, each gets less.
//
// PTRACE_SINGLEBLOCK would stop at taken branches alone, but does not tell
// where from, and virtual machines, which are what this is for, ignore it: of
// 10000 such stops here 641 were jumps, as with single steps. A stop at a
// debug register costs 1.1 times a step, so that running from branch to branch
// over code that was stepped through before would pay. It is not done: a
// breakpoint that is missed, because code has changed, would stay set in a
// thread that runs free.
package stepping
