package blockio

import (
	"testing"

	"fulgur/internal/capture/stacks"
)

func TestOperation(t *testing.T) {
	for operation, want := range map[Operation]string{
		0:                 "read",
		1 | 1<<8:          "write sync",
		1 | 1<<8 | 1<<10:  "write sync fua",
		0 | 1<<9 | 1<<12:  "read metadata readahead",
		1 | 1<<11 | 1<<13: "write preflush background",
		0 | 1<<14 | 1<<15: "read swap failed",
		3:                 "discard",
		77:                "operation 77",
		2 | 1<<31 | 1<<8:  "flush sync",
	} {
		if got := operation.String(); got != want {
			t.Errorf("%#x: got %q, want %q", uint32(operation), got, want)
		}
	}
}

func TestDetail(t *testing.T) {
	want := Request{stacks.Device{Major: 254, Minor: 1<<20 - 1}, 1 | 1<<8}
	if got := ParseDetail(want.detail()); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := (stacks.Device{Major: 4095, Minor: 12345}).String(); got != "4095:12345" {
		t.Errorf("device without a disk: got %s, want 4095:12345", got)
	}
}
