// Package threadctx finds the thread-local variable that points to the context of each thread,
// such as the IDs of its trace and span, so that the kernel side can read it. It is the variable
// otel_thread_ctx_v1 of OpenTelemetry's OTEP 4947, see
// https://github.com/open-telemetry/opentelemetry-specification/blob/main/oteps/profiles/4947-thread-ctx.md.
//
// The loader decides where a thread has the variable. Programs have its decision in a slot of the
// linkage table, which relocations name. See "ELF Handling For Thread-Local Storage" by Ulrich
// Drepper, and for TLS descriptors "Thread-Local Storage Descriptors for IA32 and AMD64/EM64T" by
// Alexandre Oliva. The kernel side reads the slot with each sample: it is empty until the loader
// has filled it.
package threadctx

import (
	"debug/elf"
	"encoding/binary"

	"fulgur/internal/bpf"
	"fulgur/internal/symbols/elffile"
)

// symbol is the name of the variable.
const symbol = "otel_thread_ctx_v1"

// Variable is the variable of a file.
type Variable struct {
	kind    bpf.LabelKind
	machine elf.Machine
	slot    uint64 // link-time address, if the kind has a slot
	offset  uint64 // see [bpf.LabelProcess]
}

// InProgram reports whether the variable is a program's own. The definitions of a program
// take precedence over those in libraries.
func (v *Variable) InProgram() bool { return v.kind == bpf.LabelsContextOffset }

// Entry returns the kernel side's entry for a process image that has f mapped. bias is the
// difference between running and link-time addresses, and glibc means that the process uses glibc
// rather than musl.
func (v *Variable) Entry(image, bias uint64, glibc bool) bpf.LabelProcess {
	p := bpf.LabelProcess{Image: image, Kind: uint32(v.kind), Offset: v.offset}
	if v.kind == bpf.LabelsContextOffset {
		return p
	}
	p.Slot = v.slot + bias
	// The address of a thread's vector of modules is in glibc's tcbhead_t and in musl's
	// struct pthread.
	switch {
	case v.machine == elf.EM_X86_64:
		p.Vector = 8
	case !glibc:
		p.Vector = -8
	}
	p.ModuleShift = 3
	if glibc {
		p.ModuleShift = 4
	}
	return p
}

// relocations are the types of relocations of slots, by machine.
var relocations = map[elf.Machine]map[uint32]bpf.LabelKind{
	elf.EM_X86_64: {
		uint32(elf.R_X86_64_TPOFF64):  bpf.LabelsContextSlot,
		uint32(elf.R_X86_64_TLSDESC):  bpf.LabelsContextDescriptor,
		uint32(elf.R_X86_64_DTPMOD64): bpf.LabelsContextIndex,
	},
	elf.EM_AARCH64: {
		uint32(elf.R_AARCH64_TLS_TPREL64):  bpf.LabelsContextSlot,
		uint32(elf.R_AARCH64_TLSDESC):      bpf.LabelsContextDescriptor,
		uint32(elf.R_AARCH64_TLS_DTPMOD64): bpf.LabelsContextIndex,
	},
}

// Detect returns the variable that f defines, or nil if it defines none.
func Detect(f *elffile.File) (*Variable, error) {
	kinds := relocations[f.Machine()]
	if kinds == nil || f.WordSize() != 8 {
		return nil, nil
	}
	s, index, err := f.DynamicSymbolIndex(symbol)
	if err != nil || index == 0 {
		return nil, err
	}
	if s.Type != elf.STT_TLS || s.Size != 8 {
		return nil, f.Errorf(0, "%s is not a thread-local pointer", symbol)
	}
	var named, unnamed *Variable
	err = f.EachRela(func(_ *elffile.Section, r elffile.Rela) bool {
		kind, ok := kinds[r.Type]
		if !ok || r.Symbol != index && r.Symbol != 0 {
			return true
		}
		v := &Variable{kind: kind, machine: f.Machine(), slot: r.Offset}
		if r.Symbol == index {
			v.offset = -uint64(r.Addend)
			named = v
			return false
		}
		// The slot of another variable of the file, at an offset in its thread-local storage.
		if v.offset = s.Value - uint64(r.Addend); kind == bpf.LabelsContextIndex {
			v.kind, v.offset = bpf.LabelsContextModule, s.Value
		}
		unnamed = v
		return true
	})
	switch {
	case err != nil:
		return nil, err
	case named != nil:
		return named, nil
	}
	program, err := isProgram(f)
	switch {
	case err != nil:
		return nil, err
	case program:
		if at, ok := inProgram(f, s); ok {
			return &Variable{kind: bpf.LabelsContextOffset, machine: f.Machine(), offset: at}, nil
		}
	case unnamed != nil:
		return unnamed, nil
	}
	return nil, f.Errorf(0, "no relocation for %s", symbol)
}

// isProgram reports whether f is a program rather than a library.
func isProgram(f *elffile.File) (bool, error) {
	if f.Type() == elf.ET_EXEC {
		return true, nil
	}
	for _, s := range f.Segments() {
		switch s.Type {
		case elf.PT_INTERP:
			return true, nil
		case elf.PT_DYNAMIC:
			table, err := f.Bytes(int64(s.Offset), min(s.FileSize, 1<<16), "dynamic section")
			if err != nil {
				return false, err
			}
			for ; len(table) >= 16; table = table[16:] {
				if elf.DynTag(binary.LittleEndian.Uint64(table)) == elf.DT_FLAGS_1 {
					return elf.DynFlag1(binary.LittleEndian.Uint64(table[8:]))&elf.DF_1_PIE != 0, nil
				}
			}
		}
	}
	return false, nil
}

// inProgram returns the offset of a program's own variable from the thread pointer. Linkers know
// it, because the program is the first module.
func inProgram(f *elffile.File, s elffile.Symbol) (uint64, bool) {
	for _, tls := range f.Segments() {
		if tls.Type != elf.PT_TLS {
			continue
		}
		mask := max(tls.Align, 1) - 1
		if f.Machine() == elf.EM_X86_64 {
			return s.Value - tls.MemSize - (-tls.Addr-tls.MemSize)&mask, true
		}
		const tcb = 16 // above the thread pointer
		return s.Value + tcb + (tls.Addr-tcb)&mask, true
	}
	return 0, false
}
