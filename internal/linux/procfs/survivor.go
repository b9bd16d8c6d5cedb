package procfs

import (
	"cmp"
	"errors"
	"io/fs"
	"iter"

	"golang.org/x/sys/unix"
)

// Survivor returns a thread of process pid that has not ended: the first thread, whose ID
// is pid, or else one of the others. It returns 0 if the process is gone. The files, links and
// memory of a process are those of any of its threads, but an ended thread has none.
func Survivor(pid int) (tid int) {
	if lives(Process(pid)) {
		return pid
	}
	for tid, t := range Process(pid).others() {
		if lives(t) {
			return tid
		}
	}
	return 0
}

// Through calls ask with the ID of process pid or, if its first thread has ended, of another of
// its threads: ask shall return ESRCH or [fs.ErrNotExist] for an ended thread.
func Through[T any](pid int, ask func(id int) (T, error)) (T, error) {
	answer, err := ask(pid)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		if tid := Survivor(pid); tid != 0 && tid != pid {
			return ask(tid)
		}
	}
	return answer, err
}

// Program returns the path below /proc at which the program of process pid can be opened, also if its
// first thread has ended.
func Program(pid int) string { return Path(cmp.Or(Survivor(pid), pid), "exe") }

// Tracers returns the tasks that trace threads of process pid: a tracer may attach to any of them. It
// reads the status of the first thread, and then of others until left is 0, which it decreases.
func Tracers(pid int, left *int) iter.Seq[int] {
	return func(yield func(tracer int) bool) {
		status, err := Process(pid).Status()
		if err != nil || status.TracerPID != 0 && !yield(status.TracerPID) || *left <= 0 {
			return
		}
		tids, _ := Threads(pid) // none if the process is gone
		for _, tid := range tids {
			if tid == pid {
				continue
			}
			if *left <= 0 {
				return
			}
			*left--
			status, err := Thread(pid, tid).Status()
			if err == nil && status.TracerPID != 0 && !yield(status.TracerPID) {
				return
			}
		}
	}
}

// others returns the threads of the process t by ID, none if t is a thread.
func (t Task) others() map[int]Task {
	threads, err := t.Threads()
	if err != nil {
		return nil // or it is gone
	}
	all := make(map[int]Task, len(threads))
	for _, tid := range threads {
		all[tid] = Process(tid)
	}
	return all
}

// lives reports whether a thread has not ended. The first thread of a process stays in
// /proc, as a zombie, until the others have ended too.
func lives(t Task) bool {
	stat, err := t.Stat()
	return err == nil && !stat.Exited()
}
