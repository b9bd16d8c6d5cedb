package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/cilium/ebpf"
)

// scanInterval is how often a tool that samples is searched for further BPF
// programs and maps.
const scanInterval = 250 * time.Millisecond

// bpfWatch finds the BPF programs and maps of a process. It holds on to the
// programs, so that their statistics can be read after the process has ended.
type bpfWatch struct {
	pid      int
	programs map[ebpf.ProgramID]*ebpf.Program
	maps     uint64 // most memory of all its maps at a time, bytes
}

func newBPFWatch(pid int) *bpfWatch {
	return &bpfWatch{pid: pid, programs: map[ebpf.ProgramID]*ebpf.Program{}}
}

// scan looks at all file descriptors of the process. What is gone before it
// was looked at is passed over: tools load programs only to try whether the
// kernel takes them.
func (w *bpfWatch) scan() {
	process := "/proc/" + strconv.Itoa(w.pid)
	entries, err := os.ReadDir(process + "/fd")
	if err != nil {
		return // it has ended
	}
	var memory uint64
	seen := map[uint64]bool{}
	for _, e := range entries {
		if to, err := os.Readlink(process + "/fd/" + e.Name()); err != nil || !strings.HasPrefix(to, "anon_inode:bpf") {
			continue
		}
		info, err := os.ReadFile(process + "/fdinfo/" + e.Name())
		if err != nil {
			continue
		}
		fields := parseFdinfo(string(info))
		if id, ok := fields["map_id"]; ok && !seen[id] {
			seen[id] = true
			memory += fields["memlock"]
		}
		// Of a program, or of a link to one.
		if id, ok := fields["prog_id"]; ok {
			w.hold(ebpf.ProgramID(id))
		}
	}
	w.maps = max(w.maps, memory)
}

// parseFdinfo returns the fields of a /proc/PID/fdinfo file that are decimal
// numbers.
func parseFdinfo(text string) map[string]uint64 {
	fields := map[string]uint64{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(line, ":")
		if n, err := strconv.ParseUint(strings.TrimSpace(value), 10, 64); err == nil {
			fields[name] = n
		}
	}
	return fields
}

// hold opens a program unless it is open already.
func (w *bpfWatch) hold(id ebpf.ProgramID) {
	if _, ok := w.programs[id]; ok {
		return
	}
	if p, err := ebpf.NewProgramFromID(id); err == nil {
		w.programs[id] = p
	}
}

// sampling tells whether a perf_event program has run.
func (w *bpfWatch) sampling() bool {
	_, runs, err := w.totals()
	return err == nil && runs > 0
}

// totals returns the run time of all programs, and how often those ran that
// perf events call.
func (w *bpfWatch) totals() (runTime time.Duration, samples uint64, err error) {
	for id, p := range w.programs {
		stats, err := p.Stats()
		if err != nil {
			return 0, 0, fmt.Errorf("statistics of BPF program %d: %w", id, err)
		}
		runTime += stats.Runtime
		if p.Type() == ebpf.PerfEvent {
			samples += stats.RunCount
		}
	}
	return runTime, samples, nil
}

func (w *bpfWatch) close() error {
	var errs []error
	for _, p := range w.programs {
		errs = append(errs, p.Close())
	}
	return errors.Join(errs...)
}
