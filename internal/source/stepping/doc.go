// Package stepping takes branch records where the processor records none: it
// lets threads of the target execute instruction by instruction for a few
// milliseconds at a time and watches where they jump.
//
// [Start] runs the work in a process of its own, the stepper, since the
// kernel ties ptrace to one thread and to its life. A burst stops one running
// thread (PTRACE_SEIZE, PTRACE_INTERRUPT), steps it until it has taken as many
// branches as a sample holds, and detaches. Between bursts the target runs
// free: no thread is attached and no trap flag set. Nothing is ever written
// into its memory.
//
// # Safety
//
// A thread that the stepper leaves in the middle of a burst is killed by its
// next trap. The stepper therefore ends only between bursts: when the pipe
// from its parent closes, whatever became of the parent, and not by the
// signals of a terminal or of a service manager's stop. It asks the kernel to
// spare it when memory runs out. SIGKILL of the stepper itself, in the middle
// of a burst, does kill the target; SIGKILL of its parent does not.
//
// A burst ends before each instruction that would let the target see the trap
// flag or carry it away: system calls, pushf, popf, iret, int3 and other
// software interrupts, loads of SS, the begin of a hardware transaction. So no
// signal frame, no child and no executed program ever has it, and a thread is
// never held in a system call. It ends, too, when a signal arrives, which is
// delivered on detaching, when the kernel moves the thread elsewhere (restartable
// sequences), and when one repeated instruction takes too long (rep movs).
//
// # What remains
//
// Only threads in state R are interrupted, since a blocked one takes no
// branches, and some system calls return EINTR when a thread in them is
// stopped (epoll_wait, sigtimedwait, semop, …; poll, read or futex restart).
// Between the look at the state and the stop a thread may enter one: this is
// counted ([Stats.Interrupted]).
//
// Bursts end at system calls, so that code right behind one is seen less often
// than code far from any.
package stepping
