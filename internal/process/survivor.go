package process

import "fulgur/internal/linux/procfs"

// survivor returns a thread of process pid that has not ended: the first thread, whose ID
// is pid, or else one of the others. It returns 0 if the process is gone. /proc does not
// show the files and mappings of an ended thread, so use the survivor's directory.
func survivor(pid int) (tid int) {
	if lives(pid) {
		return pid
	}
	threads, err := procfs.Threads(pid)
	if err != nil {
		return 0
	}
	for _, tid := range threads {
		if lives(tid) {
			return tid
		}
	}
	return 0
}

// lives reports whether thread tid has not ended. The first thread of a process stays in
// /proc, as a zombie, until the others have ended too.
func lives(tid int) bool {
	stat, err := procfs.Process(tid).Stat()
	return err == nil && !stat.Exited()
}
