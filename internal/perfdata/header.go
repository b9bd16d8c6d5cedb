package perfdata

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"fulgur/internal/bolt"
	"fulgur/internal/linux/perfevent"
	"fulgur/internal/profile"
)

// The magic numbers of perf.data files, as read on this machine.
const (
	magicFile  = "PERFILE2"
	magicOther = "2ELIFREP" // in the other byte order
	magicOld   = "PERFFILE" // perf before 3.2

	fileHeaderSize = 104
	pipeHeaderSize = 16
)

// Numbers of the sections after the data (HEADER_ in perf).
const (
	featureBuildID  = 2
	featureHostname = 3
	featureRelease  = 4
	featureArch     = 6
	featureCPUs     = 7
	featureCPUName  = 8
	featureMemory   = 10
	featureCommand  = 11
	featureEvents   = 12
	featureBits     = 256
)

// wantedFeatures are the sections to read.
var wantedFeatures = [...]int{
	featureBuildID, featureHostname, featureRelease, featureArch, featureCPUs, featureCPUName, featureMemory, featureCommand, featureEvents,
}

// maxDescription bounds each section that describes the recording, in bytes.
const maxDescription = 1 << 16

// maxEvents bounds the section that names the events, in bytes: it also has their IDs.
const maxEvents = 32 << 20

// maxBuildIDs bounds the table of build IDs, in bytes.
const maxBuildIDs = 16 << 20

// file is an opened perf.data file.
type file struct {
	r    io.ReaderAt
	size int64
	name string

	pipe     bool // pipe format: records describe the events
	attrs    attrs
	data     section
	parts    []part            // more data, of perf record --threads
	cut      error             // why the end of the data is missing, nil if it is not
	lacks    error             // why descriptions of the recording are missing, nil if none are
	buildIDs map[string]string // file → build ID, hexadecimal
	meta     profile.Meta      // metadata from the file
}

// part is a file of records only.
type part struct {
	r    io.ReaderAt
	size int64
	name string
}

// records returns a reader of p.
func (p part) records() *records {
	return newRecords(io.NewSectionReader(p.r, 0, p.size), p.name, 0)
}

// processes returns the processes of the file, without any.
func (f *file) processes(find func(Mapped) *bolt.Binary) *processes {
	ps := newProcesses(find)
	ps.unsorted = len(f.parts) > 0
	return ps
}

// section is a part of the file, in bytes.
type section struct{ offset, size int64 }

// IsPerfData reports whether a file that begins with b, at least 8 bytes, is perf.data,
// in a supported version or not.
func IsPerfData(b []byte) bool {
	if len(b) < len(magicFile) {
		return false
	}
	switch string(b[:len(magicFile)]) {
	case magicFile, magicOther, magicOld:
		return true
	}
	return false
}

// openFile reads the headers of a perf.data file.
func openFile(r io.ReaderAt, size int64, name string) (*file, error) {
	f := &file{r: r, size: size, name: name, buildIDs: make(map[string]string)}
	b, err := f.bytes(section{0, min(size, fileHeaderSize)}, "header")
	if err != nil {
		return nil, err
	}
	if len(b) < pipeHeaderSize {
		return nil, f.errorf(0, "too short for perf.data")
	}
	switch string(b[:len(magicFile)]) {
	case magicFile:
	case magicOther:
		return nil, f.errorf(0, "perf.data of a machine with the other byte order: convert it there, or send it through perf script")
	case magicOld:
		return nil, f.errorf(0, "perf.data of perf before 3.2: send it through perf script")
	default:
		return nil, f.errorf(0, "not perf.data")
	}
	h := perfevent.Fields{B: b[len(magicFile):]}
	headerLen := h.U64()
	if headerLen == pipeHeaderSize {
		f.pipe = true
		f.data = section{pipeHeaderSize, size - pipeHeaderSize}
		if err := f.readPipeBuildIDs(); isFormat(err) {
			f.cut = err
		} else if err != nil {
			return nil, err
		}
		return f, nil
	}
	if headerLen < fileHeaderSize || len(b) < fileHeaderSize {
		return nil, f.errorf(8, "header of %d bytes", headerLen)
	}
	entry := h.U64()
	attrTable, problem := f.section(h.U64(), h.U64())
	if problem != "" {
		return nil, f.errorf(24, "events: %s", problem)
	}
	offset, length := h.U64(), h.U64()
	if length == 0 { // perf was killed before it could write the length
		length = uint64(max(0, size-int64(min(offset, math.MaxInt64))))
	}
	if f.data, problem = f.section(offset, length); problem != "" {
		f.cut = f.errorf(40, "data: %s", problem)
		if f.data, problem = f.section(offset, uint64(max(0, size-int64(min(offset, math.MaxInt64))))); problem != "" {
			return nil, f.cut
		}
	}
	h.Take(16) // event types, obsolete
	features := h.Take(featureBits / 8)
	if err := f.readAttrs(attrTable, entry); err != nil {
		return nil, err
	}
	if f.data.offset+f.data.size < size {
		if err := f.readFeatures(features); isFormat(err) {
			f.lacks = err
		} else if err != nil {
			return nil, err
		}
	}
	return f, nil
}

// isFormat reports whether err is a [FormatError].
func isFormat(err error) bool {
	format := (*FormatError)(nil)
	return errors.As(err, &format)
}

// section checks that a section is within the file.
func (f *file) section(offset, size uint64) (s section, problem string) {
	if offset > uint64(f.size) || size > uint64(f.size)-offset {
		return section{}, fmt.Sprintf("%d bytes at %#x lie outside of the file of %d bytes: it is cut short", size, offset, f.size)
	}
	return section{int64(offset), int64(size)}, ""
}

// bytes reads a section, whose size was checked.
func (f *file) bytes(s section, what string) ([]byte, error) {
	b := make([]byte, s.size)
	if n, err := f.r.ReadAt(b, s.offset); n < len(b) {
		return nil, fmt.Errorf("%s: reading %s at offset %#x: %w", f.name, what, s.offset, err)
	}
	return b, nil
}

func (f *file) errorf(offset int64, format string, args ...any) error {
	return &FormatError{File: f.name, Offset: offset, Problem: fmt.Sprintf(format, args...)}
}

// readAttrs reads the table of events with entries of the given size: the attr, and the
// section of its IDs.
func (f *file) readAttrs(table section, entry uint64) error {
	const place = 16
	if entry < minAttr+place || entry > 1<<12 || table.size/int64(entry) > maxAttrs {
		return f.errorf(table.offset, "unlikely table of events (%d bytes, %d each)", table.size, entry)
	}
	b, err := f.bytes(table, "events")
	if err != nil {
		return err
	}
	for at := table.offset; uint64(len(b)) >= entry; at += int64(entry) {
		a, _ := parseAttr(b[:entry-place])
		p := perfevent.Fields{B: b[entry-place : entry]}
		where, problem := f.section(p.U64(), p.U64())
		if problem != "" {
			return f.errorf(at, "event's ids: %s", problem)
		}
		if where.size > 8*maxIDs {
			return f.errorf(at, "event with %d ids", where.size/8)
		}
		ids, err := f.bytes(where, "event's ids")
		if err != nil {
			return err
		}
		if problem := f.attrs.add(a, ids); problem != "" {
			return f.errorf(at, "%s", problem)
		}
		b = b[entry:]
	}
	if len(f.attrs.all) == 0 {
		return f.errorf(table.offset, "no events")
	}
	return nil
}

// readFeatures reads the wanted sections after the data. Their table follows the data, in
// the order of the bits in features.
func (f *file) readFeatures(features []byte) error {
	at := f.data.offset + f.data.size
	for bit := range featureBits {
		if features[bit/8]&(1<<(bit%8)) == 0 {
			continue
		}
		if !slices.Contains(wantedFeatures[:], bit) {
			at += 16
			continue
		}
		where, problem := f.section(uint64(at), 16)
		if problem != "" {
			return f.errorf(at, "table of sections: %s", problem)
		}
		b, err := f.bytes(where, "table of sections")
		if err != nil {
			return err
		}
		p := perfevent.Fields{B: b}
		if where, problem = f.section(p.U64(), p.U64()); problem != "" {
			return f.errorf(at, "section %d: %s", bit, problem)
		}
		if bit == featureBuildID {
			err = f.readBuildIDs(where)
		} else {
			err = f.readDescription(bit, where)
		}
		if err != nil {
			return err
		}
		at += 16
	}
	return nil
}

// readDescription reads a section that describes the recording. It ignores implausibly
// large ones.
func (f *file) readDescription(bit int, where section) error {
	if where.size > maxDescription && bit != featureEvents || where.size > maxEvents {
		return nil
	}
	b, err := f.bytes(where, "description of the recording")
	if err != nil {
		return err
	}
	f.describe(bit, b)
	return nil
}

// describe parses a section, or a record in the pipe format, that describes the recording.
func (f *file) describe(bit int, b []byte) {
	s := perfevent.Fields{B: b}
	switch bit {
	case featureEvents:
		f.attrs.describe(s)
	case featureHostname:
		f.meta.Host = sized(&s)
	case featureRelease:
		f.meta.Kernel = sized(&s)
	case featureArch:
		f.meta.Arch = sized(&s)
	case featureCPUs:
		s.U32() // number of CPUs, online or not
		f.meta.CPUs = int(s.U32())
	case featureCPUName:
		f.meta.CPUName = sized(&s)
	case featureMemory:
		f.meta.Memory = s.U64() << 10
	case featureCommand:
		var words []string
		for range min(s.U32(), maxDescription) {
			if s.Short {
				break
			}
			words = append(words, sized(&s))
		}
		f.meta.Command = strings.TrimSpace(strings.Join(words, " "))
	}
}

// describe sets the names of the events: their number, the size of their attr, and of each the attr, the
// number of its IDs, its name, and the IDs.
func (as *attrs) describe(s perfevent.Fields) {
	n, size := s.U32(), s.U32()
	for i := range min(uint64(n), uint64(len(as.all))) {
		described, ok := parseAttr(s.Take(uint64(size)))
		ids := s.U32()
		name := sized(&s)
		s.Take(8 * uint64(ids))
		if s.Short || !ok {
			return
		}
		if a := &as.all[i]; a.typ == described.typ && a.config == described.config {
			a.setName(name)
		}
	}
}

// readBuildIDs reads the table of build IDs, which are records.
func (f *file) readBuildIDs(where section) error {
	if where.size > maxBuildIDs {
		return f.errorf(where.offset, "table of build IDs of %d bytes", where.size)
	}
	rs := newRecords(io.NewSectionReader(f.r, where.offset, where.size), f.name, where.offset)
	defer rs.close()
	return f.eachBuildID(rs, func(record) bool { return true })
}

// readPipeBuildIDs finds the build IDs in the pipe format, where they may be anywhere.
func (f *file) readPipeBuildIDs() error {
	rs := f.records()
	defer rs.close()
	var total int
	err := f.eachBuildID(rs, func(rec record) bool {
		if rec.typ == recordHeaderBuildID {
			total += len(rec.body)
		}
		return rec.typ == recordHeaderBuildID && total <= maxBuildIDs
	})
	return err
}

// eachBuildID parses the records of rs that wanted accepts as build IDs.
func (f *file) eachBuildID(rs *records, wanted func(record) bool) error {
	for {
		rec, err := rs.raw()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if !wanted(rec) {
			continue
		}
		path, id := parseBuildID(rec)
		if path == "" {
			return f.errorf(rec.offset, "build ID cut short")
		}
		f.buildIDs[path] = id
		if rec.misc&modeMask == modeKernel && isVmlinux(path) && f.buildIDs[profile.KernelPath] == "" {
			f.buildIDs[profile.KernelPath] = id
		}
	}
}

// parseBuildID parses a build ID record: a process ID, 24 bytes with the build ID, and
// the file's name.
func parseBuildID(rec record) (path, id string) {
	const miscSize = 1 << 15 // PERF_RECORD_MISC_BUILD_ID_SIZE: byte 20 is the length
	b := perfevent.Fields{B: rec.body}
	b.U32()
	raw := b.Take(24)
	if b.Short {
		return "", ""
	}
	n := 20
	if rec.misc&miscSize != 0 {
		n = min(n, int(raw[20]))
	}
	return b.Text(), hex.EncodeToString(raw[:n])
}

// records returns a reader of the data.
func (f *file) records() *records {
	return newRecords(io.NewSectionReader(f.r, f.data.offset, f.data.size), f.name, f.data.offset)
}

// sized returns a string that follows its length and is padded with NULs.
func sized(f *perfevent.Fields) string {
	text := perfevent.Fields{B: f.Take(uint64(f.U32()))}
	return text.Text()
}
