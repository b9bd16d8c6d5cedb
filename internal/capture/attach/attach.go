// Package attach attaches programs to the places of an event: tracepoints, functions of the
// kernel and of files, and USDT probes. It also fills the maps of bpf/field.h.
package attach

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"fulgur/internal/capture/events"
	"fulgur/internal/capture/target"
	"fulgur/internal/capture/uprobe"
	"fulgur/internal/linux/perfevent"
)

// links are a program's attachments.
type links struct {
	// multi are links to many functions of the kernel, single all others.
	multi  []link.Link
	single []io.Closer
	// only are the processes to which links are confined.
	only []int
}

// Close detaches the program.
func (l *links) Close() error {
	var errs []error
	for _, one := range l.multi {
		errs = append(errs, one.Close())
	}
	var uprobes []*uprobe.Link
	for _, one := range l.single {
		if u, ok := one.(*uprobe.Link); ok {
			uprobes = append(uprobes, u)
		} else {
			errs = append(errs, one.Close())
		}
	}
	errs = append(errs, uprobe.CloseAll(uprobes))
	*l = links{only: l.only}
	return errors.Join(errs...)
}

// missed returns how often the kernel did not run the program at a function because
// another probe ran, as far as the kernel counts that.
func (l *links) missed() (sum uint64, err error) {
	all := l.multi
	for _, one := range l.single {
		if attached, ok := one.(link.Link); ok {
			all = append(all, attached)
		}
	}
	for _, one := range all {
		info, err := one.Info()
		if errors.Is(err, link.ErrNotSupported) {
			continue // before Linux 5.15
		}
		if err != nil {
			return sum, fmt.Errorf("read the missed hits: %w", err)
		}
		if k := info.KprobeMulti(); k != nil {
			sum += k.Missed
		} else if p := info.PerfEvent(); p != nil && p.Kprobe() != nil {
			sum += p.Kprobe().Missed
		}
	}
	return sum, nil
}

// attachType returns the type of links that the event's program is loaded for, none for
// perf events.
func attachType(p *events.Probe) ebpf.AttachType {
	switch p.Event.Kind {
	case events.Kprobe, events.Kretprobe:
		// Such links can only be to functions that the function tracer knows.
		if len(p.Points) > 1 && features.HaveBPFLinkKprobeMulti() == nil {
			return ebpf.AttachTraceKprobeMulti
		}
	case events.Uprobe, events.Uretprobe, events.USDT:
		if features.HaveBPFLinkUprobeMulti() == nil {
			return ebpf.AttachTraceUprobeMulti
		}
	}
	return ebpf.AttachNone
}

// attach attaches a program to all places of an event, only in the processes of t if the
// kernel can do that. index is the same as for [Fill]. returned is the program for points that are
// [events.Point.Replaced], or nil if there are none.
func attach(p *events.Probe, index int, program, returned *ebpf.Program, t target.Target) (l links, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, l.Close())
		}
	}()
	switch p.Event.Kind {
	case events.Tracepoint:
		err = l.tracepoints(p.Tracepoints(index), program)
		return l, err
	case events.Kprobe, events.Kretprobe:
		if attachType(p) == ebpf.AttachTraceKprobeMulti {
			err = l.kprobeMulti(p, program)
		} else {
			err = l.kprobes(p, program)
		}
		return l, err
	}
	pids := uprobe.Processes(t)
	multi := attachType(p) == ebpf.AttachTraceUprobeMulti
	if multi && pids[0] != 0 {
		filters, err := uprobe.FiltersProcesses(program)
		if err != nil {
			return l, fmt.Errorf("attach %s: %w", p.Event, err)
		}
		if !filters {
			pids = []int{0}
		}
	}
	if pids[0] != 0 {
		l.only = pids
	}
	for i := range p.Files {
		for _, pid := range pids {
			if err := l.uprobes(p, i, uprobe.Options{PID: pid, Multi: multi}, program); err != nil {
				return l, err
			}
			if returned == nil {
				continue
			}
			if err := l.uprobes(p, i, uprobe.Options{PID: pid, Multi: multi, Returns: true}, returned); err != nil {
				return l, err
			}
		}
	}
	return l, nil
}

func (l *links) tracepoints(all []events.AttachPoint, program *ebpf.Program) error {
	cpus, err := perfevent.OnlineCPUs()
	if err != nil {
		return err
	}
	for _, point := range all {
		// With a program, an event on one CPU is for all.
		event, err := perfevent.Open(perfevent.Attr{Type: unix.PERF_TYPE_TRACEPOINT, Config: point.ID, Period: 1}, -1, cpus[0])
		if err != nil {
			return fmt.Errorf("attach %s: %w", point.Name, err)
		}
		l.single = append(l.single, event)
		if point.Cookie == 0 {
			err = event.AttachBPF(program.FD())
		} else {
			err = event.LinkBPF(program.FD(), point.Cookie)
		}
		if err != nil {
			return fmt.Errorf("attach %s: %w", point.Name, err)
		}
	}
	return nil
}

func (l *links) kprobeMulti(p *events.Probe, program *ebpf.Program) error {
	o := link.KprobeMultiOptions{}
	for i, point := range p.Points {
		o.Symbols = append(o.Symbols, point.Name)
		o.Cookies = append(o.Cookies, p.Cookie(i))
	}
	attach := link.KprobeMulti
	if p.Event.Kind == events.Kretprobe {
		attach = link.KretprobeMulti
	}
	attached, err := attach(program, o)
	if err != nil {
		return fmt.Errorf("attach %s: %w", p.Event, err)
	}
	l.multi = append(l.multi, attached)
	return nil
}

// kprobePMU exists if the kernel has kprobes.
const kprobePMU = "/sys/bus/event_source/devices/kprobe"

func (l *links) kprobes(p *events.Probe, program *ebpf.Program) error {
	// Without it, the library would write to tracefs, where a probe outlives fulgur.
	if _, err := os.Stat(kprobePMU); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("attach %s: the kernel was built without kprobes (CONFIG_KPROBE_EVENTS)", p.Event)
	}
	attach := link.Kprobe
	if p.Event.Kind == events.Kretprobe {
		attach = link.Kretprobe
	}
	for i, point := range p.Points {
		attached, err := attach(point.Name, program, &link.KprobeOptions{Cookie: p.Cookie(i)})
		if err != nil && events.IsGlob(p.Event.Name) {
			p.LeaveOut(point.Name, "the kernel does not allow tracing it")
			continue
		}
		if err != nil {
			return fmt.Errorf("attach %s: %w", point.Name, err)
		}
		l.single = append(l.single, attached)
	}
	if len(l.single) == 0 {
		return fmt.Errorf("attach %s: the kernel does not allow tracing any of the functions", p.Event)
	}
	return nil
}

// uprobes attaches program to the points of a file, as each says: to all at once, or to each.
func (l *links) uprobes(p *events.Probe, file int, each uprobe.Options, program *ebpf.Program) error {
	all := each
	semaphores := false
	for i, point := range p.Points {
		if point.File != file || point.Replaced != each.Returns {
			continue
		}
		all.Offsets = append(all.Offsets, point.Address)
		all.Semaphores = append(all.Semaphores, point.Semaphore)
		all.Cookies = append(all.Cookies, p.Cookie(i))
		semaphores = semaphores || point.Semaphore != 0
	}
	if !semaphores {
		all.Semaphores = nil
	}
	part := len(all.Offsets)
	if !each.Multi {
		part = 1
	}
	for i := 0; i < len(all.Offsets); i += part {
		o := each
		o.Offsets, o.Cookies = all.Offsets[i:i+part], all.Cookies[i:i+part]
		if semaphores {
			o.Semaphores = all.Semaphores[i : i+part]
		}
		attached, err := uprobe.Attach(p.Files[file], program, o)
		if err != nil {
			return fmt.Errorf("attach %s: %w", p.Event, err)
		}
		l.single = append(l.single, attached)
	}
	return nil
}
