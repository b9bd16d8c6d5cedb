// Package stackstest creates stacks for tests in the kernel side's format.
package stackstest

import (
	"bytes"
	"encoding/binary"
	"os"
	"reflect"
	"testing"

	"fulgur/internal/bpf"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/linux/monotonic"
	"fulgur/internal/process"
	"fulgur/internal/unwind/stackend"
)

// Trace is a stack in the kernel side's format. Frames are leaf first.
type Trace struct {
	ID       uint64
	PID, TID uint32
	Comm     string
	Time     uint64 // CLOCK_MONOTONIC, ns
	// Kernel and User are addresses. KernelEnd and End are the reasons why each half
	// ends.
	Kernel, User   []uint64
	KernelEnd, End stackend.End
}

// Record returns the ring record of b.
func (b Trace) Record(t testing.TB) []byte {
	t.Helper()
	r := bpf.StackRecord{
		Type:         uint32(bpf.RecordStack),
		KernelFrames: uint16(len(b.Kernel)),
		UserFrames:   uint16(len(b.User)),
		Id:           b.ID,
		Time:         b.Time,
		Pid:          b.PID,
		Tid:          b.TID,
		KernelEnd:    uint8(b.KernelEnd),
		UserEnd:      uint8(b.End),
	}
	copy(r.Comm[:], b.Comm)
	copy(r.Frames[:], append(b.Kernel[:len(b.Kernel):len(b.Kernel)], b.User...))
	var out bytes.Buffer
	if err := binary.Write(&out, binary.NativeEndian, &r); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// Layout is a [stacks.Resolver] with the same code at the same addresses in every
// process: a file, the vdso, JIT code, and nothing above.
type Layout struct{ File *process.File }

// Start addresses of the code of a [Layout]. There is no code at VoidAt.
const (
	FileAt = 0x400000
	VdsoAt = 0x500000
	JitAt  = 0x600000
	VoidAt = 0x700000
)

// Resolve implements [stacks.Resolver].
func (l Layout) Resolve(_ int, addr, _ uint64) process.Location {
	at := func(kind process.Kind, start uint64) process.Location {
		return process.Location{Kind: kind, Offset: addr, MapStart: start, MapLimit: start + 0x1000}
	}
	switch {
	case addr < VdsoAt:
		found := at(process.KindFile, FileAt)
		found.File, found.Offset, found.MapOffset = l.File, addr-FileAt+0x2000, 0x2000
		return found
	case addr < JitAt:
		return at(process.KindVDSO, VdsoAt)
	case addr < VoidAt:
		return at(process.KindAnon, JitAt)
	}
	return process.Location{Offset: addr}
}

// NewStore returns a store with the given traces.
func NewStore(t testing.TB, r stacks.Resolver, traces ...Trace) *stacks.Store {
	t.Helper()
	s := stacks.NewStore(r)
	for _, b := range traces {
		if err := s.Add(b.Record(t)); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// Reasons why stacks end: at the outermost frame, at the depth limit, at a fault.
const (
	Ended   = stackend.FramePointer
	Cut     = stackend.Depth
	Faulted = stackend.Fault
)

// Own returns a store with a stack of this process. Its frames are in NewStore: the
// leaf at its first instruction, and a caller with the second one as its return
// address. Nothing is mapped.
func Own(t testing.TB) *stacks.Store {
	t.Helper()
	table := process.NewTable(process.Options{})
	t.Cleanup(func() { table.Close() })
	entry := uint64(reflect.ValueOf(NewStore).Pointer())
	return NewStore(t, table, Trace{
		ID: 1, PID: uint32(os.Getpid()), Comm: "test", Time: monotonic.Now(),
		User: []uint64{entry, entry + 1, 0x10},
		End:  Ended,
	})
}
