package symbolize

import (
	"bytes"
	"errors"
	"fmt"
	"os"
)

// Kallsyms is the path of the kernel's list of symbols. Only privileged users see addresses
// there.
const Kallsyms = "/proc/kallsyms"

// ErrKernelHidden means that /proc/kallsyms shows no addresses.
var ErrKernelHidden = errors.New("the kernel hides its addresses: " +
	"run as root or with CAP_SYSLOG, with the sysctl kernel.kptr_restrict at 0 or 1")

// Kernel is a [Table] of the running kernel, its modules and BPF programs, with runtime
// addresses. The kernel generates /proc/kallsyms for every lookup, which takes longer than
// parsing it. So look up all addresses at once, and before the relevant programs and modules
// are unloaded.
type Kernel struct {
	path string
	opts Options
}

// OpenKernel returns the table at path, usually [Kallsyms]. The error wraps
// [ErrKernelHidden] if this process may not see the addresses, and [os.ErrNotExist] if
// the kernel was built without the table.
func OpenKernel(path string, opts Options) (*Kernel, error) {
	k := &Kernel{path: path, opts: opts}
	hidden := true
	// Only the first function shows whether addresses are hidden: absolute and per-CPU
	// symbols before it may be 0 in any case.
	if err := k.each(func(s kernelSymbol) bool {
		hidden = s.addr == 0
		return !s.text
	}); err != nil {
		return nil, err
	}
	if hidden {
		return nil, fmt.Errorf("%s: %w", path, ErrKernelHidden)
	}
	return k, nil
}

// kernelSymbol is a line of kallsyms. Its name and module are valid until the next line.
type kernelSymbol struct {
	found        bool
	text         bool // a function rather than data
	weak, global bool
	addr         uint64
	name, module []byte
}

// keep makes s a copy of t that remains valid after its line, reusing the memory of s.
func (s *kernelSymbol) keep(t kernelSymbol) {
	t.name = append(s.name[:0], t.name...)
	t.module = append(s.module[:0], t.module...)
	*s = t
}

// better reports whether s is preferable to old for the addresses after both: it is nearer,
// or it is the better alias, by these criteria: a function, not weak, global, a better name.
func (s *kernelSymbol) better(old *kernelSymbol) bool {
	switch {
	case !old.found:
		return true
	case s.addr != old.addr:
		return s.addr > old.addr
	case s.text != old.text:
		return s.text
	case s.weak != old.weak:
		return old.weak
	case s.global != old.global:
		return s.global
	}
	return preferName(s.name, old.name)
}

// LookupBatch implements [Table] on runtime addresses. A symbol extends to the next one,
// since kallsyms has no sizes. A module's last symbol extends at most to the end of the
// page after the one in which it starts, as in perf.
func (k *Kernel) LookupBatch(addrs []uint64) ([][]Frame, error) {
	// For each address: the last symbol at or below it but above the previous address,
	// and the first symbol above it but not above the next address.
	type place struct{ below, above kernelSymbol }
	places := make([]place, len(addrs))
	g := gaps{addrs: addrs}
	err := k.each(func(s kernelSymbol) bool {
		i := g.after(s.addr)
		if i < len(places) && s.better(&places[i].below) {
			places[i].below.keep(s)
		}
		if i > 0 {
			if above := &places[i-1].above; !above.found || s.addr < above.addr {
				above.keep(s)
			}
		}
		return true
	})

	// Each symbol was stored for one address; copy it to neighbors that have none.
	for i := len(places) - 2; i >= 0; i-- {
		if !places[i].above.found {
			places[i].above = places[i+1].above
		}
	}
	frames := make([][]Frame, len(addrs))
	var below kernelSymbol
	for i, addr := range addrs {
		if places[i].below.found {
			below = places[i].below
		}
		if !below.text {
			continue
		}
		above := &places[i].above
		const page = 4096
		if (!above.found || !bytes.Equal(above.module, below.module)) && addr >= below.addr&^(page-1)+2*page {
			continue
		}
		f := NewFrame(below.name, addr-below.addr, k.opts)
		f.Module = string(below.module)
		frames[i] = []Frame{f}
	}
	return frames, err
}

// each calls f with every symbol until f returns false. It skips lines that are not
// symbols.
func (k *Kernel) each(f func(kernelSymbol) bool) error {
	file, err := os.Open(k.path)
	if err != nil {
		return fmt.Errorf("kernel symbols: %w", err)
	}
	defer file.Close()
	err = eachLine(file, func(line []byte) bool {
		s, ok := parseKernelSymbol(line)
		return !ok || f(s)
	})
	if err != nil {
		return fmt.Errorf("kernel symbols: %w", err)
	}
	return nil
}

// parseKernelSymbol parses a line of kallsyms: address, type as in nm, name, and for
// modules a tab and the module in brackets (kernel/kallsyms.c, s_show).
func parseKernelSymbol(line []byte) (s kernelSymbol, ok bool) {
	addr, rest, ok := cutHex(line)
	if !ok || len(rest) < 3 || rest[1] != ' ' {
		return s, false
	}
	s = kernelSymbol{found: true, addr: addr, name: rest[2:]}
	switch rest[0] {
	case 'T':
		s.text, s.global = true, true
	case 't':
		s.text = true
	case 'W', 'w':
		s.text, s.weak, s.global = true, true, true
	}
	if name, module, ok := bytes.Cut(s.name, []byte("\t[")); ok {
		s.name, s.module = name, bytes.TrimSuffix(module, []byte("]"))
	}
	s.name = s.name[:min(len(s.name), maxName)]
	return s, len(s.name) > 0
}

// KernelVariables calls yield with every symbol of [Kallsyms]. For code, name is nil: only
// its address matters, which bounds the variables before it. name is valid until the next
// call. Addresses are 0 if this process may not see them, and offsets for per-CPU variables.
func KernelVariables(yield func(name []byte, address uint64)) error {
	return (&Kernel{path: Kallsyms}).each(func(s kernelSymbol) bool {
		if s.text {
			s.name = nil
		}
		yield(s.name, s.addr)
		return true
	})
}

// KernelFunctions calls yield with every function of [Kallsyms] until yield returns false. name is valid until the next call. Addresses
// are 0 if this process may not see them.
func KernelFunctions(yield func(name []byte, address uint64) bool) error {
	return (&Kernel{path: Kallsyms}).each(func(s kernelSymbol) bool {
		// BPF programs are listed as if they were in a module.
		return !s.text || string(s.module) == "bpf" || yield(s.name, s.addr)
	})
}

// TextSymbol is the start of the kernel's code, the first function in kallsyms.
const TextSymbol = "_text"

// KernelText returns the address of [TextSymbol], according to the table at path. It
// is never 0.
func KernelText(path string) (text uint64, err error) {
	kernel, err := OpenKernel(path, Options{})
	if err != nil {
		return 0, err
	}
	// The kernel generates symbols while they are read, and this one is among the first.
	err = kernel.each(func(s kernelSymbol) bool {
		if string(s.name) == TextSymbol {
			text = s.addr
		}
		return text == 0
	})
	if err == nil && text == 0 {
		err = fmt.Errorf("%s: no symbol %s, so the address of the kernel is unknown", path, TextSymbol)
	}
	return text, err
}
