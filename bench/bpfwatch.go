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

// scanInterval is the interval of searches for new BPF programs and maps of a tool that
// samples.
const scanInterval = 250 * time.Millisecond

// bpfWatch finds the BPF programs and maps of a process. It holds on to the
// programs, so that their statistics can be read after the process has ended.
type bpfWatch struct {
	pid      int
	programs map[ebpf.ProgramID]*ebpf.Program
	maps     uint64 // peak memory of all its maps, in bytes
}

func newBPFWatch(pid int) *bpfWatch {
	return &bpfWatch{pid: pid, programs: map[ebpf.ProgramID]*ebpf.Program{}}
}

// scan reads all file descriptors of the process. It skips descriptors that disappear
// meanwhile: tools load some programs only to try whether the kernel accepts them.
func (w *bpfWatch) scan() {
	process := "/proc/" + strconv.Itoa(w.pid)
	entries, err := os.ReadDir(process + "/fd")
	if err != nil {
		return // it has exited
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
		// A program, or a link to one.
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

// sampling reports whether a perf_event program has run.
func (w *bpfWatch) sampling() bool {
	_, runs, err := w.totals()
	return err == nil && runs > 0
}

// totals returns the run time of all programs, and the number of runs of perf_event
// programs.
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
