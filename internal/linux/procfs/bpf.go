package procfs

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"time"
)

// BPF is the cost of the BPF programs and maps that a process has open.
type BPF struct {
	// Programs and Maps are the numbers of programs and maps. Each counts once, even with several
	// descriptors.
	Programs, Maps int
	// Memory is the memory of the maps and programs in bytes, as the kernel accounts for
	// it: before Linux 6.4 an estimate.
	Memory uint64
	// RunTime is the time that the programs ran while the kernel took statistics, see
	// [BPFStatistics].
	RunTime time.Duration
}

// BPF reads the descriptors' files below fdinfo; see bpf_prog_show_fdinfo and
// bpf_map_show_fdinfo in the kernel's kernel/bpf/syscall.c.
func (t Task) BPF() (sum BPF, err error) {
	fds, err := os.ReadDir(string(t) + "/fd")
	if err != nil {
		return sum, err
	}
	seen := map[string]bool{}
	for _, fd := range fds {
		to, err := os.Readlink(string(t) + "/fd/" + fd.Name())
		if err != nil || to != "anon_inode:bpf-prog" && to != "anon_inode:bpf-map" {
			continue // closed meanwhile, or another file
		}
		var id string
		one, err := read(t, "fdinfo/"+fd.Name(), func(text []byte) (BPF, error) {
			id = to + string(field(text, "prog_id")) + string(field(text, "map_id"))
			return ParseBPF(text)
		})
		if err != nil || seen[id] {
			continue // closed meanwhile, or another descriptor of the same
		}
		seen[id] = true
		sum.Programs += one.Programs
		sum.Maps += one.Maps
		sum.Memory += one.Memory
		sum.RunTime += one.RunTime
	}
	return sum, nil
}

// field returns the value of a field of an fdinfo file, nil if there is none.
func field(text []byte, name string) []byte {
	for line := range bytes.Lines(text) {
		if value, ok := bytes.CutPrefix(line, []byte(name+":")); ok {
			return bytes.TrimSpace(value)
		}
	}
	return nil
}

// ParseBPF parses the fdinfo file of a BPF program or map. Other fdinfo files have neither.
func ParseBPF(text []byte) (b BPF, err error) {
	for line := range bytes.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(string(line)), ":")
		value = strings.TrimSpace(value)
		var n uint64
		switch name {
		case "prog_type":
			b.Programs = 1
		case "map_type":
			b.Maps = 1
		case "memlock":
			if b.Memory, err = strconv.ParseUint(value, 10, 64); err != nil {
				return BPF{}, err
			}
		case "run_time_ns":
			if n, err = strconv.ParseUint(value, 10, 63); err != nil {
				return BPF{}, err
			}
			b.RunTime = time.Duration(n)
		}
	}
	return b, nil
}

// BPFStatistics reports whether the kernel measures how long BPF programs run: whether
// kernel.bpf_stats_enabled is set.
func BPFStatistics() bool {
	b, err := os.ReadFile("/proc/sys/kernel/bpf_stats_enabled")
	return err == nil && strings.TrimSpace(string(b)) == "1"
}
