package trigger

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"fulgur/internal/capture/target"
	"fulgur/internal/profile"
)

// Wait is a period off the CPU of a thread of the target.
type Wait struct {
	PID, TID int
	profile.OffCPU
}

// Marker is a hit of an event, or an interval, of a thread.
type Marker struct {
	PID, TID int
	profile.MarkerType
	profile.Marker
}

// value returns the value of a field, "" if there is none.
func (m Marker) value(field string) string {
	for i, name := range m.Fields {
		if name == field && i < len(m.Values) {
			return m.Values[i]
		}
	}
	return ""
}

// is reports whether the marker is a hit of a tracepoint.
func (m Marker) is(tracepoint string) bool {
	return strings.TrimPrefix(m.Name, "tracepoint:") == tracepoint
}

func needsWaits(*Trigger) Needs { return Needs{Waits: true} }

// openWait watches waits. fulgur's own ones, in a recording of the machine, do not count.
func openWait(t *Trigger, _ Host) (watch, error) {
	return watch{wait: func(w Wait) *Firing {
		waited := w.Duration - w.Runnable
		if w.State == profile.StateRunnable || waited <= t.limit || w.PID == os.Getpid() {
			return nil
		}
		return t.firing(w.Start+w.Duration, w.Start, timeText(waited), w.PID, w.TID)
	}}, nil
}

// openRunQueue watches the time that threads wait for a CPU.
func openRunQueue(t *Trigger, _ Host) (watch, error) {
	return watch{wait: func(w Wait) *Firing {
		waited := w.Runnable
		if w.State == profile.StateRunnable {
			waited = w.Duration
		}
		if waited <= t.limit || w.PID == os.Getpid() {
			return nil
		}
		end := w.Start + w.Duration
		return t.firing(end, end-waited, timeText(waited), w.PID, w.TID)
	}}, nil
}

func needsLatency(t *Trigger) Needs { return Needs{Begin: t.of, Until: t.until} }

// LatencyEvent is the name of the value of the intervals of a trigger in a recording.
func LatencyEvent(begin, until string) string {
	if until == "" {
		return "latency " + begin
	}
	return "latency " + begin + ".." + until
}

// openLatency watches intervals.
func openLatency(t *Trigger, _ Host) (watch, error) {
	event := LatencyEvent(t.of, t.until)
	return watch{marker: func(m Marker) *Firing {
		if m.Event != event || m.Weight <= t.limit {
			return nil
		}
		return t.firing(m.Time+m.Weight, m.Time, timeText(m.Weight), m.PID, m.TID)
	}}, nil
}

// The events of the end of a process. The first is in its last thread, and the second in the thread that
// the signal meets.
const (
	exitEvent    = "syscalls:sys_enter_exit_group"
	deliverEvent = "signal:signal_deliver"
	victimEvent  = "oom:mark_victim"
)

// deadly are the signals that mean a crash: those whose default is a core dump, and SIGKILL.
var deadly = []unix.Signal{
	unix.SIGQUIT, unix.SIGILL, unix.SIGTRAP, unix.SIGABRT, unix.SIGBUS, unix.SIGFPE, unix.SIGKILL, unix.SIGSEGV,
	unix.SIGXCPU, unix.SIGXFSZ, unix.SIGSYS,
}

// harmless are the signals that do not end a process by default.
var harmless = []unix.Signal{unix.SIGCHLD, unix.SIGCONT, unix.SIGURG, unix.SIGWINCH, unix.SIGSTOP, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU}

// delivered is the event of signals that end a process.
func delivered() Event {
	terms := []string{"sa_handler == 0"}
	for _, s := range harmless {
		terms = append(terms, fmt.Sprintf("sig != %d", s))
	}
	return Event{Name: deliverEvent, Filter: strings.Join(terms, " && ")}
}

// killedBy returns the signal that ends the process of a marker, or 0.
func killedBy(m Marker) unix.Signal {
	if !m.is(deliverEvent) {
		return 0
	}
	if handler, err := strconv.ParseUint(m.value("sa_handler"), 0, 64); err != nil || handler != 0 {
		return 0
	}
	n, err := strconv.Atoi(m.value("sig"))
	if err != nil || slices.Contains(harmless, unix.Signal(n)) {
		return 0
	}
	return unix.Signal(n)
}

func needsExit(*Trigger) Needs {
	return Needs{Events: []Event{{Name: exitEvent}, delivered()}}
}

// openExit watches the ends of the processes that were given.
func openExit(t *Trigger, host Host) (watch, error) {
	if host.Target.Scope != target.Processes && host.Target.Scope != target.Command {
		return watch{}, errors.New("it needs a process or a command: in others, programs end all the time; crash works for all targets")
	}
	return watch{marker: func(m Marker) *Firing {
		if !slices.Contains(host.Target.PIDs, m.PID) {
			return nil
		}
		if m.is(exitEvent) {
			return t.firing(m.Time, m.Time, "code "+exitCode(m.value("error_code")), m.PID, m.TID)
		}
		if s := killedBy(m); s != 0 {
			return t.firing(m.Time, m.Time, signalName(s), m.PID, m.TID)
		}
		return nil
	}}, nil
}

// exitCode returns the low 8 bits of the argument of exit, which the parent gets.
func exitCode(argument string) string {
	n, err := strconv.ParseInt(argument, 0, 64)
	if err != nil {
		return argument
	}
	return strconv.Itoa(int(uint8(n)))
}

func needsCrash(*Trigger) Needs { return Needs{Events: []Event{delivered()}} }

// openCrash watches deadly signals of all processes of the target.
func openCrash(t *Trigger, _ Host) (watch, error) {
	return watch{marker: func(m Marker) *Firing {
		if s := killedBy(m); slices.Contains(deadly, s) {
			return t.firing(m.Time, m.Time, signalName(s), m.PID, m.TID)
		}
		return nil
	}}, nil
}

// signalName returns the name of a signal, or its number if it has none.
func signalName(s unix.Signal) string { return cmp.Or(unix.SignalName(s), fmt.Sprintf("signal %d", s)) }

func needsOOM(*Trigger) Needs {
	return Needs{Events: []Event{{Name: victimEvent, Everywhere: true}}}
}

// openOOM watches the victims of the kernel. The thread is that which asked for memory.
func openOOM(t *Trigger, host Host) (watch, error) {
	return watch{marker: func(m Marker) *Firing {
		if !m.is(victimEvent) {
			return nil
		}
		victim, err := strconv.Atoi(m.value("pid"))
		if err != nil || !host.has(victim) {
			return nil
		}
		text := "killed process " + m.value("pid")
		for _, f := range []string{"comm", "total_vm", "anon_rss", "file_rss", "shmem_rss"} { // since Linux 6.9
			if v := m.value(f); v != "" {
				unit := " kB"
				if f == "comm" {
					unit = ""
				}
				text += fmt.Sprintf(", %s %s%s", f, v, unit)
			}
		}
		return t.firing(m.Time, m.Time, text, m.PID, m.TID)
	}}, nil
}
