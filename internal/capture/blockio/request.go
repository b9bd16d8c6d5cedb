package blockio

import (
	"fmt"
	"strings"

	"fulgur/internal/bpf"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/profile"
)

// device decodes a device number of the kernel side.
func device(n uint32) stacks.Device { return stacks.Device{Major: n >> 20, Minor: n & (1<<20 - 1)} }

// Operation is the operation of a request, with the flags of bpf/blockio.bpf.c.
type Operation uint32

// operations maps the kernel's numbers, REQ_OP_READ and so on, which are the same in
// all kernels.
var operations = map[Operation]string{
	0: "read",
	1: "write",
	2: "flush",
	3: "discard",
	5: "secure erase",
	9: "write zeroes",
}

var flags = []struct {
	flag bpf.BlockIORequestFlag
	name string
}{
	{bpf.BlockIORequestFlagFLAG_SYNC, "sync"},
	{bpf.BlockIORequestFlagFLAG_META, "metadata"},
	{bpf.BlockIORequestFlagFLAG_PREFLUSH, "preflush"},
	{bpf.BlockIORequestFlagFLAG_FUA, "fua"},
	{bpf.BlockIORequestFlagFLAG_RAHEAD, "readahead"},
	{bpf.BlockIORequestFlagFLAG_BACKGROUND, "background"},
	{bpf.BlockIORequestFlagFLAG_SWAP, "swap"},
	{bpf.BlockIORequestFlagFLAG_FAILED, "failed"},
}

// String returns the names of the operation and its flags, such as "write sync".
func (o Operation) String() string {
	name, ok := operations[o&Operation(bpf.BlockIORequestFlagOPERATION_MASK)]
	if !ok {
		name = fmt.Sprintf("operation %d", uint32(o&Operation(bpf.BlockIORequestFlagOPERATION_MASK)))
	}
	words := []string{name}
	for _, f := range flags {
		if uint32(o)&uint32(f.flag) != 0 {
			words = append(words, f.name)
		}
	}
	return strings.Join(words, " ")
}

// Op returns the operation without its flags, as used in recordings.
func (o Operation) Op() profile.BlockOp {
	switch o & Operation(bpf.BlockIORequestFlagOPERATION_MASK) {
	case 0:
		return profile.BlockRead
	case 1:
		return profile.BlockWrite
	case 2:
		return profile.BlockFlush
	case 3:
		return profile.BlockDiscard
	}
	return profile.BlockOther
}

// Flags returns those flags that recordings support.
func (o Operation) Flags() (set profile.BlockFlags) {
	for flag, has := range map[bpf.BlockIORequestFlag]profile.BlockFlags{
		bpf.BlockIORequestFlagFLAG_SYNC:   profile.FlagSync,
		bpf.BlockIORequestFlagFLAG_META:   profile.FlagMetadata,
		bpf.BlockIORequestFlagFLAG_RAHEAD: profile.FlagReadAhead,
		bpf.BlockIORequestFlagFLAG_FUA:    profile.FlagFUA,
	} {
		if uint32(o)&uint32(flag) != 0 {
			set |= has
		}
	}
	return set
}

// Request is the decoded detail of a sample.
type Request struct {
	Device    stacks.Device
	Operation Operation
}

// ParseDetail decodes the detail of a sample of this source.
func ParseDetail(detail uint64) Request {
	return Request{device(uint32(detail >> 32)), Operation(uint32(detail))}
}

func (r Request) detail() uint64 {
	return uint64(r.Device.Major<<20|r.Device.Minor)<<32 | uint64(r.Operation)
}
