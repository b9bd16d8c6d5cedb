package ruby

import (
	"debug/elf"

	"fulgur/internal/runtimes"
	"fulgur/internal/symbols/callframe"
	"fulgur/internal/symbols/elffile"
	"fulgur/internal/symbols/instruction"
)

// function returns the code of an exported function and its address, or none.
func function(f *elffile.File, name string) (code []byte, addr uint64, err error) {
	s, ok, err := f.DynamicSymbol(name)
	if err != nil || !ok {
		return nil, 0, err
	}
	code, err = runtimes.Function(f, s)
	return code, s.Value, err
}

// findContext finds the thread-local variable ruby_current_ec, which rb_thread_current loads
// first, and stores its place in l.
func findContext(f *elffile.File, l *layout) (ok bool, err error) {
	code, addr, err := function(f, "rb_thread_current")
	if err != nil {
		return false, err
	}
	l.Context, ok = runtimes.FindLocal(code, addr)
	return ok, nil
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
