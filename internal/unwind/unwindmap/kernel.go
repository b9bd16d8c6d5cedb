package unwindmap

import (
	"errors"

	"fulgur/internal/unwind"
)

// kernel is the kernel's side of a [Loader]: [kernelMaps], or a fake in tests.
type kernel interface {
	pageMaps
	// writeRules writes rules, starting at index first.
	writeRules(first uint32, rules []unwind.Rule)
	// mappings returns the mappings of a layout for reading and writing.
	mappings(at span) []mapping
	// process, putProcess and deleteProcesses access the entries of processes. ok is false if
	// the process has no entry. The error errFull means that there is no room for a new one.
	process(pid int) (e entry, ok bool, err error)
	putProcess(pid int, e entry) error
	deleteProcesses(pids []int) error
	// forgetProcesses deletes the entries of all processes.
	forgetProcesses() error
	// forgetRequests makes programs repeat their earlier requests.
	forgetRequests()
	// answered implements [Loader.Answered].
	answered(until uint64)
	// wait returns when all programs that were running at the call have ended.
	wait() error
}

// errFull means that the map of processes is full.
var errFull = errors.New("no room for another process")
