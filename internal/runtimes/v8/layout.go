package v8

import (
	"fmt"

	"fulgur/internal/bpf"
	"fulgur/internal/symbols/elffile"
)

// layout has the offsets of fields in bytes from the start of objects, and instance types.
type layout struct {
	kernel    bpf.UnwindV8Process
	positions positionFormat

	sharedName, sharedScript, sharedData, sharedFlags int // SharedFunctionInfo
	scriptName, scriptSource, scriptLineEnds          int // Script
	bytecodeData, bytecodeWrapper                     int // BytecodeArray
	arrayLength, arrayData                            int // FixedArray
	stringLength, stringChars                         int // String
	consFirst, consSecond, thinActual                 int
	slicedParent, slicedOffset, externalResource      int
	scopeFirst                                        int // ScopeInfo: index of the first optional word

	// Instance types.
	shared, scopeInfo, script, fixedArray  int
	byteArray, trustedByteArray, bytecodes int
	code, interpreterData                  int
	wasmExport                             int // data of an exported function of WebAssembly, or -1
	nonString                              int
	representation, seq, cons, thin        int
	sliced, external, encoding, oneByte    int
	codeLayout                             codeLayout
}

// Offsets and sizes that V8 does not export and that the kernel side assumes.
const (
	word        = 8 // pointers are not compressed in Node.js
	mapAt       = 0
	dataAt      = 8 // SharedFunctionInfo: code or bytecode
	numbersSize = 16
	maxShared   = 72 // bytes to read from a SharedFunctionInfo
	maxScript   = 72
	stringSize  = 32  // bytes to read from a String
	maxCode     = 256 // bytes to read from a Code object
	// functionTypes is the number of instance types of JSFunction and its subclasses in
	// versions that do not export the last one: JSFunction itself, and the constructors of
	// classes, Array, Promise, RegExp, and 11 typed arrays; see src/objects/js-function.tq.
	functionTypes = 16
)

// fixed lists constants of V8 that are the same in all supported versions of Node.js.
var fixed = []struct {
	name  string
	value int
}{
	{"off_fp_context", -8}, {"off_fp_function", -16},
	{"off_fp_bytecode_array", -32}, {"off_fp_bytecode_offset", -40},
	{"HeapObjectTag", 1}, {"HeapObjectTagMask", 3}, {"SmiTag", 0}, {"SmiTagMask", 1}, {"SmiValueShift", 1},
	{"SmiShiftSize", 31}, {"class_HeapObject__map__Map", mapAt},
}

// readLayout reads the layout from the symbols of V8. missing is the name of a constant that
// the file lacks or that has an unknown value, or empty.
func readLayout(f *elffile.File, v version) (l layout, missing string, err error) {
	lookup := func(name string) (int, bool) {
		if err != nil {
			return 0, false
		}
		s, ok, e := f.DynamicSymbol("v8dbg_" + name)
		if e != nil || !ok {
			err = e
			return 0, false
		}
		n, e := constant(f, s)
		err = e
		return n, err == nil
	}
	// one returns the first of the named constants that the file has. The names end with
	// types, which differ between versions.
	one := func(limit int, names ...string) int {
		for _, name := range names {
			if n, ok := lookup(name); ok {
				if n < 0 || n > limit {
					missing = fmt.Sprintf("%s is %d", name, n)
				}
				return n
			}
		}
		missing = names[0]
		return 0
	}
	optional := func(name string) int {
		n, ok := lookup(name)
		if !ok {
			return -1
		}
		return n
	}
	for _, c := range fixed {
		if n, ok := lookup(c.name); !ok || n != c.value {
			missing = c.name
		}
	}
	const offset, kind = 200, 1<<16 - 1
	l = layout{
		sharedName:       one(offset, "class_SharedFunctionInfo__name_or_scope_info__Tagged_NameOrScopeInfoT_", "class_SharedFunctionInfo__name_or_scope_info__Tagged_Object_", "class_SharedFunctionInfo__name_or_scope_info__Object"),
		sharedScript:     one(offset, "class_SharedFunctionInfo__script__Tagged_HeapObject_", "class_SharedFunctionInfo__script_or_debug_info__HeapObject"),
		sharedFlags:      one(offset, "class_SharedFunctionInfo__flags__int"),
		sharedData:       dataAt,
		scriptName:       one(offset, "class_Script__name__Object"),
		scriptSource:     one(offset, "class_Script__source__Object"),
		scriptLineEnds:   one(offset, "class_Script__line_ends__Object"),
		bytecodeData:     one(offset, "class_BytecodeArray__data__uintptr_t"),
		bytecodeWrapper:  optional("class_BytecodeArray__wrapper__Tagged_BytecodeWrapper_"),
		arrayLength:      one(offset, "class_FixedArrayBase__length__SMI"),
		arrayData:        one(offset, "class_FixedArray__data__uintptr_t"),
		stringLength:     one(offset, "class_String__length__int32_t"),
		stringChars:      one(offset, "class_SeqOneByteString__chars__char"),
		consFirst:        one(offset, "class_ConsString__first__String"),
		consSecond:       one(offset, "class_ConsString__second__String"),
		thinActual:       one(offset, "class_ThinString__actual__String"),
		slicedParent:     one(offset, "class_SlicedString__parent__String"),
		slicedOffset:     one(offset, "class_SlicedString__offset__SMI"),
		externalResource: one(offset, "class_ExternalString__resource__Object"),
		scopeFirst:       one(8, "scopeinfo_idx_first_vars"),

		shared:           one(kind, "type_SharedFunctionInfo__SHARED_FUNCTION_INFO_TYPE"),
		scopeInfo:        one(kind, "type_ScopeInfo__SCOPE_INFO_TYPE"),
		script:           one(kind, "type_Script__SCRIPT_TYPE"),
		fixedArray:       one(kind, "type_FixedArray__FIXED_ARRAY_TYPE"),
		byteArray:        one(kind, "type_ByteArray__BYTE_ARRAY_TYPE"),
		trustedByteArray: optional("type_TrustedByteArray__TRUSTED_BYTE_ARRAY_TYPE"),
		bytecodes:        one(kind, "type_BytecodeArray__BYTECODE_ARRAY_TYPE"),
		code:             one(kind, "type_Code__CODE_TYPE"),
		interpreterData:  one(kind, "type_InterpreterData__INTERPRETER_DATA_TYPE"),
		wasmExport:       optional("type_WasmExportedFunctionData__WASM_EXPORTED_FUNCTION_DATA_TYPE"),

		nonString:      one(kind, "FirstNonstringType"),
		representation: one(kind, "StringRepresentationMask"),
		seq:            one(kind, "SeqStringTag"),
		cons:           one(kind, "ConsStringTag"),
		thin:           one(kind, "ThinStringTag"),
		sliced:         one(kind, "SlicedStringTag"),
		external:       one(kind, "ExternalStringTag"),
		encoding:       one(kind, "StringEncodingMask"),
		oneByte:        one(kind, "OneByteStringTag"),
	}
	l.codeLayout = readCodeLayout(v, one, optional)
	l.positions = positionsSigned
	if v.major >= 14 {
		l.positions = positionsFlagged
	}
	first, last := optional("FirstJSFunctionType"), optional("LastJSFunctionType")
	if first < 0 {
		first = one(kind-functionTypes, "type_JSFunction__JS_FUNCTION_TYPE")
		last = first + functionTypes - 1
	}
	numbers := one(maxShared-numbersSize, "class_SharedFunctionInfo__length__uint16_t")
	if l.sharedFlags != numbers+8 || l.sharedName <= dataAt {
		missing = "class_SharedFunctionInfo"
	}
	l.kernel = bpf.UnwindV8Process{
		FunctionFirst: uint16(first), FunctionLast: uint16(last),
		SharedType: uint16(l.shared), BytecodeType: uint16(l.bytecodes),
		MapType:        uint8(one(offset, "class_Map__instance_type__uint16_t")),
		FunctionShared: uint8(one(offset, "class_JSFunction__shared__SharedFunctionInfo")),
		SharedScript:   uint8(l.sharedScript), SharedNumbers: uint8(numbers),
		// The script's ID has no symbol, but in all versions it follows the line ends, see
		// src/objects/script.tq.
		ScriptId: uint8(l.scriptLineEnds + word),
	}
	if class := l.outside(); class != "" {
		missing = class
	}
	return l, missing, err
}

// outside returns the class of an object with a field beyond the bytes that are read from the
// object, or "" if there is none.
func (l *layout) outside() string {
	code := &l.codeLayout
	for _, f := range []struct {
		class      string
		size, read int // of the field, and of the object, in bytes
		offsets    []int
	}{
		{"class_SharedFunctionInfo", word, min(l.sharedSize(), maxShared), []int{l.sharedName, l.sharedScript, l.sharedData}},
		{"class_Script", word, maxScript, []int{l.scriptName, l.scriptSource, l.scriptLineEnds, int(l.kernel.ScriptId)}},
		{"class_String", 4, stringSize, []int{l.stringLength}},
		{"class_ConsString", word, stringSize, []int{l.consFirst, l.consSecond}},
		{"class_ThinString", word, stringSize, []int{l.thinActual}},
		{"class_SlicedString", word, stringSize, []int{l.slicedParent, l.slicedOffset}},
		{"class_ExternalString", 2 * word, stringSize, []int{l.externalResource}},
		{"class_Code", 4, maxCode, []int{code.size, code.flags}},
		{"class_Code", word, code.read(), []int{code.deoptimize, code.positions, code.start}},
	} {
		for _, at := range f.offsets {
			if at < 0 || at > f.read-f.size {
				return f.class
			}
		}
	}
	if l.scopeFirst <= scopeStart-1 {
		return "scopeinfo_idx_first_vars"
	}
	return ""
}

// readCodeLayout reads the layout of compiled code. V8 11.3 removed the symbols of some
// fields, and 10.2 lacks others.
func readCodeLayout(v version, one func(int, ...string) int, optional func(string) int) codeLayout {
	const offset, kind = 200, 1<<16 - 1
	or := func(name string, otherwise int) int {
		if n := optional(name); n >= 0 {
			return n
		}
		return otherwise
	}
	c := codeLayout{
		code:          one(kind, "type_Code__CODE_TYPE"),
		kindMask:      one(kind, "CodeKindFieldMask"),
		baseline:      one(kind, "CodeKindBaseline"),
		inlinedCount:  or("DeoptimizationDataInlinedFunctionCountIndex", 1),
		literals:      or("DeoptimizationDataLiteralArrayIndex", 2),
		shared:        or("DeoptimizationDataSharedFunctionInfoIndex", 6),
		inlinings:     or("DeoptimizationDataInliningPositionsIndex", 7),
		sharedWrapper: optional("type_SharedFunctionInfoWrapper__SHARED_FUNCTION_INFO_WRAPPER_TYPE"),
	}
	c.shared = or("DeoptimizationDataWrappedSharedFunctionInfoIndex", c.shared)
	switch {
	case v.major < 11:
		c.inline, c.object = true, c.code
		c.header = one(offset, "class_Code__instruction_start__uintptr_t")
		c.size, c.flags = one(offset, "class_Code__instruction_size__int"), one(offset, "class_Code__flags__uint32_t")
		c.deoptimize, c.positions = c.size-3*word, c.size-2*word
	case v.major == 11:
		c.deoptimize = one(offset, "class_Code__deoptimization_data__FixedArray")
		c.positions = one(offset, "class_Code__source_position_table__ByteArray")
		c.start = c.positions + 2*word
		c.flags, c.size = c.start+word, c.start+2*word
	default:
		c.start = one(offset, "class_Code__instruction_start__Address")
		c.size, c.flags = one(offset, "class_Code__instruction_size__int"), one(offset, "class_Code__flags__uint32_t")
		c.deoptimize, c.positions = c.start-4*word, c.start-3*word
	}
	if !c.inline {
		c.object = one(kind, "type_InstructionStream__INSTRUCTION_STREAM_TYPE")
		c.header = one(offset, "class_InstructionStream__instruction_start__uintptr_t")
	}
	for _, name := range []string{
		"FixedArray__FIXED_ARRAY", "WeakFixedArray__WEAK_FIXED_ARRAY", "TrustedFixedArray__TRUSTED_FIXED_ARRAY",
		"TrustedWeakFixedArray__TRUSTED_WEAK_FIXED_ARRAY", "ProtectedFixedArray__PROTECTED_FIXED_ARRAY",
		"ProtectedWeakFixedArray__PROTECTED_WEAK_FIXED_ARRAY",
	} {
		if t := optional("type_" + name + "_TYPE"); t >= 0 {
			c.arrays = append(c.arrays, t)
		}
	}
	for _, name := range []string{"ByteArray__BYTE_ARRAY", "TrustedByteArray__TRUSTED_BYTE_ARRAY"} {
		if t := optional("type_" + name + "_TYPE"); t >= 0 {
			c.bytes = append(c.bytes, t)
		}
	}
	return c
}
