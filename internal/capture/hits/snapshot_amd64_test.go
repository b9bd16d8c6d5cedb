package hits

import (
	"encoding/binary"
	"slices"
	"testing"
	"unsafe"

	"fulgur/internal/bpf"
	"fulgur/internal/capture/probe"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/linux/memlock"
	"fulgur/internal/linux/ringbuf"
	"fulgur/internal/testenv"
)

// The walk of a snapshot knows whether it begins at the entry of a function, where the return address is at
// the stack pointer, or after a return. A part of the stack that is not in the snapshot ends the stack.
func TestSnapshotBegins(t *testing.T) {
	testenv.Root(t)
	memlock.Lift()
	s, err := Load(Options{Options: probe.Options{
		MaxDepth: 16, Unwind: bpf.UnwindByFramePointers, Snapshots: true, SkipKernel: true,
		RingSize: 1 << 20, CountEntries: 16, SeenEntries: 1,
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	const (
		part              = uint64(len(bpf.Snapshot{}.Copy[0]))
		stack             = 0x7ffe00000000
		sp, fp            = stack + 64, stack + 96
		far               = stack + 5*part
		pc, entry, caller = 0x401000, 0x402000, 0x403000
		beyond            = 0x404000
	)
	for _, test := range []struct {
		name   string
		inside uint64
		want   []uint64
	}{
		{"at the entry", 0, []uint64{pc, entry, caller, beyond}},
		{"after a return", 1, []uint64{pc, caller, beyond}},
	} {
		sn := &bpf.Snapshot{Type: uint32(bpf.RecordSnapshot), CopyOf: stack, Copied: uint32(2 * part), Inside: test.inside}
		sn.Regs.Rip, sn.Regs.Rsp, sn.Regs.Rbp = pc, sp, fp
		for i := range sn.Parts {
			sn.Parts[i] = 64 // none
		}
		sn.Parts[0], sn.Parts[1] = 0, 5
		put := func(place int, addr, word uint64) {
			binary.NativeEndian.PutUint64(sn.Copy[place][addr%part:], word)
		}
		put(0, sp, entry)
		put(0, fp, far)
		put(0, fp+8, caller)
		put(1, far, stack+part) // in a part that is not there
		put(1, far+8, beyond)
		b := unsafe.Slice((*byte)(unsafe.Pointer(sn)), unsafe.Sizeof(*sn))
		parsed, err := stacks.ParseSnapshot(b, stacks.Snapshot{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Rewalk(parsed, 0); err != nil {
			t.Fatal(err)
		}
		var got []uint64
		if err := s.Ring().ReadTo(s.Ring().Position(), func(r []byte) error {
			var record bpf.StackRecord
			err := ringbuf.Copy(&record, r, unsafe.Offsetof(record.Frames))
			got = slices.Clone(record.Frames[:record.UserFrames])
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: got frames %#x, want %#x", test.name, got, test.want)
		}
	}
}
