package procfs

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Status has fields of /proc/PID/status, see proc_pid_status(5). Fields that the kernel
// does not write are zero; it always writes TGID, UIDs and CapEff.
type Status struct {
	// TGID is the ID of the process. TracerPID is the ID of the thread that traces the
	// task, or 0.
	TGID, TracerPID int
	// NSPID is the task's ID in its own PID namespace, 0 if the kernel was built
	// without PID namespaces.
	NSPID int
	// UIDs are the real, effective, saved and file system user IDs.
	UIDs [4]uint32
	// PeakResident is the maximum of the process's resident memory, in bytes.
	PeakResident uint64
	// Resident is the process's resident memory now, in bytes.
	Resident uint64
	// SigPnd are the signals that are pending for the thread, and ShdPnd those
	// pending for the process. SigBlk are the signals that the thread blocks,
	// except those that it waits for in sigtimedwait(2), and SigIgn those that the
	// process ignores. Bit n is signal n+1.
	SigPnd, ShdPnd, SigBlk, SigIgn uint64
	// CapEff are the capabilities in effect, CapBnd those in the bounding set. Bit
	// n is capability n.
	CapEff, CapBnd uint64
	// Switches is the number of context switches of the thread so far.
	Switches uint64
	// NoNewPrivs is set if execve(2) gives no privileges, Seccomp if a seccomp
	// filter or mode applies.
	NoNewPrivs, Seccomp bool
}

// Status reads the task's status file.
func (t Task) Status() (Status, error) { return read(t, "status", ParseStatus) }

// ParseStatus parses a /proc/PID/status file. The kernel escapes the name in it, so that
// no program can forge a line.
func ParseStatus(b []byte) (Status, error) {
	var s Status
	missing := []string{"Tgid", "Uid", "CapEff"}
	for line := range strings.Lines(string(b)) {
		key, value, ok := strings.Cut(line, ":")
		if !ok {
			continue
		}
		value = strings.TrimSpace(value)
		var err error
		switch key {
		case "Tgid":
			s.TGID, err = strconv.Atoi(value)
		case "TracerPid":
			s.TracerPID, err = strconv.Atoi(value)
		case "NSpid": // outermost to innermost
			s.NSPID, err = strconv.Atoi(value[strings.LastIndexByte(value, '\t')+1:])
		case "Uid":
			s.UIDs, err = parseUIDs(value)
		case "VmHWM":
			s.PeakResident, err = parseKiB(value)
		case "VmRSS":
			s.Resident, err = parseKiB(value)
		case "SigPnd":
			s.SigPnd, err = parseSet(value)
		case "ShdPnd":
			s.ShdPnd, err = parseSet(value)
		case "SigBlk":
			s.SigBlk, err = parseSet(value)
		case "SigIgn":
			s.SigIgn, err = parseSet(value)
		case "CapEff":
			s.CapEff, err = parseSet(value)
		case "CapBnd":
			s.CapBnd, err = parseSet(value)
		case "voluntary_ctxt_switches", "nonvoluntary_ctxt_switches":
			var n uint64
			n, err = strconv.ParseUint(value, 10, 64)
			s.Switches += n
		case "NoNewPrivs":
			s.NoNewPrivs = value != "0"
		case "Seccomp":
			s.Seccomp = value != "0"
		}
		if err != nil {
			return Status{}, fmt.Errorf("%s in status: %w", key, err)
		}
		if i := slices.Index(missing, key); i >= 0 {
			missing = slices.Delete(missing, i, i+1)
		}
	}
	if len(missing) > 0 {
		return Status{}, fmt.Errorf("status without %s", strings.Join(missing, ", "))
	}
	return s, nil
}

// parseUIDs parses the IDs of a Uid line.
func parseUIDs(s string) (ids [4]uint32, err error) {
	fields := strings.Fields(s)
	if len(fields) != len(ids) {
		return ids, fmt.Errorf("%d IDs, want %d", len(fields), len(ids))
	}
	for i, field := range fields {
		id, err := strconv.ParseUint(field, 10, 32)
		if err != nil {
			return ids, err
		}
		ids[i] = uint32(id)
	}
	return ids, nil
}

// parseKiB returns an amount of memory, "8 kB", in bytes.
func parseKiB(s string) (uint64, error) {
	number, ok := strings.CutSuffix(s, " kB")
	if !ok {
		return 0, fmt.Errorf("%q is not in kB", s)
	}
	n, err := strconv.ParseUint(number, 10, 53)
	return n << 10, err
}

// parseSet parses a set of bits in hexadecimal.
func parseSet(s string) (uint64, error) { return strconv.ParseUint(s, 16, 64) }
