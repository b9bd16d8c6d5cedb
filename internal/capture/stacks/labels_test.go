package stacks

import (
	"slices"
	"testing"
	"unsafe"

	"fulgur/bpf"
	"fulgur/internal/profile"
)

// labelRecord returns a record of labels.
func labelRecord(id uint64, list ...[2]string) []byte {
	r := bpf.LabelRecord{Type: uint32(bpf.RecordLabels), Id: id, Count: uint32(len(list))}
	for i, l := range list {
		copy(r.Labels[i].Key[:], l[0])
		copy(r.Labels[i].Value[:], l[1])
		r.Labels[i].KeySize, r.Labels[i].ValueSize = uint16(len(l[0])), uint16(len(l[1]))
	}
	size := unsafe.Offsetof(r.Labels) + uintptr(len(list))*unsafe.Sizeof(r.Labels[0])
	return slices.Clone(unsafe.Slice((*byte)(unsafe.Pointer(&r)), unsafe.Sizeof(r))[:size])
}

func TestLabels(t *testing.T) {
	s := NewStore(nil)
	if err := s.AddLabels(labelRecord(7, [2]string{"user", "u1"}, [2]string{"kind", "x"})); err != nil {
		t.Fatal(err)
	}
	set := s.labels.find(7)
	if got, want := set.List(), (profile.Labels{{Key: "kind", Value: "x"}, {Key: "user", Value: "u1"}}); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
