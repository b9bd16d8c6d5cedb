package symbolize

import (
	"encoding/binary"
	"strings"
)

// The functions inlined into a function form a tree, which the runtime reads in the same
// way (runtime/symtabinl.go: inlinedCall, inlineUnwinder). A table by pc provides the
// innermost call. The position of a call is the address of an instruction in the
// calling function, its parentPc, which leads to the next outer call.

// maxGoInlines bounds the calls at an address. The compiler's inlining budget allows far
// fewer.
const maxGoInlines = 128

// The relevant tables of a function (internal/abi/symtab.go).
const (
	pcdataInlTreeIndex = 2
	funcdataInlTree    = 3
)

// readInlineTree finds the inlined calls of fn. The offsets of the function's tables by pc
// and of its data follow its record, at off.
func (t *goTable) readInlineTree(fn *goFunction, off uint64, numPCData uint32, numFuncData uint8) error {
	if numPCData <= pcdataInlTreeIndex || numFuncData <= funcdataInlTree {
		return nil
	}
	// A wrong count leads outside the file, or to values that later checks reject.
	const none = 1<<32 - 1
	data, err := t.r.uint32(off+4*(uint64(numPCData)+funcdataInlTree), "Go function data")
	if err != nil || data == none {
		return err
	}
	table, err := t.r.uint32(off+4*pcdataInlTreeIndex, "Go pc-value table")
	if err != nil {
		return err
	}
	if t.gofunc != 0 {
		fn.tree = t.gofunc + uint64(data)
	}
	return t.readValues(&fn.calls, table, fn.end-fn.entry)
}

// frames returns the functions at pc of fn, innermost first. If the inlined calls are
// unreadable, it returns the frames found so far and fn without a line, since the calling
// line is unknown.
func (t *goTable) frames(fn *goFunction, pc uint32) ([]Frame, error) {
	name, err := t.name(fn.name)
	if err != nil {
		return nil, err
	}
	offset := uint64(pc)
	outer := Frame{Name: name.shown, SystemName: name.system, StartLine: fn.startLine, Offset: offset}
	var frames []Frame
	for {
		i := fn.calls.at(pc)
		if i < 0 {
			err := t.position(&outer, fn, pc)
			return append(frames, outer), err
		}
		if len(frames) == maxGoInlines {
			return append(frames, outer), t.f.Errorf(int64(fn.off), "more than %d inlined Go calls at one address", maxGoInlines)
		}
		call, err := t.inlinedCall(fn, uint32(i))
		if err != nil {
			return append(frames, outer), err
		}
		f := Frame{Name: call.name.shown, SystemName: call.name.system, StartLine: call.startLine, Offset: offset, Inlined: true}
		if err := t.position(&f, fn, pc); err != nil {
			return append(frames, f, outer), err
		}
		frames = append(frames, f)
		pc = call.parent
	}
}

// goInlinedCall is an inlined call.
type goInlinedCall struct {
	name      goName
	parent    uint32 // pc in the caller, relative to the function's entry
	startLine int
}

// inlinedCall reads the i-th inlined call of fn.
func (t *goTable) inlinedCall(fn *goFunction, i uint32) (call goInlinedCall, err error) {
	if fn.tree == 0 {
		return call, t.f.Errorf(int64(fn.off), "Go program whose module data was not found, so that inlined functions are missing")
	}
	off, ok := t.f.Offset(fn.tree + uint64(i)*t.layout.callSize)
	if !ok {
		return call, t.f.Errorf(int64(fn.off), "inlined Go calls at address %#x, which the file does not hold", fn.tree)
	}
	record, err := t.r.read(off, t.layout.callSize, "inlined Go call")
	if err != nil {
		return call, err
	}
	field := func(at uint64) uint32 { return binary.LittleEndian.Uint32(record[at:]) }
	call.parent = field(t.layout.callParent)
	if call.parent >= fn.end-fn.entry {
		return call, t.f.Errorf(int64(off), "inlined Go call from outside of its function")
	}
	if t.layout.callStart != 0 {
		call.startLine = int(int32(field(t.layout.callStart)))
	}
	call.name, err = t.name(field(t.layout.callName))
	return call, err
}

// goName is a function's displayed name and its linker name.
type goName struct{ shown, system string }

// name returns the name at offset i of the name table.
func (t *goTable) name(i uint32) (goName, error) {
	if name, ok := t.shown[i]; ok {
		return name, nil
	}
	b, err := t.r.cstring(t.names, uint64(i), "Go function name")
	if err == nil && len(b) == 0 {
		err = t.f.Errorf(int64(t.names.off), "empty Go function name at %#x of its table", i)
	}
	if t.nameBytes += uint64(len(b)); err == nil && t.nameBytes > t.names.size {
		err = t.f.Errorf(int64(t.names.off), "Go function names that overlap")
	}
	if err != nil {
		return goName{}, err
	}
	system := strings.ToValidUTF8(string(b), "\uFFFD")
	name := goName{shown: shortTypeArguments(system), system: system}
	t.shown[i] = name
	return name, nil
}

// shortTypeArguments replaces the type arguments in name by [...], as the runtime does
// (runtime/traceback.go: funcNameForPrint). Instances that share code are named after their
// shape, which means nothing to readers.
func shortTypeArguments(name string) string {
	i, j := strings.IndexByte(name, '['), strings.LastIndexByte(name, ']')
	if i < 0 || j <= i {
		return name
	}
	return name[:i] + "[...]" + name[j+1:]
}
