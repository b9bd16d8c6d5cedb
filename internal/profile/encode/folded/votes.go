package folded

import (
	"regexp"
	"strings"
)

// Votes is the evidence of a file of folded stacks without a header: whether they are stacks at all, and
// what their first frame is: the name of a task, as in the output of stackcollapse-perf.pl, bcc and
// fulgur, or a function, as in that of async-profiler, py-spy and most others. All stacks of a file have
// their say, since a single one can be either: "main;work 10".
type Votes struct {
	Lines  int // stacks
	Single int // of one frame
	texts  int // of them, those that look like other text

	// forms counts stacks with what only writers of tasks write: threads, CPUs and frames "-".
	forms int
	// Stacks that prove to have a task, or a function, and stacks that hint at it.
	provenTasks, provenFunctions int
	likelyTasks, likelyFunctions int
}

// Text reports whether the lines look like a table or sentences rather than stacks.
func (v *Votes) Text() bool { return v.texts > 0 && 2*v.texts >= v.Lines }

// Tasks reports whether the first frames are tasks. Without evidence they are functions: the report
// then shows too much, otherwise it would lack them.
func (v *Votes) Tasks() bool {
	switch {
	case v.forms > 0:
		return true
	case v.provenTasks != v.provenFunctions:
		return v.provenTasks > v.provenFunctions
	}
	return v.likelyTasks > v.likelyFunctions
}

// Add adds a line, given with and without its numbers.
func (v *Votes) Add(line, stack string) {
	v.Lines++
	if !strings.Contains(strings.TrimPrefix(stack, "; "), ";") {
		v.Single++
		if words.MatchString(line) {
			v.texts++
		}
	}
	first, rest, _ := CutFrame(stack)
	_, isCPU := CPU(first)
	if isCPU || thread.MatchString(first) || asyncThread.MatchString(first) || strings.Contains(";"+rest+";", ";-;") {
		v.forms++
		return
	}
	name, suffix := CutSuffix(first)
	second, _, _ := CutFrame(rest)
	second, _ = CutSuffix(second)
	switch {
	case kernelTask.MatchString(name):
		v.provenTasks++
	case suffix != 0, outermost.MatchString(name), len(pidSuffix.ReplaceAllString(name, "")) > maxComm:
		v.provenFunctions++
	case outermost.MatchString(second):
		v.provenTasks++
	case name == "main", name == "[unknown]", isCodeName(name):
		v.likelyFunctions++
	case noCaller.MatchString(second):
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
	// noCaller matches functions that mostly have no caller, or whose callers are often unknown.
	noCaller = regexp.MustCompile(`^(main|\[unknown\]|\[stack lost\]|\[Missed User Stack\]|entry_SYSCALL\w*|do_syscall_64|asm_\w+|el0t?_\w+|el1h?_\w+|system_call\w*|page_fault|java_start|runtime\.(main|mcall|morestack|systemstack)\S*)$`)
	// pidSuffix is the process ID after a name, as in stackcollapse-perf.pl --pid.
	pidSuffix = regexp.MustCompile(`-(\d+|\?)$`)
)

// words matches a line that may be the row of a table, a sentence, a list of numbers, or a comment of a
// configuration.
var words = regexp.MustCompile(`^\s|^; |\S(  |\t)\s*\S|([^\s()<>\[\],]+ ){4}|^\PL+$`)

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
