package main

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"

	"fulgur/internal/linux/procfs"
)

// holdings are the resources that a program holds at one time. Sizes are in bytes.
type holdings struct {
	Files     map[string]int // descriptors by kind
	Rings     uint64         // mapped rings of perf events
	Anonymous uint64         // resident memory of its own
	Resident  uint64
	Threads   int
	BPF       procfs.BPF
	PerCPU    uint64 // the part of BPF.Memory in maps with a value for each CPU
	Layouts   int    // processes in the kernel's map of unwind tables
}

// hold returns the holdings of process pid.
func hold(pid int) (h holdings, err error) {
	if h.Files, err = descriptors(pid); err != nil {
		return h, err
	}
	if h.Rings, err = rings(pid); err != nil {
		return h, err
	}
	if h.Anonymous, err = anonymous(pid); err != nil {
		return h, err
	}
	status, err := procfs.Process(pid).Status()
	if err != nil {
		return h, err
	}
	h.Resident = status.Resident
	stat, err := procfs.Process(pid).Stat()
	if err != nil {
		return h, err
	}
	h.Threads = stat.Threads
	if h.BPF, err = procfs.Process(pid).BPF(); err != nil {
		return h, err
	}
	err = h.maps(pid)
	return h, err
}

// Kinds of descriptors.
const (
	perfEvents   = "perf events"
	regularFiles = "files"
	others       = "others"
)

// descriptors counts the descriptors of process pid.
func descriptors(pid int) (map[string]int, error) {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	kinds := map[string]int{}
	for _, e := range entries {
		to, err := os.Readlink(dir + "/" + e.Name())
		if err != nil {
			continue // closed meanwhile
		}
		switch {
		case to == "anon_inode:[perf_event]":
			kinds[perfEvents]++
		case strings.HasPrefix(to, "/"):
			kinds[regularFiles]++
		default:
			kinds[others]++
		}
	}
	return kinds, nil
}

// rings returns the size of the rings of perf events that process pid maps.
func rings(pid int) (sum uint64, err error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		line := lines.Text()
		if !strings.HasSuffix(line, "anon_inode:[perf_event]") {
			continue
		}
		var from, to uint64
		if _, err := fmt.Sscanf(line, "%x-%x", &from, &to); err != nil {
			return 0, fmt.Errorf("parse a mapping: %q: %w", line, err)
		}
		sum += to - from
	}
	return sum, nil
}

// anonymous returns the anonymous resident memory of process pid.
func anonymous(pid int) (uint64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, value, _ := strings.Cut(string(status), "\nRssAnon:")
	kilobytes, _, ok := strings.Cut(strings.TrimSpace(value), " kB")
	if !ok {
		return 0, errors.New("no RssAnon in the status of a process")
	}
	n, err := strconv.ParseUint(kilobytes, 10, 64)
	return n << 10, err
}

// maps adds the BPF maps of process pid to h.
func (h *holdings) maps(pid int) error {
	dir := fmt.Sprintf("/proc/%d/", pid)
	entries, err := os.ReadDir(dir + "fdinfo")
	if err != nil {
		return err
	}
	seen := map[uint64]bool{} // a map may have several descriptors
	for _, e := range entries {
		if to, err := os.Readlink(dir + "fd/" + e.Name()); err != nil || to != "anon_inode:bpf-map" {
			continue
		}
		text, err := os.ReadFile(dir + "fdinfo/" + e.Name())
		if err != nil {
			continue // closed meanwhile
		}
		_, value, _ := strings.Cut(string(text), "\nmap_id:")
		id, err := strconv.ParseUint(strings.TrimSpace(strings.SplitN(value, "\n", 2)[0]), 10, 32)
		if err != nil {
			return fmt.Errorf("parse the ID of a BPF map: %w", err)
		}
		if seen[id] {
			continue
		}
		seen[id] = true
		if err := h.add(ebpf.MapID(id), text); err != nil {
			return err
		}
	}
	return nil
}

// add adds a map with its fdinfo.
func (h *holdings) add(id ebpf.MapID, fdinfo []byte) error {
	m, err := ebpf.NewMapFromID(id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // closed meanwhile
	}
	if err != nil {
		return err
	}
	defer m.Close()
	if m.Type() == ebpf.PerCPUArray {
		b, err := procfs.ParseBPF(fdinfo)
		if err != nil {
			return err
		}
		h.PerCPU += b.Memory
	}
	info, err := m.Info()
	if err != nil {
		return err
	}
	if m.Type() != ebpf.Hash || !strings.HasPrefix(info.Name, "unwind_proc") {
		return nil
	}
	var pid uint32
	value := make([]byte, m.ValueSize())
	each := m.Iterate()
	for each.Next(&pid, &value) {
		h.Layouts++
	}
	if err := each.Err(); !errors.Is(err, ebpf.ErrIterationAborted) { // it changes meanwhile
		return err
	}
	return nil
}
