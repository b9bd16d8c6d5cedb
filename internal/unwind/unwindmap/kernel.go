package unwindmap

import (
	"errors"

	"fulgur/internal/unwind"
)

// kernel is what a [Loader] writes: [Maps], or a stand-in.
type kernel interface {
	pageMaps
	// writeRules writes rules from the given index on.
	writeRules(first uint32, rules []unwind.Rule)
	// mappings returns the mappings of a layout, to read and write.
	mappings(at run) []mapping
	// process, putProcess and deleteProcess are about the entry of a process.
	// There may be none (ok is false), or no room for one (errFull).
	process(pid int) (e entry, ok bool, err error)
	putProcess(pid int, e entry) error
	deleteProcess(pid int) error
	// forgetProcesses deletes the entries of all.
	forgetProcesses() error
	// forgetRequests has programs ask again for what they asked before.
	forgetRequests()
	// wait returns when no program runs any more that ran before.
	wait() error
}

// errFull: the map of processes is full.
var errFull = errors.New("no room for another process")
