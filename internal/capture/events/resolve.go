package events

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/cilium/ebpf/btf"

	"fulgur/internal/bpf"
	"fulgur/internal/files/safeopen"
	"fulgur/internal/linux/tracefs"
	"fulgur/internal/message/usage"
	"fulgur/internal/symbols/elffile"
	"fulgur/internal/symbols/rseq"
	"fulgur/internal/symbols/symbolize"
)

// DefaultMaxProbes is the default of [Resolver.MaxProbes]. Attaching and detaching this
// many takes seconds on kernels without links for many functions.
const DefaultMaxProbes = 1000

// Point is a place to attach a program to.
type Point struct {
	// Name is the name in messages.
	Name string
	// ID is the number of a tracepoint.
	ID uint64
	// File is the index of the file in [Probe.Files].
	File int
	// Address is the address of a function of the kernel, 0 if unknown, or an offset in a
	// file.
	Address uint64
	// Semaphore is the offset in the file of the counter that enables a USDT probe, 0 if
	// it has none.
	Semaphore uint64
	// Replaced is set if the kernel replaces the return address of the function at the point, to run
	// the program after the return: a uretprobe.
	Replaced bool
	// Place is the index of its fields in [Probe.Places].
	Place int
	// Shown are the fields to show, in the order of the programs' fields.
	Shown []Shown
	// First is the index of the first point of the same event with the same fields to show.
	// Programs do not distinguish these points.
	First int
}

// Probe is an event with its attach points.
type Probe struct {
	Event  Event
	Points []Point
	// Places are the fields of points, as the programs read them.
	Places []layout
	// Files are the files of uprobes and USDT probes. [Probe.Close] closes them.
	Files []*safeopen.File
	// ByPoint is set if programs distinguish the points. Unnamed is set if results do not.
	ByPoint, Unnamed bool
	// Go is set if the points are in Go functions. Those of a uprobe are after the check of the
	// stack, since Go may execute a function again from its start.
	Go bool
	// OtherRegisters is set if functions may not preserve the registers that functions in C preserve.
	OtherRegisters bool
	// LeftOut are the matches of a pattern, and files of processes, that are left out, by the reason.
	LeftOut map[string]LeftOut
	unread  map[string]bool // the reasons why files are
	// sequences are those of the files, by index, in which no breakpoint must be.
	sequences  []*rseq.Sequences
	places     []place          // of the files, by index
	elfs       []*elffile.File  // the files, by index
	tables     []elffile.Tables // with the symbols of the files, by index
	uretprobes bool             // see [Resolver.Uretprobes]
	// rawSyscalls maps a direction to the ID of its tracepoint of raw_syscalls, which
	// replaces the tracepoints of single system calls; see [Probe.BySyscall].
	rawSyscalls map[string]uint64
}

// LeftOut are matches of a pattern, or files, that are left out for the same reason.
type LeftOut struct {
	// Names are the first names, Count is the number of all.
	Names []string
	Count int
}

// maxNamed is the maximum number of listed names for each reason to leave places out.
const maxNamed = 5

// Close closes the files. The probe's programs can stay attached.
func (p *Probe) Close() error {
	var errs []error
	for _, f := range p.Files {
		errs = append(errs, f.Close())
	}
	for _, t := range p.tables {
		errs = append(errs, t.Close())
	}
	p.Files, p.tables = nil, nil
	return errors.Join(errs...)
}

// String lists the matches.
func (o LeftOut) String() string {
	text := strings.Join(o.Names, ", ")
	if more := o.Count - len(o.Names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// ReplacesReturns reports whether the kernel replaces return addresses.
func (p *Probe) ReplacesReturns() bool {
	return slices.ContainsFunc(p.Points, func(point Point) bool { return point.Replaced })
}

// AtEntry reports whether, at each point that is not [Point.Replaced], the function of a program has no
// frame: the point is its entry, or a return instruction.
func (p *Probe) AtEntry() bool {
	return p.Event.Kind == Uprobe && p.Event.Offset == 0 && !isPart(p.Event.Name) || p.Event.Kind == Uretprobe
}

// LeaveOut notes that a match is left out.
func (p *Probe) LeaveOut(name, reason string) {
	if p.LeftOut == nil {
		p.LeftOut = map[string]LeftOut{}
	}
	out := p.LeftOut[reason]
	if slices.Contains(out.Names, name) {
		return // in another symbol table
	}
	if out.Count++; len(out.Names) < maxNamed {
		out.Names = append(out.Names, name)
	}
	p.LeftOut[reason] = out
}

// NeedsCookies reports whether a program must know at which point it runs.
func (p *Probe) NeedsCookies() bool {
	for i := range p.Points {
		if p.Cookie(i) != 0 {
			return true
		}
	}
	return false
}

// Cookie returns the cookie of a point; see bpf/field.h.
func (p *Probe) Cookie(point int) uint64 {
	cookie := uint64(p.Points[point].Place)
	if p.ByPoint {
		cookie |= uint64(p.Points[point].First) << 32
	}
	return cookie
}

// unite sets First of the points.
func (p *Probe) unite() {
	firsts := make(map[string]int, len(p.Points))
	for i := range p.Points {
		point := &p.Points[i]
		first, ok := firsts[point.Name]
		if !ok || !slices.Equal(p.Points[first].Shown, point.Shown) {
			first = i
			firsts[point.Name] = i
		}
		point.First = first
	}
}

// NameOf returns the name of a point, with its kind unless it is a tracepoint's. If programs
// do not distinguish several points, it is the event's name.
func (p *Probe) NameOf(point Point) string {
	switch {
	case !p.ByPoint && len(p.Points) > 1:
		return p.Event.String()
	case p.Event.Kind == Tracepoint:
		return point.Name
	}
	return p.Event.Kind.String() + ":" + point.Name
}

// Distinguishes reports whether the results name one of several events for each hit.
func (p *Probe) Distinguishes() bool {
	return p.ByPoint && !p.Unnamed && slices.ContainsFunc(p.Points, func(other Point) bool { return other.Name != p.Points[0].Name })
}

// EventOf returns the event that has a point alone, or the other places of the same name. A
// number that is not a point's belongs to the whole event.
func (p *Probe) EventOf(point uint64) Event {
	e := p.Event
	if !p.Distinguishes() || point >= uint64(len(p.Points)) {
		return e
	}
	e.Name = p.Points[point].Name
	if e.Kind == Tracepoint || e.Kind == USDT {
		e.Group, e.Name, _ = strings.Cut(e.Name, ":")
	}
	return e
}

// PointOf returns the first of the points with a cookie; ok is false if there is none.
func (p *Probe) PointOf(cookie uint64) (point Point, ok bool) {
	if i := cookie >> 32; i < uint64(len(p.Points)) {
		return p.Points[i], true
	}
	return Point{}, false
}

// Layout returns the fields of all places, in the order of bpf/field.h.
func (p *Probe) Layout() []bpf.CountField {
	var fields []bpf.CountField
	for _, l := range p.Places {
		fields = append(fields, l[:]...)
	}
	return fields
}

// Resolver finds the attach points of the events of a run.
type Resolver struct {
	// PIDs are the processes in which files are looked up; none means at their paths here.
	PIDs []int
	// MaxProbes is the maximum number of attach points of an event.
	MaxProbes int
	// Types caches the kernel's BTF.
	Types *btf.Cache
	// Uretprobes allows replacing the return address of a function of a program, if its return
	// instructions are unknown. The program can end by it: if a call is left by an exception, longjmp
	// or the end of its thread, or if the program switches stacks (coroutines).
	Uretprobes bool

	tracing *tracefs.FS
	// syscalls is the number of reserved tracepoints, see takeSyscalls.
	syscalls int
}

// Close closes the resolver.
func (r *Resolver) Close() error {
	if r.tracing == nil {
		return nil
	}
	return r.tracing.Close()
}

// Has reports whether the kernel has a tracepoint.
func (r *Resolver) Has(e Event) (bool, error) {
	tracing, err := r.tracefs()
	if err != nil {
		return false, fmt.Errorf("%s: %w", e, err)
	}
	if _, err = tracing.Tracepoint(e.Group, e.Name); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// tracefs returns the tracing file system.
func (r *Resolver) tracefs() (*tracefs.FS, error) {
	if r.tracing == nil {
		var err error
		if r.tracing, err = tracefs.Open(); err != nil {
			return nil, err
		}
	}
	return r.tracing, nil
}

// Resolve returns the attach points of an event and where the fields of q are at each. An
// error for a name that does not exist has the nearest names that do.
func (r *Resolver) Resolve(e Event, q Query) (p *Probe, err error) {
	named := q.Shown || q.ByPoint
	p = &Probe{Event: e, uretprobes: r.Uretprobes, ByPoint: named || q.PacedByPoint, Unnamed: !named}
	switch e.Kind {
	case Tracepoint:
		err = r.tracepoints(p, q)
	case Kprobe, Kretprobe:
		err = r.functions(p, q)
	default:
		err = r.inFiles(p, q)
	}
	if err == nil && len(p.Points) > r.MaxProbes {
		err = usage.Errorf("%s: %d places match, more than %s allows (%d)", e, len(p.Points), usage.MaxProbes, r.MaxProbes)
	}
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	p.unite()
	return p, nil
}

// add adds a point with the given fields. If a pattern matched a point that lacks a field, or at
// which a breakpoint must not be, it is left out.
func (p *Probe) add(point Point, q Query, fields Fields, isGlob bool) error {
	if point.File < len(p.sequences) {
		err := p.sequences[point.File].CheckOffset(point.Address)
		if err == nil {
			err = CheckNOP(p.elfs[point.File], point.Address)
		}
		if err != nil && (isGlob || p.Event.Kind == USDT) { // it is one of several places
			p.LeaveOut(point.Name, err.Error())
			return nil
		}
		if err != nil {
			return usage.Errorf("%s: %v", p.Event, err)
		}
	}
	l, shown, err := q.layout(fields)
	if err != nil && isGlob {
		p.LeaveOut(point.Name, err.Error())
		return nil
	}
	if err != nil {
		return usage.Errorf("%s: %v", p.Event, err)
	}
	point.Shown = shown
	point.Place = slices.Index(p.Places, l)
	if point.Place < 0 {
		if point.Place = len(p.Places); point.Place == int(bpf.CountFieldLimitsFIELD_MAX_PLACES) {
			return usage.Errorf("%s: the fields are in more than %d different places: choose fewer probes", p.Event, point.Place)
		}
		p.Places = append(p.Places, l)
	}
	p.Points = append(p.Points, point)
	return nil
}

// complete returns an error if there are no points.
func (p *Probe) complete(similar *nearest, what string) error {
	if len(p.Points) > 0 {
		return nil
	}
	var reasons []string
	for _, reason := range slices.Sorted(maps.Keys(p.LeftOut)) {
		reasons = append(reasons, fmt.Sprintf("%s: %s", p.LeftOut[reason], reason))
	}
	left := strings.Join(reasons, "; ")
	if len(reasons) > len(p.unread) {
		return usage.Errorf("%s: %s", p.Event, left)
	}
	if left != "" {
		left = "; left out " + left
	}
	if p.Event.Kind == USDT && similar.tried == 0 {
		return usage.Errorf("%s: the file has no USDT probes%s", p.Event, left)
	}
	return usage.Errorf("%s: no such %s%s%s", p.Event, what, similar, left)
}

func (r *Resolver) tracepoints(p *Probe, q Query) error {
	tracing, err := r.tracefs()
	if err != nil {
		return fmt.Errorf("%s: %w", p.Event, err)
	}
	names, err := tracing.Tracepoints()
	if err != nil {
		return fmt.Errorf("%s: %w", p.Event, err)
	}
	wanted := p.Event.Group + ":" + p.Event.Name
	similar, isGlob := &nearest{to: wanted, part: p.Event.Name}, IsGlob(wanted)
	for _, name := range names {
		if !Match(wanted, name) {
			similar.add(name)
			continue
		}
		group, own, _ := strings.Cut(name, ":")
		if !Match(p.Event.Group, group) {
			continue
		}
		format, err := tracing.Tracepoint(group, own)
		if errors.Is(err, fs.ErrNotExist) {
			continue // of a module that was unloaded
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if group == "ftrace" {
			p.LeaveOut(name, "it describes records of the function tracer")
			continue
		}
		if group == syscallGroup {
			format.Fields = slices.DeleteFunc(format.Fields, isCopied)
		}
		err = p.add(Point{Name: name, ID: format.ID}, q, record{format.Fields, group == syscallGroup}, isGlob)
		if err != nil {
			return err
		}
	}
	if err := r.findRawSyscalls(p, tracing); err != nil {
		return fmt.Errorf("%s: %w", p.Event, err)
	}
	for _, kind := range []Kind{Kprobe, Kretprobe} {
		if distance(p.Event.Group, kind.String(), maxTypos) <= maxTypos {
			similar.add(kind.String() + ":" + p.Event.Name)
		}
	}
	return p.complete(similar, "tracepoint")
}

// padding begins the symbols of the space before functions of the kernel.
const padding = "__pfx_"

// functions finds functions of the kernel.
func (r *Resolver) functions(p *Probe, q Query) error {
	traceable, err := r.traceable()
	if err != nil {
		return fmt.Errorf("%s: %w", p.Event, err)
	}
	similar, isGlob := &nearest{to: p.Event.Name}, IsGlob(p.Event.Name)
	var matches []Point
	err = symbolize.KernelFunctions(func(name []byte, address uint64) bool {
		if !Match(p.Event.Name, string(name)) {
			if !bytes.HasPrefix(name, []byte(padding)) {
				similar.add(string(name))
			}
			return true
		}
		matches = append(matches, Point{Name: string(name), Address: address})
		return true
	})
	if err != nil {
		return fmt.Errorf("%s: %w", p.Event, err)
	}
	times := map[string]int{}
	for _, m := range matches {
		times[m.Name]++
	}
	for _, m := range matches {
		switch {
		case traceable != nil && !traceable[m.Name]:
			p.LeaveOut(m.Name, "the kernel does not allow tracing it")
			continue
		case times[m.Name] > 1:
			p.LeaveOut(m.Name, "several functions have this name")
			continue
		}
		fields, err := r.call(m.Name, p.Event.Kind, q)
		if err != nil {
			return err
		}
		if err := p.add(m, q, fields, isGlob); err != nil {
			return err
		}
	}
	return p.complete(similar, "function of the kernel")
}

// traceable returns the functions that can be traced, or nil if that is unknown.
func (r *Resolver) traceable() (map[string]bool, error) {
	tracing, err := r.tracefs()
	if err != nil {
		return nil, err
	}
	functions, err := tracing.Functions()
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil, nil // the kernel has no function tracer, or is locked down
	}
	if err != nil {
		return nil, err
	}
	names := make(map[string]bool, len(functions))
	for _, name := range functions {
		names[name] = true
	}
	return names, nil
}

// call returns the fields of a function of the kernel.
func (r *Resolver) call(name string, kind Kind, q Query) (call, error) {
	c := call{kernel: true, returning: kind == Kretprobe}
	if q.Weight == "" && q.Filter.Empty() && !q.Shown && len(q.Show) == 0 {
		return c, nil
	}
	types, err := r.Types.Kernel()
	if err != nil {
		return c, fmt.Errorf("read the kernel's types: %w", err)
	}
	var function *btf.Func
	err = types.TypeByName(name, &function)
	if err == nil {
		c.proto, _ = function.Type.(*btf.FuncProto)
	}
	return c, nil // without a type, arguments are words
}
