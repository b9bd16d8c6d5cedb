package stacks

import (
	"bytes"
	"encoding/binary"
	"errors"
	"maps"
	"reflect"
	"slices"
	"testing"
	"unsafe"

	"fulgur/internal/bpf"
	"fulgur/internal/linux/ringbuf"
	"fulgur/internal/process"
	"fulgur/internal/unwind/stackend"
)

// fixed resolves each address below 0x10000 to the same offset in one file.
type fixed struct{ file *process.File }

func (f fixed) Resolve(_ int, addr, _ uint64) process.Location {
	if addr < 0x10000 {
		return process.Location{Kind: process.KindFile, File: f.file, Offset: addr}
	}
	return process.Location{Kind: process.KindUnknown, Offset: addr}
}

// record returns the used prefix of a stack record.
func record(id uint64, kernel, user []uint64) []byte {
	r := bpf.StackRecord{
		Type:         uint32(bpf.RecordStack),
		KernelFrames: uint16(len(kernel)),
		UserFrames:   uint16(len(user)),
		Id:           id,
		Pid:          7,
		Tid:          8,
		UserEnd:      uint8(stackend.FramePointer),
	}
	copy(r.Comm[:], "worker")
	copy(r.Frames[:], kernel)
	copy(r.Frames[len(kernel):], user)
	var b bytes.Buffer
	if err := binary.Write(&b, binary.NativeEndian, &r); err != nil {
		panic(err)
	}
	return b.Bytes()[:int(recordHeader)+8*(len(kernel)+len(user))]
}

func TestStoreAdd(t *testing.T) {
	s := NewStore(fixed{&process.File{}})
	// Frames beyond an address outside all code are left out.
	if err := s.Add(record(1, []uint64{0xffff1, 0xffff2}, []uint64{0x100, 0x200, 0x99999, 0x300})); err != nil {
		t.Fatal(err)
	}
	trace, ok := s.Trace(1)
	if !ok || trace.PID != 7 || string(bytes.TrimRight(trace.Comm[:], "\x00")) != "worker" {
		t.Fatalf("got trace %+v, %v; want process 7, worker", trace, ok)
	}
	// Leaf first: two kernel frames, then three user frames.
	want := []struct {
		kind     CodeKind
		address  uint64
		isReturn bool
	}{
		{CodeKernel, 0xffff1, false},
		{CodeKernel, 0xffff2, true},
		{CodeFile, 0x100, false},
		{CodeFile, 0x200, true},
		{CodeBroken, 0, false},
	}
	at := trace.Leaf
	for i, w := range want {
		f := s.Frames[s.Nodes[at].Frame]
		if s.Codes[f.Code].Kind != w.kind || f.Address != w.address || f.Return != w.isReturn {
			t.Errorf("frame %d: got %+v in %+v, want %+v", i, f, s.Codes[f.Code], w)
		}
		at = s.Nodes[at].Parent
	}
	if at != 0 {
		t.Errorf("got node %d above the root, want 0", at)
	}
	if !trace.Broken {
		t.Error("got a trace that is not broken")
	}
}

// The frame interrupted by a signal is exact. A stack whose walk ended outside all
// mappings is not broken.
func TestStoreAddEnds(t *testing.T) {
	s := NewStore(fixed{&process.File{}})
	r := record(1, nil, []uint64{0x100, bpf.FrameExact | 0x200, 0x300, 0x99999})
	r[unsafe.Offsetof(bpf.StackRecord{}.UserEnd)] = uint8(stackend.NoMapping)
	if err := s.Add(r); err != nil {
		t.Fatal(err)
	}
	trace, _ := s.Trace(1)
	var got []Frame
	for at := trace.Leaf; at != 0; at = s.Nodes[at].Parent {
		got = append(got, s.Frames[s.Nodes[at].Frame])
	}
	if len(got) != 4 || got[1].Address != 0x200 || got[1].Return || !got[2].Return || s.Codes[got[3].Code].Kind != CodeBroken {
		t.Errorf("got frames %+v, want two exact ones first, then a return address, then the break", got)
	}
	if trace.Broken || trace.UserEnd != stackend.NoMapping {
		t.Errorf("got trace %+v, want it whole, with its end", trace)
	}
}

// A stack that ends in code of a file which the kernel's walk did not know ends there because
// the code was just mapped.
func TestStoreAddJustMapped(t *testing.T) {
	s := NewStore(fixed{&process.File{}})
	r := record(1, nil, []uint64{0x100})
	r[unsafe.Offsetof(bpf.StackRecord{}.UserEnd)] = uint8(stackend.NoMapping)
	if err := s.Add(r); err != nil {
		t.Fatal(err)
	}
	if trace, _ := s.Trace(1); trace.UserEnd != stackend.NotReady {
		t.Errorf("got end %v, want %v", trace.UserEnd, stackend.NotReady)
	}
}

// A placeholder stands for a user stack that the kernel could not read. The kernel's half
// is above it.
func TestStoreAddUnseen(t *testing.T) {
	s := NewStore(fixed{&process.File{}})
	r := record(1, []uint64{0xffff1}, nil)
	r[unsafe.Offsetof(bpf.StackRecord{}.UserEnd)] = uint8(stackend.Unseen)
	if err := s.Add(r); err != nil {
		t.Fatal(err)
	}
	trace, _ := s.Trace(1)
	leaf := s.Nodes[trace.Leaf]
	root := s.Nodes[leaf.Parent]
	if s.Codes[s.Frames[leaf.Frame].Code].Kind != CodeKernel || s.Codes[s.Frames[root.Frame].Code].Kind != CodeUnseen || root.Parent != 0 {
		t.Errorf("got leaf %+v, caller %+v; want a kernel frame on the placeholder", s.Frames[leaf.Frame], s.Frames[root.Frame])
	}
	if trace.Broken || trace.Cut {
		t.Errorf("got trace %+v, want it whole", trace)
	}
}

// All frames of a process with unknown mappings are kept.
func TestStoreAddUnmapped(t *testing.T) {
	s := NewStore(fixed{&process.File{}})
	if err := s.Add(record(1, nil, []uint64{0x88888, 0x99999, 0x300})); err != nil {
		t.Fatal(err)
	}
	trace, _ := s.Trace(1)
	frames := 0
	for at := trace.Leaf; at != 0; at = s.Nodes[at].Parent {
		frames++
	}
	if frames != 3 || trace.Broken {
		t.Errorf("got %d frames, broken: %t; want 3, false", frames, trace.Broken)
	}
}

// Stacks that differ only beyond the break count as one. Counts without a trace stay in
// the map.
func TestStoreCount(t *testing.T) {
	s := NewStore(fixed{&process.File{}})
	for id := range uint64(3) {
		if err := s.Add(record(id, nil, []uint64{0x100, 0x99990 + id, 0x300 + id})); err != nil {
			t.Fatal(err)
		}
	}
	counts := map[Key]Values{
		{ID: 0}: {1, 10}, {ID: 1}: {2, 20}, {ID: 2}: {4, 40}, {ID: 2, TID: 5}: {8, 80}, {ID: 9}: {16, 160},
	}
	s.Count(counts)
	s.Count(map[Key]Values{{ID: 1}: {32, 320}})
	want := map[Sample]Values{{Trace: 0}: {39, 390}, {Trace: 0, TID: 5}: {8, 80}}
	if !maps.Equal(s.Samples, want) {
		t.Errorf("got samples %v, want %v", s.Samples, want)
	}
	if len(counts) != 1 || counts[Key{ID: 9}].Samples() != 16 {
		t.Errorf("got %v left, want the counts of 9", counts)
	}
}

// Stacks with a common root share its nodes, and a trace that is sent twice is stored
// once.
func TestStoreShares(t *testing.T) {
	s := NewStore(fixed{&process.File{}})
	for _, r := range [][]byte{
		record(1, nil, []uint64{0x100, 0x200, 0x300}),
		record(2, nil, []uint64{0x101, 0x200, 0x300}),
		record(1, nil, []uint64{0x100, 0x200, 0x300}),
	} {
		if err := s.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	if len(s.Traces) != 2 || len(s.Nodes) != 2+4 || len(s.Frames) != 1+4 {
		t.Errorf("got %d traces, %d nodes, %d frames; want 2, 6, 5", len(s.Traces), len(s.Nodes), len(s.Frames))
	}
}

// ownVDSO maps the vdso of each process at a different address.
type ownVDSO struct{}

func (ownVDSO) Resolve(pid int, addr, _ uint64) process.Location {
	start := uint64(pid) << 20
	return process.Location{Kind: process.KindVDSO, Offset: addr, MapStart: start, MapLimit: start + 0x2000}
}

// The vdso is one file, wherever a process maps it: equal offsets are the same frame.
func TestStoreVDSO(t *testing.T) {
	s := NewStore(ownVDSO{})
	if err := s.Add(record(1, nil, []uint64{7<<20 + 0x123})); err != nil {
		t.Fatal(err)
	}
	trace, _ := s.Trace(1)
	if f := s.Frames[s.Nodes[trace.Leaf].Frame]; s.Codes[f.Code].Kind != CodeVDSO || f.Address != 0x123 {
		t.Errorf("got %+v in %+v, want 0x123 in the vdso", f, s.Codes[f.Code])
	}
}

// The frame interrupted by a signal is not a return address, although it is not the leaf.
// Addresses of the vsyscall page have the bit set that marks exact frames.
func TestStoreExactFrames(t *testing.T) {
	s := NewStore(fixed{&process.File{}})
	if err := s.Add(record(1, nil, []uint64{0x100, 0x200 | 1<<63, 0x300})); err != nil {
		t.Fatal(err)
	}
	trace, _ := s.Trace(1)
	var got []Frame
	for n := trace.Leaf; n != 0; n = s.Nodes[n].Parent {
		f := s.Frames[s.Nodes[n].Frame]
		f.Code = 0
		got = append(got, f)
	}
	want := []Frame{{Address: 0x100}, {Address: 0x200}, {Address: 0x300, Return: true}}
	if !slices.Equal(got, want) {
		t.Errorf("got frames %+v, want %+v", got, want)
	}
	if addr, _ := userAddress(0x7fffffffff600400); addr != 0xffffffffff600400 {
		t.Errorf("got address %#x, want one in the vsyscall page", addr)
	}
}

func FuzzStoreAdd(f *testing.F) {
	f.Add(record(1, []uint64{1}, []uint64{2, 3}))
	f.Add(record(2, nil, nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		s := NewStore(fixed{&process.File{}})
		events := &rowsOf[Key, Values]{convert: func(k Key, v Values) (Key, Values) { return k, v }}
		if err := s.Add(b); err != nil && !errors.Is(err, ringbuf.ErrRecord) {
			t.Fatalf("got an error that is not ErrRecord: %v", err)
		}
		if _, _, err := events.parse(b); err != nil && !errors.Is(err, ringbuf.ErrRecord) {
			t.Fatalf("got an error that is not ErrRecord: %v", err)
		}
	})
}

// Without room, a stack keeps the frames that it shares with others, and is marked as
// cut.
func TestStoreFull(t *testing.T) {
	s := NewStore(fixed{&process.File{}})
	if err := s.Add(record(1, nil, []uint64{0x100, 0x200, 0x300})); err != nil {
		t.Fatal(err)
	}
	s.MaxNodes = len(s.Nodes)
	for id, r := range map[uint64][]byte{
		2: record(2, nil, []uint64{0x200, 0x100, 0x300}), // shares no frame at the root: 0x300 is new
		3: record(3, []uint64{0x900}, []uint64{0x100, 0x200, 0x300}),
		4: record(4, []uint64{0x900}, nil),
	} {
		if err := s.Add(r); err != nil {
			t.Fatal(err)
		}
		if trace, ok := s.Trace(id); !ok || !trace.Cut {
			t.Errorf("stack %d: got %+v, want it cut", id, trace)
		}
	}
	second, _ := s.Trace(2)
	third, _ := s.Trace(3)
	first, _ := s.Trace(1)
	if at := s.Nodes[second.Leaf]; at.Parent != 0 || third.Leaf != first.Leaf {
		t.Errorf("got stack 2 at node %+v, stack 3 %+v; want none of 2, and 3 equal to 1", at, third)
	}
	if sample, ok := s.Sample(Key{ID: 1, Kernel: 4}); !ok || !s.Traces[sample.Trace].Cut {
		t.Errorf("got sample %+v, want one whose kernel half is cut", sample)
	}
	if len(s.Nodes) != s.MaxNodes || first.Cut {
		t.Errorf("got %d nodes, want %d, and stack 1 whole", len(s.Nodes), s.MaxNodes)
	}
}

// If stacks are not kept per process, equal stacks of several processes are one.
func TestStoreAnonymous(t *testing.T) {
	s := NewStore(fixed{&process.File{}})
	s.Anonymous = true
	for id := range uint64(2) {
		if err := s.AddLabels(labelRecord(id+1, [2]string{"kind", string('a' + rune(id))})); err != nil {
			t.Fatal(err)
		}
		r := labeledRecord(id+1, id+1)
		binary.NativeEndian.PutUint32(r[32:], uint32(id)+7) // the process
		r[unsafe.Offsetof(bpf.StackRecord{}.Comm)] = 'a' + byte(id)
		if err := s.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	if len(s.Traces) != 1 || s.Traces[0].PID != 0 || s.Traces[0].Name() != "" {
		t.Errorf("got traces %+v, want one without a process", s.Traces)
	}
}

// byPID resolves each address to its process's file.
type byPID map[int]*process.File

func (f byPID) Resolve(pid int, addr, _ uint64) process.Location {
	return process.Location{Kind: process.KindFile, File: f[pid], Offset: addr}
}

// Processes share stacks only if they run the same files.
func TestStoreSharesFiles(t *testing.T) {
	one, other := &process.File{}, &process.File{}
	s := NewStore(byPID{7: one, 8: one, 9: other})
	leaf := map[int]NodeID{}
	for pid := 7; pid <= 9; pid++ {
		r := record(uint64(pid), nil, []uint64{0x101, 0x200})
		binary.NativeEndian.PutUint64(r[unsafe.Offsetof(bpf.StackRecord{}.Epoch):], uint64(pid))
		binary.NativeEndian.PutUint32(r[unsafe.Offsetof(bpf.StackRecord{}.Pid):], uint32(pid))
		if err := s.Add(r); err != nil {
			t.Fatal(err)
		}
		trace, _ := s.Trace(uint64(pid))
		leaf[pid] = trace.Leaf
	}
	if leaf[7] != leaf[8] {
		t.Error("two processes with the same file have different stacks")
	}
	if leaf[7] == leaf[9] || s.Codes[s.Frames[s.Nodes[leaf[9]].Frame].Code].File != other {
		t.Error("processes with different files share a stack")
	}
}

// Lasting has the frames whose names do not change, with their code.
func TestLasting(t *testing.T) {
	file := new(process.File)
	s := &Store{
		Codes:  []Code{{Kind: CodeKernel}, {Kind: CodeBroken}, {Kind: CodeJIT, PID: 1}, {Kind: CodeFile, File: file}, {Kind: CodeRuntime}, {Kind: CodeVDSO}, {Kind: CodeUnknown}},
		Ranges: []Range{{}, {}, {}, {Start: 3}, {}, {Start: 5}, {}},
		Frames: []Frame{{Code: 3, Address: 1}, {Code: 1}, {Code: 2, Address: 2}, {Code: 5, Address: 3, Return: true}, {Code: 0, Address: 4}, {Code: 3, Address: 5}, {Code: 4}, {Code: 6}},
	}
	got := s.Lasting(1)
	want := &Store{
		Codes:  []Code{{Kind: CodeVDSO}, {Kind: CodeKernel}, {Kind: CodeFile, File: file}},
		Ranges: []Range{{Start: 5}, {}, {Start: 3}},
		Frames: []Frame{{Code: 0, Address: 3, Return: true}, {Code: 1, Address: 4}, {Code: 2, Address: 5}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if all := s.Lasting(0); len(all.Frames) != 4 || len(s.Lasting(len(s.Frames)).Frames) != 0 {
		t.Errorf("got %d frames from the first one on, and %d after the last one, want 4 and 0", len(all.Frames), len(s.Lasting(len(s.Frames)).Frames))
	}
}
