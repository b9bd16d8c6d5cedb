package runtimes

import (
	"bytes"
	"encoding/binary"
	"strings"

	"fulgur/internal/bpf"
	"fulgur/internal/symbols/elffile"
)

// Ways to find a thread-local variable; see enum runtime_local_model of bpf/runtime_maps.h.
const (
	LocalByOffset   = uint8(bpf.UnwindRuntimeLocalModelLOCAL_BY_OFFSET)
	LocalByOffsetAt = uint8(bpf.UnwindRuntimeLocalModelLOCAL_BY_OFFSET_AT)
	LocalByModule   = uint8(bpf.UnwindRuntimeLocalModelLOCAL_BY_MODULE)
)

// maxFunction is the maximum number of bytes to read of a function.
const maxFunction = 4096

// Function returns the code at a symbol, up to a limit.
func Function(f *elffile.File, s elffile.Symbol) ([]byte, error) {
	return Contents(f, s.Value, min(s.Size, maxFunction))
}

// FindLocal finds the thread-local variable that a function for amd64 loads first. addr is the
// function's link-time address. The instructions depend on the model of thread-local storage: see
// "ELF Handling For Thread-Local Storage" by Ulrich Drepper.
func FindLocal(code []byte, addr uint64) (l bpf.RuntimeLocal, ok bool) {
	// after returns the 32 bits after the first occurrence of instructions, and the address
	// after these bits, if the code continues with then.
	after := func(instructions, then string) (value int32, next uint64, ok bool) {
		i := bytes.Index(code, []byte(instructions))
		at := i + len(instructions)
		if i < 0 || at+4 > len(code) || !strings.HasPrefix(string(code[at+4:]), then) {
			return 0, 0, false
		}
		return int32(binary.LittleEndian.Uint32(code[at:])), addr + uint64(at) + 4, true
	}
	const load = "\x64\x48\x8b\x00"                           // mov %fs:(%rax),%rax
	if v, next, ok := after("\x66\x48\x8d\x3d", "\x66"); ok { // data16 lea v(%rip),%rdi; call __tls_get_addr
		return bpf.RuntimeLocal{Model: LocalByModule, At: next + uint64(int64(v))}, true
	}
	if v, next, ok := after("\x48\x8b\x05", load); ok { // mov v(%rip),%rax
		return bpf.RuntimeLocal{Model: LocalByOffsetAt, At: next + uint64(int64(v))}, true
	}
	for _, move := range []struct{ load, then string }{
		{"\x64\x48\x8b\x04\x25", ""}, // mov %fs:v,%rax
		{"\x48\xc7\xc0", load},       // mov $v,%rax
	} {
		// Thread-local variables are below the thread pointer; the stack protector's canary
		// is above it.
		if v, _, ok := after(move.load, move.then); ok && v < 0 {
			return bpf.RuntimeLocal{Model: LocalByOffset, At: uint64(int64(v))}, true
		}
	}
	return l, false
}

// Bytes per entry of the dynamic loader's vector of modules, log2.
const (
	glibcModuleShift = 4
	muslModuleShift  = 3
)

// PlaceLocal completes a thread-local variable for a process, like [Build.Place].
func PlaceLocal(l *bpf.RuntimeLocal, bias uint64, glibc bool) {
	if l.Model != LocalByOffset {
		l.At += bias
	}
	l.ModuleShift = muslModuleShift
	if glibc {
		l.ModuleShift = glibcModuleShift
	}
}
