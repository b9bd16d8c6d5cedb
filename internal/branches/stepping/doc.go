// Package stepping records branches where the processor cannot: it single-steps threads
// of the target for a few milliseconds at a time and watches where they jump.
//
// [Start] runs a separate process, the stepper, because the kernel ties ptrace to one
// thread and its lifetime. A burst stops one running thread (PTRACE_SEIZE,
// PTRACE_INTERRUPT), steps it until it has taken as many branches as a sample holds, and
// detaches. Between bursts the target runs freely: no thread is attached and no trap flag
// is set. The stepper never writes into the target's memory.
//
// # Safety
//
// If the stepper dies in the middle of a burst, the next trap kills the target. Therefore
// it ends only between bursts, when the pipe from its parent closes, however the parent
// ended. It ignores every signal that can be ignored, and asks the kernel to spare it
// when memory runs out. SIGKILL of the stepper in the middle of a burst does kill the
// target; SIGKILL of its parent does not. SIGSTOP of the stepper or a frozen cgroup holds
// the thread for as long as it lasts. The parent waits for that only a few seconds.
//
// So anyone who may kill the stepper can kill the target. The stepper therefore drops the
// capabilities lent by the program's file, and the kernel lets it attach only to
// processes that its user may trace, and so kill, anyway. Process 1 is never stepped.
//
// The trap of a step is a signal. While it is pending, the thread may stop for another
// reason: ptrace's own stops, for example on SIGCONT, and the stops of SIGSTOP come
// before signals. So a stepped thread is detached only when its queue holds no trap of ours; see
// [tracer.release]. A SIGTRAP of the program itself has another si_code and is delivered. The trap
// of an instruction that got a uprobe just before its step has another si_code, too: its sender and
// the program counter show whose it is; see [tracer.isStep].
//
// A thread that stops for the delivery of a signal keeps the signal until it continues
// (WNOWAIT), so that the signal is delivered even if the stepper is killed.
//
// When a burst has lasted for [Options.BurstMax], it ends after the current instruction.
// If CPUs are scarce, the thread first has to wait for one like any other. A thread that
// does not stop in time gets no burst: its tracer detaches as soon as it stops, and
// another tracer steps other threads in the meantime. No two threads of a process are
// attached at the same time, which would deadlock with execve; see [tracers].
//
// A burst ends before any instruction that would reveal the trap flag or copy it
// elsewhere: system calls, pushf, popf, iret, int3 and other software interrupts, loads
// of SS, far calls and jumps, the beginning of a hardware transaction. So no signal
// frame, child or executed program ever contains the flag, and no thread is held in a
// system call. If a thread blocks SIGTRAP, the signal is unblocked during its burst; a
// thread that ignores SIGTRAP is refused. A burst also ends when a signal arrives (it
// is delivered on detaching), when the kernel moves the thread elsewhere (restartable
// sequences), and when a repeated instruction takes too long (rep movs).
//
// # Remaining side effects
//
// Only threads in state R are interrupted, since a blocked thread takes no branches and
// some system calls return EINTR when stopped (epoll_wait, sigtimedwait, semop, and
// others; poll, read and futex restart). Between the check of the state and the stop, a
// thread may enter such a call; [Stats.Interrupted] counts this. A thread that copies
// data in the kernel is in state R too. Large reads and writes of pipes, sockets and some
// devices then return early with a partial count, as they do on a signal. This is not
// counted. During a burst, the kernel rejects PTRACE_TRACEME, and a debugger that
// attaches; the debugger has to try again.
//
// The kernel keeps a single pending SIGTRAP for a thread. If another thread sends one to
// exactly this thread (pthread_kill) in the microseconds between a step and the stop for
// its trap, the two are merged and one is lost. If a program sets SIGTRAP to be ignored
// while another of its threads is stepped, it gets the default action instead. Before
// Linux 5.16, a SIGTRAP sent to a whole process stays with the stepped thread if that
// thread normally blocks it.
//
// If another thread sends a SIGTRAP to its own process (kill) while the stepped thread is at an
// instruction that may repeat or jump to itself (rep movs), the signal may be taken for the trap of
// a step over a uprobe, and lost.
//
// If the stepper lacks CAP_SYS_PTRACE and the target executes a set-user-ID program just
// as it is being stopped, the program gains no privileges, as under any debugger.
//
// On arm64, the kernel logs a warning for each step of a thread that has executed a uprobe before,
// whoever steps it.
//
// If the return of a function has a uprobe, the function returns to a page of the kernel. This jump
// is recorded, and the burst ends there, since the page cannot be read.
//
// Bursts end at system calls, so code right after one is seen less often than other code.
// Transactions, restartable sequences and, on arm64, load-exclusive loops are not seen
// from the inside. The kernel aborts a restartable sequence at its first step, as at any stop of the
// thread: this usually ends the burst, and the thread then runs freely, so it does not repeat the
// sequence for longer than a burst, and loses no update.
//
// # Cost
//
// Nearly all of the cost is the stop for each instruction, two context switches: 28 to 35
// µs on a small virtual machine (AMD EPYC). The 32 branches of a sample take about 3 ms
// in tight code, and 10 ms if every tenth instruction is a taken branch. At an overhead
// of 10 %, the latter makes 300 to 400 branches per second and thread. One thread is stepped at
// a time, so ten threads at 10 % keep the stepper busy; with more, each gets less.
//
// PTRACE_SINGLEBLOCK would stop only at taken branches, but does not report their source,
// and virtual machines, the main use of this package, ignore it: of 10000 such stops in one,
// 641 were jumps, as with single steps. A stop at a debug register costs 1.1 times a
// step, so it would pay to run from branch to branch over code that has been stepped
// before. It is not done because a breakpoint that is missed, after the code has changed,
// would remain set in a thread that runs freely.
package stepping
