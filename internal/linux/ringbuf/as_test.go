package ringbuf

import (
	"encoding/binary"
	"errors"
	"testing"
	"unsafe"
)

func TestAs(t *testing.T) {
	type form struct {
		A    uint64
		B    uint32
		_    uint32
		Last uint64
	}
	words := [...]uint64{7, 8, 9}
	record := unsafe.Slice((*byte)(unsafe.Pointer(&words)), len(words)*8)
	binary.NativeEndian.PutUint32(record[8:], 8)
	whole, err := As[form](record, unsafe.Sizeof(form{}))
	if err != nil || *whole != (form{A: 7, B: 8, Last: 9}) {
		t.Errorf("got %+v, %v; want %+v", whole, err, form{A: 7, B: 8, Last: 9})
	}
	part, err := As[form](record[:16], unsafe.Offsetof(form{}.Last))
	if err != nil || *part != (form{A: 7, B: 8}) {
		t.Errorf("got %+v, %v, want the fields in the record", part, err)
	}
	if _, err := As[form](record[:15], unsafe.Offsetof(form{}.Last)); !errors.Is(err, ErrRecord) {
		t.Errorf("got error %v, want ErrRecord", err)
	}
	if _, err := As[form](nil, 8); !errors.Is(err, ErrRecord) {
		t.Errorf("got error %v, want ErrRecord", err)
	}
}
