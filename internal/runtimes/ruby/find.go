package ruby

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"strings"

	"fulgur/bpf"
	"fulgur/internal/runtimes"
	"fulgur/internal/symbols/callframe"
	"fulgur/internal/symbols/elffile"
	"fulgur/internal/symbols/instruction"
)

// Ways to find a thread's execution context; see enum ruby_context of bpf/runtime_maps.h.
const (
	byOffset   = uint8(bpf.UnwindRubyContextRUBY_BY_OFFSET)
	byOffsetAt = uint8(bpf.UnwindRubyContextRUBY_BY_OFFSET_AT)
	byModule   = uint8(bpf.UnwindRubyContextRUBY_BY_MODULE)
)

// maxCode is the maximum number of bytes to read of a function.
const maxCode = 4096

// function returns the code of an exported function and its address, or none.
func function(f *elffile.File, name string) (code []byte, addr uint64, err error) {
	s, ok, err := f.DynamicSymbol(name)
	if err != nil || !ok {
		return nil, 0, err
	}
	code, err = runtimes.Contents(f, s.Value, min(s.Size, maxCode))
	return code, s.Value, err
}

// findContext finds the thread-local variable ruby_current_ec, which rb_thread_current loads
// first, and stores its place in l. The instructions depend on the model of thread-local
// storage: see "ELF Handling For Thread-Local Storage" by Ulrich Drepper.
func findContext(f *elffile.File, l *layout) (bool, error) {
	code, addr, err := function(f, "rb_thread_current")
	if err != nil {
		return false, err
	}
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
		l.Context, l.At = byModule, next+uint64(int64(v))
		return true, nil
	}
	if v, next, ok := after("\x48\x8b\x05", load); ok { // mov v(%rip),%rax
		l.Context, l.At = byOffsetAt, next+uint64(int64(v))
		return true, nil
	}
	for _, move := range []struct{ load, then string }{
		{"\x64\x48\x8b\x04\x25", ""}, // mov %fs:v,%rax
		{"\x48\xc7\xc0", load},       // mov $v,%rax
	} {
		// Thread-local variables are below the thread pointer; the stack protector's canary
		// is above it.
		if v, _, ok := after(move.load, move.then); ok && v < 0 {
			l.Context, l.At = byOffset, uint64(int64(v))
			return true, nil
		}
	}
	return false, nil
}

// findExec returns the start and end of rb_vm_exec, or 0. Without a symbol, it is the only
// function of the same file that both rb_iseq_eval and rb_iseq_eval_main call.
func findExec(f *elffile.File) (start, end uint64, err error) {
	s, ok, err := f.DynamicSymbol("rb_vm_exec")
	if err != nil {
		return 0, 0, err
	}
	if ok {
		return s.Value, s.Value + s.Size, nil
	}
	first, err := called(f, "rb_iseq_eval")
	if err != nil {
		return 0, 0, err
	}
	second, err := called(f, "rb_iseq_eval_main")
	if err != nil {
		return 0, 0, err
	}
	for target := range first {
		if !second[target] {
			continue
		}
		if start != 0 {
			return 0, 0, nil // ambiguous
		}
		start = target
	}
	if start == 0 {
		return 0, 0, nil
	}
	bounds, err := callframe.Find(f, []uint64{start})
	if err != nil || bounds[0].Start != start {
		return 0, 0, err
	}
	return start, bounds[0].End, nil
}

// called returns the functions of the same file that an exported function calls or jumps to
// directly.
func called(f *elffile.File, name string) (map[uint64]bool, error) {
	sections, err := f.Sections()
	if err != nil {
		return nil, err
	}
	code, addr, err := function(f, name)
	if err != nil {
		return nil, err
	}
	start, end := addr, addr+uint64(len(code))
	targets := map[uint64]bool{}
	for len(code) > 0 {
		i, ok := instruction.DecodeX86(code, addr)
		if !ok {
			break
		}
		if (i.Kind == instruction.Call || i.Kind == instruction.Jump) && (i.Target < start || i.Target >= end) {
			targets[i.Target] = true
		}
		code, addr = code[i.Size:], addr+uint64(i.Size)
	}
	for target := range targets {
		for _, s := range sections {
			if s.IsPLT() && s.Holds(target) {
				delete(targets, target)
			}
		}
	}
	return targets, nil
}

// importsJumps reports whether the file calls setjmp of a C library to jump out of functions.
// Otherwise it uses __builtin_setjmp of its compiler.
func importsJumps(f *elffile.File) (found bool, err error) {
	sections, err := f.Sections()
	if err != nil {
		return false, err
	}
	for _, table := range sections {
		if table.Type != elf.SHT_DYNSYM {
			continue
		}
		names := f.SymbolNames(table)
		if names == nil {
			continue
		}
		err := f.EachSymbol(table, func(s elffile.Symbol) bool {
			if s.Section == elf.SHN_UNDEF {
				switch string(names.At(uint64(s.Name))) {
				case "longjmp", "_longjmp", "siglongjmp", "__longjmp_chk":
					found = true
				}
			}
			return !found
		})
		if err != nil {
			return false, err
		}
	}
	return found, nil
}
