package perfdata

import (
	"errors"
	"strconv"
	"strings"
)

// event parses the output of perf script --show-mmap-events and --show-task-events. text
// begins at PERF_RECORD_, and before is the part of the line before it:
//
//	PERF_RECORD_MMAP2 PID/TID: [0xSTART(0xSIZE) @ OFFSET MAJ:MIN INO GEN]: r-xp PATH
//	PERF_RECORD_MMAP2 PID/TID: [0xSTART(0xSIZE) @ OFFSET <BUILDID>]: r-xp PATH
//	PERF_RECORD_MMAP PID/TID: [0xSTART(0xSIZE) @ OFFSET]: x PATH
//	PERF_RECORD_FORK(PID:TID):(PARENT:TID)
//	PERF_RECORD_COMM exec: NAME:PID/TID
func (s *script) event(before, text string) error {
	kind, rest, _ := strings.Cut(text, " ")
	switch {
	case kind == "PERF_RECORD_MMAP" || kind == "PERF_RECORD_MMAP2":
		return s.mmap(rest)
	case strings.HasPrefix(kind, "PERF_RECORD_FORK("):
		if strings.HasSuffix(strings.TrimRight(before, " "), " 0.000000:") {
			return nil // synthesized by perf, see collection.event
		}
		return s.fork(kind)
	case kind == "PERF_RECORD_COMM" && strings.HasPrefix(rest, "exec"):
		return s.exec(rest)
	}
	return nil
}

// mmap parses a mapping after its name.
func (s *script) mmap(text string) error {
	who, rest, ok1 := strings.Cut(text, "/")
	_, rest, ok2 := strings.Cut(rest, ": [")
	where, rest, ok3 := strings.Cut(rest, "]: ")
	prot, path, ok4 := strings.Cut(rest, " ")
	place, file, ok5 := strings.Cut(where, " @ ")
	start, size, ok6 := strings.Cut(strings.TrimSuffix(place, ")"), "(")
	offset, file := word(file)

	e := event{when: uint64(s.number), kind: eventMap}
	var ok7, ok8 bool
	e.start, ok7 = hexNumber(start)
	e.size, ok8 = hexNumber(size)
	pid, err1 := strconv.ParseInt(strings.TrimSpace(who), 10, 32)
	var err2 error
	e.offset, err2 = strconv.ParseUint(offset, 0, 64) // 0 or 0x…
	if !(ok1 && ok2 && ok3 && ok4 && ok5 && ok6 && ok7 && ok8) || err1 != nil || err2 != nil {
		return errors.New("mapping in an unknown format")
	}
	e.pid = int32(pid)
	m := Mapped{Path: path}
	if id := strings.TrimSpace(file); strings.HasPrefix(id, "<") && strings.HasSuffix(id, ">") {
		m.BuildID = id[1 : len(id)-1]
	}
	if pid == kernelPID {
		profiled, err := s.procs.mapKernel(m.Path, m.BuildID, e.start, e.offset)
		if profiled {
			s.stats.Mappings++
		}
		return err
	}
	if strings.Contains(prot, "x") && path != "" && path[0] != '[' && !strings.HasPrefix(path, "//") {
		var err error
		if e.binary, err = s.procs.binary(m); err != nil {
			return err
		}
	}
	if e.binary != nil {
		s.stats.Mappings++
	}
	return s.procs.applyOne(e)
}

// fork parses PERF_RECORD_FORK(PID:TID):(PARENT:TID).
func (s *script) fork(text string) error {
	_, rest, _ := strings.Cut(text, "(")
	child, rest, _ := strings.Cut(rest, ":")
	_, rest, _ = strings.Cut(rest, "(")
	parent, _, _ := strings.Cut(rest, ":")
	pid, err1 := strconv.ParseInt(child, 10, 32)
	ppid, err2 := strconv.ParseInt(parent, 10, 32)
	if err1 != nil || err2 != nil {
		return errors.New("fork in an unknown format")
	}
	if pid == ppid {
		return nil // a thread
	}
	return s.procs.applyOne(event{when: uint64(s.number), kind: eventFork, pid: int32(pid), parent: int32(ppid)})
}

// exec parses "exec: NAME:PID/TID", where the name may contain anything.
func (s *script) exec(text string) error {
	who, _, _ := strings.Cut(text[strings.LastIndexByte(text, ':')+1:], "/")
	pid, err := strconv.ParseInt(who, 10, 32)
	if err != nil {
		return errors.New("exec in an unknown format")
	}
	return s.procs.applyOne(event{when: uint64(s.number), kind: eventExec, pid: int32(pid)})
}
