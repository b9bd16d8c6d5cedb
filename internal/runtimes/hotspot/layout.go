package hotspot

import (
	"errors"
	"fmt"

	"fulgur/internal/bpf"
	"fulgur/internal/runtimes"
)

// errLayout is returned for data that HotSpot would not write.
var errLayout = errors.New("unexpected HotSpot data")

// layout has the offsets of fields in bytes, and sizes of types.
type layout struct {
	version int
	kernel  bpf.UnwindHotspotProcess

	blobName, blobSize                    int // CodeBlob
	code                                  int // CodeBlob: address or offset of the code
	codeOffset                            bool
	nmethodSize, nmethodMethod, compileID int // nmethod
	scopesPCs, scopesPCsEnd               int // offsets, in the nmethod or in its immutable data
	scopesData, scopesEnd                 int
	metadata                              int // up to 21: an offset in the nmethod
	immutable, mutable, mutableSize       int // addresses of data outside of the nmethod; -1 up to 21
	relocations                           int
	pcDescSize                            int

	methodConst                             int // Method
	constPool, constWords, constFlags       int // ConstMethod
	constCode, constName, constID, constLen int // constLen is the size of ConstMethod
	hasLines                                int
	poolHolder, poolTags, poolLength        int // ConstantPool
	poolSource, poolSize                    int
	klassName, klassPool, klassMethods      int // Klass, InstanceKlass
	symbolCount, symbolLength, symbolBody   int // Symbol
	arrayLength, arrayBytes, arrayMethods   int // Array<T>
	klassRead                               int // bytes to read
	klassID                                 int // Klass: the number of the class
	klassIDShift                            uint
}

// builder collects fields. missing is the name of the first one that the tables lack.
type builder struct {
	*description
	missing string
}

const maxOffset = 1 << 10

func (b *builder) of(values map[string]int, limit int, names ...string) int {
	for _, name := range names {
		if n, ok := values[name]; ok {
			if n < 0 || n > limit {
				break
			}
			return n
		}
	}
	if b.missing == "" {
		b.missing = names[0]
	}
	return 0
}

func (b *builder) field(names ...string) int { return b.of(b.fields, maxOffset, names...) }
func (b *builder) size(name string) int      { return b.of(b.sizes, maxOffset, name) }
func (b *builder) constant(names ...string) int {
	return b.of(b.constants, 1<<16, names...)
}

func (b *builder) has(name string) bool {
	_, ok := b.fields[name]
	return ok
}

// newLayout returns the layout of a version. missing is the name of an entry that the tables
// lack, or empty.
func newLayout(d *description, version int) (l *layout, missing string) {
	b := &builder{description: d}
	l = &layout{
		version:  version,
		blobName: b.field("CodeBlob._name"), blobSize: b.field("CodeBlob._size"),
		code: b.field("CodeBlob._code_begin", "CodeBlob._code_offset"), codeOffset: !b.has("CodeBlob._code_begin"),
		nmethodSize: b.size("nmethod"), nmethodMethod: b.field("nmethod._method", "CompiledMethod._method"),
		compileID: b.field("nmethod._compile_id"), scopesPCs: b.field("nmethod._scopes_pcs_offset"),
		immutable: -1, mutable: -1, pcDescSize: b.size("PcDesc"),

		methodConst: b.field("Method._constMethod"),
		constPool:   b.field("ConstMethod._constants"), constWords: b.field("ConstMethod._constMethod_size"),
		constFlags: b.field("ConstMethod._flags", "ConstMethod._flags._flags"),
		constCode:  b.field("ConstMethod._code_size"), constName: b.field("ConstMethod._name_index"),
		constID: b.field("ConstMethod._method_idnum"), constLen: b.size("ConstMethod"),
		hasLines:   b.constant("ConstMethod::_has_linenumber_table", "ConstMethodFlags::_misc_has_linenumber_table"),
		poolHolder: b.field("ConstantPool._pool_holder"), poolTags: b.field("ConstantPool._tags"),
		poolLength: b.field("ConstantPool._length"), poolSource: b.field("ConstantPool._source_file_name_index"),
		poolSize:  b.size("ConstantPool"),
		klassName: b.field("Klass._name"), klassPool: b.field("InstanceKlass._constants"), klassMethods: b.field("InstanceKlass._methods"),
		symbolCount: b.field("Symbol._hash_and_refcount"), symbolLength: b.field("Symbol._length"), symbolBody: b.field("Symbol._body"),
		arrayLength: b.field("Array<int>._length"), arrayBytes: b.field("Array<u1>._data"), arrayMethods: b.field("Array<Method*>._data"),
	}
	if b.has("nmethod._immutable_data") {
		l.immutable, l.mutable = b.field("nmethod._immutable_data"), b.field("CodeBlob._mutable_data")
		l.scopesData, l.scopesEnd = b.field("nmethod._scopes_data_offset"), b.field("nmethod._immutable_data_size")
		l.mutableSize, l.relocations = b.field("CodeBlob._mutable_data_size"), b.field("CodeBlob._relocation_size")
	} else {
		l.scopesPCsEnd, l.scopesData = b.field("nmethod._dependencies_offset"), b.field("CompiledMethod._scopes_data_begin")
		l.metadata = b.field("nmethod._metadata_offset")
	}
	if l.pcDescSize != pcDescSize && b.missing == "" {
		b.missing = "PcDesc"
	}
	l.classID(b)
	l.klassRead = max(l.klassName, l.klassPool, l.klassMethods, l.klassID) + 8
	if b.missing == "" && max(l.nmethodMethod, l.compileID, l.scopesPCs, l.scopesPCsEnd, l.scopesData, l.scopesEnd, l.metadata,
		l.immutable, l.mutable, l.mutableSize, l.relocations)+8 > l.nmethodSize {
		b.missing = "nmethod"
	}
	if b.missing == "" && (max(l.poolHolder, l.poolTags)+8 > l.poolSize || max(l.poolLength, l.poolSource)+4 > l.poolSize ||
		max(l.constPool+8, l.constWords+4, l.constFlags+4, l.constCode+2, l.constName+2, l.constID+2) > l.constLen) {
		b.missing = "ConstMethod"
	}
	l.kernelLayout(b)
	return l, b.missing
}

// classID finds the offset of a class's number. JDK Flight Recorder numbers all classes,
// whether it records or not: see DEFINE_TRACE_ID_FIELD of HotSpot. No table has the offset,
// but in all supported versions the number follows these fields of Klass. Its lowest 16 bits
// are flags.
func (l *layout) classID(b *builder) {
	after := max(b.field("Klass._vtable_len"), b.field("Klass._access_flags")) + 4
	l.klassID, l.klassIDShift = (after+7)&^7, 16
	if l.klassID > 255 {
		b.of(nil, 0, "Klass._trace_id")
	}
}

// checkClassID checks that two classes have different numbers.
func (l *layout) checkClassID(d *description) error {
	var ids [2]uint64
	for i, name := range []string{"Object", "String"} {
		klass, err := d.static("vmClasses._klasses[static_cast<int>(vmClassID::" + name + "_klass_knum)]")
		if err != nil {
			return err
		}
		if klass == 0 {
			return runtimes.ErrNotReady
		}
		if ids[i], err = d.current(klass + uint64(l.klassID)); err != nil {
			return err
		}
		ids[i] >>= l.klassIDShift
	}
	if ids[0] == 0 || ids[1] == 0 || ids[0] == ids[1] {
		return fmt.Errorf("%w: classes without numbers", errLayout)
	}
	return nil
}

// kernelLayout sets the part of the layout that the kernel side needs.
func (l *layout) kernelLayout(b *builder) {
	const head, tail = bpf.HotSpotHead, bpf.HotSpotTail
	id, orig := l.compileID, b.field("nmethod._orig_pc_offset")
	deopt := b.field("CompiledMethod._deopt_handler_begin", "nmethod._deopt_handler_begin", "nmethod._deopt_handler_offset")
	mh := b.field("CompiledMethod._deopt_mh_handler_begin", "nmethod._deopt_mh_handler_begin", "nmethod._deopt_mh_handler_offset")
	start := id
	for _, at := range []int{orig, deopt, mh} {
		if at+8 > head {
			start = min(start, at)
		}
	}
	start &^= 7
	at := func(offset int) uint8 {
		if offset+8 <= head {
			return uint8(offset)
		}
		if offset < start || offset+8 > start+tail {
			b.of(nil, 0, fmt.Sprintf("nmethod's offset %d", offset))
			return 0
		}
		return uint8(offset - start + head)
	}
	truth := map[bool]uint8{true: 1}
	complete := b.field("CodeBlob._frame_complete_offset")
	l.kernel = bpf.UnwindHotspotProcess{
		Tail: uint16(start), BlockHeader: uint8(b.of(b.sizes, 64, "HeapBlock")),
		BlobName: at(l.blobName), BlobFrame: at(b.field("CodeBlob._frame_size")), BlobComplete: at(complete),
		BlobCode: at(l.code), BlobSize: at(l.blobSize),
		// In 24, this field and its neighbors became shorter.
		CompleteShort: truth[l.immutable >= 0], CodeOffset: truth[l.codeOffset],
		Method: at(l.nmethodMethod), CompileId: at(id), OrigPc: at(orig), Deopt: at(deopt), DeoptMh: at(mh),
		DeoptOffsets: truth[b.has("nmethod._deopt_handler_offset")],
		MethodConst:  uint8(b.of(b.fields, 255, "Method._constMethod")), ConstPool: uint8(b.of(b.fields, 56, "ConstMethod._constants")),
		ConstCodeSize: uint8(b.of(b.fields, 56, "ConstMethod._code_size")), ConstName: uint8(b.of(b.fields, 56, "ConstMethod._name_index")),
		ConstSize:  uint8(b.of(b.sizes, 255, "ConstMethod")),
		PoolHolder: uint8(b.of(b.fields, 255, "ConstantPool._pool_holder")), PoolSize: uint8(b.of(b.sizes, 255, "ConstantPool")),
		KlassId: uint8(l.klassID), KlassIdShift: uint8(l.klassIDShift),
	}
}

// maxHeap bounds the size of the code cache; HotSpot's own limit is 2 GiB.
const maxHeap = 4 << 30

// place adds the addresses of the process's code to its entry.
func (l *layout) place(d *description, entry *bpf.RuntimeProcess) error {
	b := &builder{description: d}
	length, elements := b.field("GrowableArrayBase._len"), b.field("GrowableArray<int>._data")
	memory, segmap, shift := b.field("CodeHeap._memory"), b.field("CodeHeap._segmap"), b.field("CodeHeap._log2_segment_size")
	low, high := b.field("VirtualSpace._low_boundary"), b.field("VirtualSpace._high_boundary")
	buffer, limit := b.field("StubQueue._stub_buffer"), b.field("StubQueue._buffer_limit")
	if b.missing != "" {
		return runtimes.UnknownError(fmt.Sprintf("java %d: %s is not known, its functions are not shown", l.version, b.missing))
	}
	var failure error
	checked := func(w uint64, err error) uint64 {
		if err != nil && failure == nil {
			failure = err
		}
		return w
	}
	get := func(addr uint64) uint64 { return checked(d.current(addr)) }
	static := func(name string) uint64 { return checked(d.static(name)) }
	h := l.kernel
	h.Low, h.High = static("CodeCache._low_bound"), static("CodeCache._high_bound")
	list, queue := static("CodeCache._heaps"), static("AbstractInterpreter._code")
	if _, ok := d.statics["ContinuationEntry._return_pc"]; ok { // since 21, with virtual threads
		h.EntryReturn = static("ContinuationEntry._return_pc")
	}
	if failure != nil {
		return failure
	}
	if list == 0 || queue == 0 || h.High == 0 {
		return runtimes.ErrNotReady
	}
	n := int(uint32(get(list + uint64(length))))
	data := get(list + uint64(elements))
	if n > len(h.Heaps) {
		return fmt.Errorf("%w: a code cache of %d heaps", errLayout, n)
	}
	total := uint64(0)
	for i := range n {
		heap := get(data + 8*uint64(i))
		h.Heaps[i].Low, h.Heaps[i].High = get(heap+uint64(memory+low)), get(heap+uint64(memory+high))
		h.Heaps[i].Segments = get(heap + uint64(segmap+low))
		h.SegmentShift = uint8(get(heap + uint64(shift)))
		total += h.Heaps[i].High - h.Heaps[i].Low
	}
	h.Interpreter.Start = get(queue + uint64(buffer))
	h.Interpreter.End = h.Interpreter.Start + uint64(uint32(get(queue+uint64(limit))))
	switch {
	case failure != nil:
		return failure
	case total != h.High-h.Low || h.Interpreter.Start == 0 || h.SegmentShift == 0:
		return runtimes.ErrNotReady // some heaps do not exist yet
	case total > maxHeap || h.SegmentShift > 16 || h.Interpreter.Start < h.Low || h.Interpreter.End > h.High:
		return fmt.Errorf("%w: a code cache of %d bytes", errLayout, total)
	}
	if err := l.checkClassID(d); err != nil {
		return err
	}
	l.kernel, entry.Hotspot = h, h
	return nil
}
