package decode

import (
	"regexp"
	"strings"
)

// foldedVotes is the evidence of a file of folded stacks for what their first frame is: the name of
// a task, as in the output of stackcollapse-perf.pl, bcc and fulgur, or a function, as in that of
// async-profiler, py-spy and most others. All stacks of a file have their say, since a single one can
// be either: "main;work 10".
type foldedVotes struct {
	lines int // stacks

	// forms counts what only writers of tasks write: threads, CPUs, frames "-" and stated units,
	// without the comments that say that there are none.
	forms, without int
	// Stacks that prove to have a task, or a function, and stacks that hint at it.
	provenTasks, provenFunctions int
	likelyTasks, likelyFunctions int
}

// tasks reports whether the first frames are tasks. Without evidence they are functions: the report
// then shows too much, otherwise it would lack them.
func (v *foldedVotes) tasks() bool {
	switch {
	case v.without > 0:
		return false
	case v.forms > 0:
		return true
	case v.provenTasks != v.provenFunctions:
		return v.provenTasks > v.provenFunctions
	}
	return v.likelyTasks > v.likelyFunctions
}

// line adds a stack, given by its first frame and the rest.
func (v *foldedVotes) line(first, rest string) {
	v.lines++
	if thread.MatchString(first) || asyncThread.MatchString(first) {
		v.forms++
		return
	}
	name, suffix := cutSuffix(first)
	second, _, _ := cutFrame(rest)
	second, _ = cutSuffix(second)
	switch {
	case kernelTask.MatchString(name):
		v.provenTasks++
	case suffix != 0, outermost.MatchString(name), len(pidSuffix.ReplaceAllString(name, "")) > maxComm:
		v.provenFunctions++
	case outermost.MatchString(second):
		v.provenTasks++
	case name == "main", name == "[unknown]", isCodeName(name):
		v.likelyFunctions++
	case entry.MatchString(second):
		v.likelyTasks++
	}
}

// maxComm is the length of the longest name of a task.
const maxComm = 15

var (
	// kernelTask matches the names of the kernel's own tasks.
	kernelTask = regexp.MustCompile(`^(swapper(/\d+)?|(kworker|ksoftirqd|migration|cpuhp|rcuop|rcuos|irq)/.*|kswapd\d+|rcu_(sched|preempt)|kthreadd)(-\d+)?$`)
	// outermost matches functions that no other function calls.
	outermost = regexp.MustCompile(`^(_start|start_thread|(__GI_)*(__)?clone3?|thread_start|_dl_start_user|__libc_start_\w+|ret_from_fork\w*|runtime\.(goexit|rt0_go|mstart)(\.abi0)?|secondary_startup_64\w*|_pthread_start|RtlUserThreadStart)$`)
	// entry matches functions that mostly have no caller, or whose callers are often unknown.
	entry = regexp.MustCompile(`^(main|\[unknown\]|\[stack lost\]|\[Missed User Stack\]|entry_SYSCALL\w*|do_syscall_64|asm_\w+|el0t?_\w+|el1h?_\w+|system_call\w*|page_fault|java_start|runtime\.(main|mcall|morestack|systemstack)\S*)$`)
	// pidSuffix is the process ID after a name, as in stackcollapse-perf.pl --pid.
	pidSuffix = regexp.MustCompile(`-(\d+|\?)$`)
)

// isCodeName reports whether a name is one of code rather than of a task: "<module> (app.py:10)",
// "java/lang/Thread.run", "std::rt::lang_start", "libc.so`start".
func isCodeName(name string) bool {
	switch {
	case strings.Contains(name, "::"), strings.HasPrefix(name, "<"), strings.ContainsAny(name, "`{"):
		return true
	case strings.IndexByte(name, '(') > 0:
		return true
	}
	return strings.Contains(name, "/") && strings.Contains(name, ".")
}
