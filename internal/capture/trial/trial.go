// Package trial has trials for package doctor: they load and attach programs
// that do nothing, and open events that count nothing.
package trial

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"fulgur/internal/capture/locks"
	"fulgur/internal/capture/offcpu"
	"fulgur/internal/capture/probe"
	"fulgur/internal/capture/source"
	"fulgur/internal/capture/sources"
	"fulgur/internal/doctor"
	"fulgur/internal/linux/perfevent"
	"fulgur/internal/linux/tracefs"
	ptrace "fulgur/internal/linux/tracing"
	"fulgur/internal/symbols/elffile"
	"fulgur/internal/symbols/ksym"
	"fulgur/internal/symbols/symbolize"
)

// All returns the trials of everything in area capture.
func All() doctor.Trials {
	trials := doctor.Trials{
		doctor.ProbePerfEvent:     doctor.Quietly(perfEvent),
		doctor.ProbeUserEvents:    doctor.Quietly(userEvents),
		doctor.ProbeStops:         doctor.Quietly(ptrace.Permitted),
		doctor.ProbeRing:          doctor.Quietly(ring),
		doctor.ProbeTracing:       doctor.Quietly(tracing),
		doctor.ProbeRawTracepoint: doctor.Quietly(rawTracepoint),
		doctor.ProbeIterator:      doctor.Quietly(iterator),
		doctor.ProbeFentry:        doctor.Quietly(fentry),
		doctor.ProbeKprobe:        doctor.Quietly(kprobe),
		doctor.ProbeUprobe:        doctor.Quietly(ownUprobe),
		doctor.ProbeTracepoint:    doctor.Quietly(tracepoint),
		doctor.ProbeContention:    doctor.Quietly(contention),
		doctor.ProbeKernelNames:   doctor.Quietly(kernelNames),
		doctor.ProbeSleepers:      doctor.Quietly(sleepers),
		doctor.ProbeCycles:        cycles,
	}
	for _, subject := range sources.All() {
		trials[doctor.ProbePrograms(subject.Command())] = doctor.Quietly(func() error { return loadSource(subject) })
	}
	return trials
}

// function is a kernel function that every kernel has, that can be traced, and that
// rarely runs: it clones a task.
const function = "kernel_clone"

// attach loads a program that does nothing, attaches it and removes it.
func attach(spec ebpf.ProgramSpec, to func(*ebpf.Program) (io.Closer, error)) error {
	spec.Instructions = asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}
	spec.License = "GPL"
	program, err := ebpf.NewProgram(&spec)
	if err != nil {
		return fmt.Errorf("load: %w", err)
	}
	defer program.Close()
	attached, err := to(program)
	if err != nil {
		return fmt.Errorf("attach: %w", err)
	}
	return attached.Close()
}

func userEvents() error {
	clock, err := perfevent.ParseEvent("cpu-clock")
	if err != nil {
		return err
	}
	return perfevent.TryUser(clock)
}

func perfEvent() error {
	return attach(ebpf.ProgramSpec{Type: ebpf.PerfEvent}, func(p *ebpf.Program) (io.Closer, error) {
		clock, err := perfevent.ParseEvent("cpu-clock")
		if err != nil {
			return nil, err
		}
		attr := clock.Attr()
		attr.Disabled, attr.Frequency = true, 1
		// On a CPU, which needs more privileges than on our own thread.
		event, err := perfevent.Open(attr, -1, 0)
		if err != nil {
			return nil, err
		}
		if err := event.AttachBPF(p.FD()); err != nil {
			return nil, errors.Join(err, event.Close())
		}
		return event, nil
	})
}

func ring() error {
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.RingBuf, MaxEntries: uint32(unix.Getpagesize())})
	if err != nil {
		return err
	}
	return m.Close()
}

func tracing() error {
	spec := ebpf.ProgramSpec{Type: ebpf.Tracing, AttachType: ebpf.AttachTraceRawTp, AttachTo: "sched_process_free"}
	return attach(spec, attachTracing)
}

func fentry() error {
	return attach(ebpf.ProgramSpec{Type: ebpf.Tracing, AttachType: ebpf.AttachTraceFEntry, AttachTo: function}, attachTracing)
}

func attachTracing(p *ebpf.Program) (io.Closer, error) {
	return link.AttachTracing(link.TracingOptions{Program: p})
}

func rawTracepoint() error {
	return attach(ebpf.ProgramSpec{Type: ebpf.RawTracepoint}, func(p *ebpf.Program) (io.Closer, error) {
		return link.AttachRawTracepoint(link.RawTracepointOptions{Name: "sched_process_free", Program: p})
	})
}

func kprobe() error {
	if _, err := os.Stat("/sys/bus/event_source/devices/kprobe"); errors.Is(err, fs.ErrNotExist) {
		return doctor.ErrNoKprobes
	}
	return attach(ebpf.ProgramSpec{Type: ebpf.Kprobe}, func(p *ebpf.Program) (io.Closer, error) {
		return link.Kprobe(function, p, nil)
	})
}

// ownUprobe attaches to the first instruction of this program, in this process only.
func ownUprobe() error {
	own, err := elffile.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	defer own.Close()
	entry, ok := own.Offset(own.Entry())
	if !ok {
		return errors.New("fulgur's file has no code")
	}
	file, err := link.OpenExecutable("/proc/self/exe")
	if err != nil {
		return err
	}
	return attach(ebpf.ProgramSpec{Type: ebpf.Kprobe}, func(p *ebpf.Program) (io.Closer, error) {
		return file.Uprobe("entry", p, &link.UprobeOptions{Address: entry, PID: os.Getpid()})
	})
}

// tracepoint uses one that rarely occurs.
func tracepoint() (err error) {
	tracing, err := tracefs.Open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tracing.Close()) }()
	format, err := tracing.Tracepoint("sched", "sched_process_exec")
	if err != nil {
		return err
	}
	return attach(ebpf.ProgramSpec{Type: ebpf.TracePoint}, func(p *ebpf.Program) (io.Closer, error) {
		event, err := perfevent.Open(perfevent.Attr{Type: unix.PERF_TYPE_TRACEPOINT, Config: format.ID, Period: 1}, -1, 0)
		if err != nil {
			return nil, err
		}
		if err := event.AttachBPF(p.FD()); err != nil {
			return nil, errors.Join(err, event.Close())
		}
		return event, nil
	})
}

func iterator() error {
	spec := ebpf.ProgramSpec{Type: ebpf.Tracing, AttachType: ebpf.AttachTraceIter, AttachTo: "task"}
	return attach(spec, func(p *ebpf.Program) (io.Closer, error) {
		tasks, err := link.AttachIter(link.IterOptions{Program: p})
		if err != nil {
			return nil, err
		}
		run, err := tasks.Open()
		if err == nil {
			_, err = io.Copy(io.Discard, run)
			err = errors.Join(err, run.Close())
		}
		if err != nil {
			return nil, errors.Join(err, tasks.Close())
		}
		return tasks, nil
	})
}

func kernelNames() error {
	names, err := ksym.Open(symbolize.Options{})
	if err != nil {
		return err
	}
	return names.Close()
}

// contention checks whether the kernel reports waits for its locks.
func contention() error {
	kernel, err := probe.NewKernel(nil)
	if err != nil {
		return err
	}
	has, err := locks.HasContention(kernel)
	if err == nil && !has {
		return doctor.ErrNoContention
	}
	return err
}

// sleepers checks whether the stacks of threads that do not run can be read.
func sleepers() error {
	kernel, err := probe.NewKernel(nil)
	if err != nil {
		return err
	}
	reads, err := offcpu.ReadsSleepers(kernel)
	if err == nil && !reads {
		return doctor.ErrNoSleepers
	}
	return err
}

// smallest are minimal options of a source.
var smallest = probe.Options{MaxDepth: 1, CountEntries: 1}

// loadSource loads the programs of a source.
func loadSource(subject source.Subject) error {
	loaded, err := subject.Load(smallest)
	for _, s := range loaded {
		err = errors.Join(err, s.Close())
	}
	return err
}

func cycles() (string, error) {
	specs, err := perfevent.DefaultEvents()
	switch {
	case err != nil:
		return "", err
	case specs[0].IsTime():
		return "", doctor.ErrNoPMU
	}
	return doctor.FoundCycles, nil
}
