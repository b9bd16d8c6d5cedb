package perfdata

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"fulgur/internal/bolt"
	"fulgur/internal/linux/perfevent"
	"fulgur/internal/message/plain"
	"fulgur/internal/process"
	"fulgur/internal/profile"
	"fulgur/internal/symbols/elffile"
)

// Stats counts the input, in addition to the counts of the [bolt.Collector].
type Stats struct {
	// Samples is the number of samples of all processes.
	Samples uint64
	// Ignored is the number of samples of processes that map none of the binaries, and
	// NoStack the number of other samples without branch records.
	Ignored, NoStack uint64
	// Lost is the number of records that the kernel dropped, and Throttled how often it paused an
	// event. They are unknown for text.
	Lost, Throttled uint64
	// Mappings is the number of times that a binary was mapped. If it is 0, the text was
	// made without --show-mmap-events, or the binary is a different one.
	Mappings uint64
}

// Options selects what to read.
type Options struct {
	// Find returns the registered binary for a mapped file, or nil to ignore it. It is
	// called once for each file.
	Find func(Mapped) *bolt.Binary
	// Addresses counts the samples' own addresses instead of their branches
	// (bolt.Collector.AddAddress).
	Addresses bool
	// Default is the layout for text without mappings and processes. It suits a binary
	// linked at a fixed address (bolt.Binary.FixedLayout). Without it, such samples are
	// ignored.
	Default bolt.Layout
}

// Match returns a Find function for a single binary. If both build IDs are known, they
// must be equal. Otherwise, the last elements of the paths must be equal.
func Match(b *bolt.Binary) func(Mapped) *bolt.Binary {
	return func(m Mapped) *bolt.Binary {
		same := path.Base(strings.TrimSuffix(m.Path, " (deleted)")) == path.Base(b.Name)
		if b.Kernel() {
			same = m.IsKernel()
		}
		if m.BuildID != "" && b.BuildID != "" {
			same = elffile.SameBuildID(m.BuildID, b.BuildID)
		}
		if same {
			return b
		}
		return nil
	}
}

// collect is [Input.Collect] of an open file.
func (f *file) collect(ctx context.Context, c *bolt.Collector, opts Options) (Stats, error) {
	if err := cmp.Or(f.cut, f.lacks); err != nil {
		return Stats{}, err
	}
	cl := &collection{ctx: ctx, file: f, procs: f.processes(opts.Find), opts: opts, collector: c}
	// Attributes in records must be known before anything else is read.
	if err := cl.pass(cl.sideband); err != nil {
		return cl.stats, err
	}
	if err := cl.procs.finish(); err != nil {
		return cl.stats, f.errorf(f.data.offset, "%v", err)
	}
	err := cl.pass(cl.sample)
	return cl.stats, err
}

// collection is a file that is being read.
type collection struct {
	ctx       context.Context
	file      *file
	procs     *processes
	opts      Options
	collector *bolt.Collector
	stats     Stats

	// memory also keeps the mappings of the vDSO and of executable memory without a file.
	memory bool
	// watch, if not nil, is called with all records other than samples.
	watch func(rec record, f perfevent.Fields, when uint64)

	// lenient means that records that are malformed are left out, and that the rest of the file is
	// after one whose end is unknown.
	lenient bool
	damage  damage

	number uint64 // index of the record in the file, used as its time if there are no times
	stack  []bolt.Entry
}

// pass calls each with every record.
func (cl *collection) pass(each func(record) error) error {
	cl.number = 0
	if err := cl.passPart(cl.file.records(), each); err != nil {
		return err
	}
	for _, p := range cl.file.parts {
		if err := cl.passPart(p.records(), each); err != nil {
			return err
		}
	}
	return nil
}

// passPart calls each with every record of rs.
func (cl *collection) passPart(rs *records, each func(record) error) error {
	defer rs.close()
	for {
		cl.number++
		// Check ctx here, since most records are not read from the file: a few compressed
		// bytes may expand to millions.
		if cl.number%4096 == 1 {
			if err := cl.ctx.Err(); err != nil {
				return err
			}
		}
		rec, err := rs.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return cl.end(err)
		}
		if err := each(rec); err != nil {
			return err
		}
	}
}

// damage is what was left out of a file.
type damage struct {
	records uint64 // without those after ended
	unknown uint64 // counts of events that the file does not describe
	trace   uint64 // bytes of AUX area data
	skipped uint64 // records of unknown types
	typ     uint32 // of the first of them
	first   error
	ended   error // why the rest of the file was not read
}

// skip counts a record of an unknown type.
func (d *damage) skip(typ uint32) {
	if d.skipped++; d.skipped == 1 {
		d.typ = typ
	}
}

// errors says what was left out.
func (d damage) errors(name string) (left []error) {
	if err := d.malformed(); err != nil {
		left = append(left, err)
	}
	if d.skipped > 0 {
		left = append(left, fmt.Errorf("%s: %s left out that only a newer perf than 7.2 knows, the first of type %d", name, plain.Count(d.skipped, "record"), d.typ))
	}
	if d.unknown > 0 {
		left = append(left, fmt.Errorf("%s: %s left out, of events that the file does not describe", name, plain.Count(d.unknown, "count")))
	}
	if d.trace > 0 {
		left = append(left, fmt.Errorf("%s: %s of a trace of instructions (AUX area data of Intel PT, Arm SPE or CoreSight) left out: perf inject --itrace makes samples of it", name, plain.Count(d.trace, "byte")))
	}
	return left
}

// malformed returns an error that says what was left out as it was malformed, nil if nothing was.
func (d damage) malformed() error {
	switch {
	case d.ended != nil && d.records > 0:
		return fmt.Errorf("%w; the rest was left out, and %s before it", d.ended, plain.Count(d.records, "malformed record"))
	case d.ended != nil:
		return fmt.Errorf("%w; the rest was left out", d.ended)
	case d.records > 1:
		return fmt.Errorf("%w; this and %s were left out", d.first, plain.Count(d.records-1, "other malformed record"))
	case d.records > 0:
		return fmt.Errorf("%w; it was left out", d.first)
	}
	return nil
}

// omit returns err, unless it is about a malformed record that may be left out.
func (cl *collection) omit(err error) error {
	if !cl.lenient {
		return err
	}
	cl.damage.records++
	cl.damage.first = cmp.Or(cl.damage.first, err)
	return nil
}

// end returns err, unless it is about malformed bytes after which the rest may be left out.
func (cl *collection) end(err error) error {
	if !cl.lenient || !isFormat(err) {
		return err
	}
	cl.damage.ended = cmp.Or(cl.damage.ended, err)
	return nil
}

// sideband processes all records other than samples.
func (cl *collection) sideband(rec record) error {
	switch rec.typ {
	case recordHeaderAttr:
		return cl.headerAttr(rec)
	case recordEventUpdate:
		cl.file.attrs.update(rec)
		return nil
	case recordHeaderFeature:
		if f := (perfevent.Fields{B: rec.body}); cl.file.pipe {
			if bit := f.U64(); bit < featureBits && bit != featureBuildID {
				cl.file.describe(int(bit), f.B)
			}
		}
		return nil
	case recordFinishedRound:
		return cl.check(rec, cl.procs.finishRound())
	case recordAuxtrace:
		cl.damage.trace += (&perfevent.Fields{B: rec.body}).U64()
		return nil
	case unix.PERF_RECORD_THROTTLE:
		cl.stats.Throttled++
		return nil
	case unix.PERF_RECORD_MMAP, unix.PERF_RECORD_MMAP2, unix.PERF_RECORD_COMM, unix.PERF_RECORD_FORK,
		unix.PERF_RECORD_LOST, unix.PERF_RECORD_LOST_SAMPLES:
	default:
		if !isKnown(rec.typ) {
			cl.damage.skip(rec.typ)
		}
		return nil
	}
	a, ok := cl.file.attrs.other(rec.body)
	if !ok {
		return cl.omit(cl.file.errorf(rec.offset, "record of type %d before any event", rec.typ))
	}
	size, time := a.Trailer(unix.PERF_SAMPLE_TIME)
	if len(rec.body) < size {
		return cl.omit(cl.file.errorf(rec.offset, "record of type %d cut short", rec.typ))
	}
	f := perfevent.Fields{B: rec.body[:len(rec.body)-size]}
	when := cl.number
	if time >= 0 {
		t := perfevent.Fields{B: rec.body[len(f.B)+time:]}
		when = t.U64()
	}
	if cl.watch != nil {
		cl.watch(rec, f, when)
	}
	if err := cl.event(a, rec, &f, when); err != nil {
		return cl.check(rec, err)
	}
	if f.Short {
		return cl.omit(cl.file.errorf(rec.offset, "record of type %d cut short", rec.typ))
	}
	return nil
}

// check adds the position to an error of cl.procs.
func (cl *collection) check(rec record, err error) error {
	if err == nil {
		return nil
	}
	return cl.file.errorf(rec.offset, "%v", err)
}

// headerAttr processes an event's description in the pipe format: the attr, with its own
// length, and the IDs.
func (cl *collection) headerAttr(rec record) error {
	if !cl.file.pipe {
		return nil
	}
	const sizeOffset = 4
	f := perfevent.Fields{B: rec.body}
	f.Take(sizeOffset)
	n := f.U32()
	a, ok := attr{}, false
	if uint64(n) <= uint64(len(rec.body)) {
		a, ok = parseAttr(rec.body[:n])
	}
	if !ok {
		return cl.file.errorf(rec.offset, "event's description cut short")
	}
	if problem := cl.file.attrs.add(a, rec.body[n:]); problem != "" {
		return cl.file.errorf(rec.offset, "%s", problem)
	}
	return nil
}

// event processes the body of a record about a process.
func (cl *collection) event(a attr, rec record, f *perfevent.Fields, when uint64) error {
	switch rec.typ {
	case unix.PERF_RECORD_MMAP, unix.PERF_RECORD_MMAP2:
		return cl.mmap(a, rec, f, when)
	case unix.PERF_RECORD_COMM:
		if rec.misc&unix.PERF_RECORD_MISC_COMM_EXEC != 0 {
			return cl.procs.add(event{when: when, kind: eventExec, pid: int32(f.U32())})
		}
	case unix.PERF_RECORD_FORK:
		pid, parent := int32(f.U32()), int32(f.U32())
		f.Take(8)
		// perf synthesizes forks without a time for processes that existed before. Their
		// own mappings describe them.
		if t := f.U64(); t != 0 && pid != parent {
			return cl.procs.add(event{when: when, kind: eventFork, pid: pid, parent: parent})
		}
	case unix.PERF_RECORD_LOST:
		f.U64()
		cl.stats.Lost += f.U64()
	case unix.PERF_RECORD_LOST_SAMPLES:
		cl.stats.Lost += f.U64()
	}
	return nil
}

// mappedBuildID returns the build ID in the 24 bytes of a mapping marked with
// PERF_RECORD_MISC_MMAP_BUILD_ID, or "" if they are a device and inode. requested tells whether the
// event requests build IDs.
//
// If it does not, the mark proves nothing: once another program requests build IDs, the kernel also
// marks records that have a device and inode (see perf_event_mmap_output in kernel/events/core.c).
// The mark can still be right, since perf inject -B and --mmap2-buildid-all add build IDs without
// setting the event's flag. So b counts as a build ID if its first 4 bytes, otherwise the major number
// of a device, are the usual size of a build ID, and the bytes after the build ID are 0.
func mappedBuildID(b []byte, requested bool) string {
	size, id := int(b[0]), b[4:]
	if !requested {
		const md5, sha1 = 16, 20
		if size != md5 && size != sha1 || strings.Trim(string(b[1:4]), "\x00") != "" || strings.Trim(string(id[size:]), "\x00") != "" {
			return ""
		}
	}
	return hex.EncodeToString(id[:min(len(id), size)])
}

// generatedPath is perf's usual name for memory without a file. Such memory that is executable has the code that a
// program generated.
const generatedPath = "//anon"

// isGenerated reports whether b stands for generated code.
func isGenerated(b *bolt.Binary) bool { return b.Name == generatedPath }

// mmap processes a mapping. Data, and memory that is not kept, only replace what was there.
func (cl *collection) mmap(a attr, rec record, f *perfevent.Fields, when uint64) error {
	pid := int32(f.U32())
	f.U32()
	e := event{when: when, kind: eventMap, pid: pid, start: f.U64(), size: f.U64(), offset: f.U64()}
	executable := rec.misc&unix.PERF_RECORD_MISC_MMAP_DATA == 0
	var id string
	if rec.typ == unix.PERF_RECORD_MMAP2 {
		file := f.Take(24) // device and inode, or the build ID
		if rec.misc&unix.PERF_RECORD_MISC_MMAP_BUILD_ID != 0 && file != nil {
			id = mappedBuildID(file, a.buildID)
		}
		executable = f.U32()&unix.PROT_EXEC != 0
		f.U32()
	}
	name := f.Text()
	if f.Short {
		return nil
	}
	if pid == kernelPID {
		return cl.mapKernel(rec, name, id, e)
	}
	const anyInode = 1 // it is not known if there is a build ID in its place
	kind := process.KindOf(name, anyInode)
	if name == "" || strings.HasPrefix(name, "//") && kind == process.KindFile {
		executable = false // the kernel could not name the file: it had no memory, or the path was too long
	}
	if executable && (kind == process.KindFile || cl.memory && (kind == process.KindVDSO || kind == process.KindAnon)) {
		if kind == process.KindAnon {
			name, id, e.offset = generatedPath, "", e.start
		} else if id == "" {
			id = cl.file.buildIDs[name]
		}
		var err error
		if e.binary, err = cl.procs.binary(Mapped{Path: name, BuildID: id}); err != nil {
			return err
		}
	}
	if e.binary != nil {
		cl.stats.Mappings++
	}
	return cl.procs.add(e)
}

// mapKernel processes a mapping of the kernel or a module.
func (cl *collection) mapKernel(rec record, name, id string, e event) error {
	if isKernel(name) && id != "" {
		cl.file.buildIDs[profile.KernelPath] = id
	}
	profiled, err := cl.procs.mapKernel(name, cl.file.buildIDs[profile.KernelPath], e.start, e.offset)
	if profiled {
		cl.stats.Mappings++
	}
	return cl.check(rec, err)
}

// sample processes a sample.
func (cl *collection) sample(rec record) error {
	if rec.typ != unix.PERF_RECORD_SAMPLE {
		return nil
	}
	cl.stats.Samples++
	a, ok := cl.file.attrs.sample(rec.body)
	if !ok {
		return cl.file.errorf(rec.offset, "sample of no event")
	}
	s, err := a.parseSample(rec.body)
	if err == nil && !s.HasTask {
		err = errors.New("sample without a process (recorded without PERF_SAMPLE_TID)")
	}
	if err != nil {
		return cl.file.errorf(rec.offset, "%v", err)
	}
	cl.stack = bolt.AppendEntries(cl.stack[:0], s.Branches)
	if !a.Has(unix.PERF_SAMPLE_TIME) {
		s.Time = cl.number
	}
	layout := cl.procs.layout(int32(s.PID), s.Time)
	switch {
	case layout.Len() == 0:
		cl.stats.Ignored++
		return nil
	case cl.opts.Addresses:
		return cl.collector.AddAddress(layout, s.IP, 1)
	case len(cl.stack) == 0:
		cl.stats.NoStack++
		return nil
	}
	return cl.collector.Add(layout, cl.stack)
}
