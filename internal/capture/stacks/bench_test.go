package stacks

import (
	"encoding/binary"
	"testing"
	"unsafe"

	"fulgur/internal/bpf"
	"fulgur/internal/process"
)

// BenchmarkAdd adds stacks of processes that all run the same program.
func BenchmarkAdd(b *testing.B) {
	s := NewStore(fixed{&process.File{}})
	var records [][]byte
	for i := range uint64(64) {
		user := make([]uint64, 24)
		for j := range uint64(len(user)) {
			user[j] = 0x100 + 16*j
		}
		user[0] += i * 8
		records = append(records, record(1, []uint64{0xffff1, 0xffff2 + i}, user))
	}
	epoch := unsafe.Offsetof(bpf.StackRecord{}.Epoch)
	id := unsafe.Offsetof(bpf.StackRecord{}.Id)
	n := uint64(0)
	for b.Loop() {
		r := records[n%64]
		n++
		binary.NativeEndian.PutUint64(r[id:], n)
		binary.NativeEndian.PutUint64(r[epoch:], n/8)
		if err := s.Add(r); err != nil {
			b.Fatal(err)
		}
	}
}
