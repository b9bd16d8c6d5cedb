package perfring

import (
	"slices"
	"unsafe"

	"fulgur/internal/bpf"
	"fulgur/internal/linux/perfevent"
	"fulgur/internal/runtimes"
	"fulgur/internal/unwind/stackend"
)

// Interpreted is a sample with the frames of interpreters, which the feed has read.
type Interpreted struct {
	perfevent.Sample
	Frames []runtimes.Stack
}

// Size returns what the sample takes, in bytes.
func (s *Interpreted) Size() (size int) {
	size = int(unsafe.Sizeof(*s)) + len(s.Chain) + len(s.User.Regs) + len(s.User.Stack)
	for i := range s.Frames {
		size += 8 * (len(s.Frames[i].Words) + 2*len(s.Frames[i].Groups))
	}
	return size
}

// Code is a function of an interpreter. The feed delivers it before the first sample of a program that contains it.
type Code struct {
	perfevent.Stamp
	PID int
	// Record is the function, see [runtimes.ParseCode]. Its epoch and process are not set.
	Record []byte
}

// function identifies a function of a program.
type function struct {
	address uint64
	check   uint32
}

// code is a function of a program that is needed again if the program's addresses get another meaning, or in another window.
type code struct {
	record         []byte
	epoch, renewed uint64 // when it was last passed on
}

// maxCode limits the functions that are kept for a program, in bytes. Those beyond have no names.
const maxCode = 64 << 20

// addCode keeps a function.
func (s *Source) addCode(r Code) {
	head := (*bpf.CodeHead)(unsafe.Pointer(unsafe.SliceData(r.Record)))
	p := s.programs.of(r.PID)
	if uintptr(len(r.Record)) < unsafe.Sizeof(*head) || p.codeSize+len(r.Record) > maxCode {
		return
	}
	if p.code == nil {
		p.code = map[function]*code{}
	}
	of := function{head.Address, head.Check}
	if before := p.code[of]; before != nil {
		p.codeSize -= len(before.record)
	}
	p.code[of], p.codeSize = &code{record: r.Record}, p.codeSize+len(r.Record)
}

// passCode passes on the functions of a sample that it needs.
func (s *Source) passCode(of *sample, fn func(record []byte) error) error {
	p := s.programs.running[of.PID]
	if p == nil {
		return nil
	}
	for i := range of.Frames {
		for at := range slices.Chunk(of.Frames[i].Words, 2) {
			c := p.code[function{at[0] & (1<<bpf.FrameKindShift - 1), uint32(at[1] >> 32)}]
			if c == nil || c.epoch == of.epoch && c.renewed == s.renewed {
				continue
			}
			head := (*bpf.CodeHead)(unsafe.Pointer(unsafe.SliceData(c.record)))
			head.Pid, head.Epoch = uint32(of.PID), of.epoch
			if err := fn(c.record); err != nil {
				return err
			}
			c.epoch, c.renewed = of.epoch, s.renewed
		}
	}
	return nil
}

// merge returns the words of a sample's native frames with those of interpreters, and how the stack ends.
func (s *Source) merge(of *sample, native []uint64, end stackend.End) ([]uint64, stackend.End) {
	s.merged = runtimes.Merge(s.merged[:0], native, s.walker.StackPointers(), of.Frames)
	for i := range of.Frames {
		if cut := of.Frames[i].End; cut != 0 && (end == stackend.Complete || end == stackend.FramePointer) {
			end = cut
		}
	}
	return s.merged, end
}

// findInterpreters looks for interpreters in programs whose mappings have changed.
func (s *Source) findInterpreters() {
	if s.options.Runtimes == nil {
		return
	}
	for pid, p := range s.programs.running {
		if !p.changed {
			continue
		}
		p.changed = false
		s.options.Runtimes.Mapped(pid, p.image, s.processes.Mappings(pid))
	}
}
