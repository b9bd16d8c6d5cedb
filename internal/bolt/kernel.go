package bolt

// kernelSymbols lists the first symbols in the kernel's code. perf and kallsyms locate the
// kernel by them.
var kernelSymbols = [...]string{"_text", "_stext"}

// Kernel reports whether b is a Linux kernel (vmlinux).
func (b *Binary) Kernel() bool { return b.base >= kernelBase }

// KernelLayout returns the kernel's part of all layouts, given the address of symbol, which
// is _text or _stext. It reports false if the kernel has no such symbol.
func (b *Binary) KernelLayout(symbol string, addr uint64) (Layout, bool) {
	linked, ok := b.linked[symbol]
	if !ok {
		return Layout{}, false
	}
	bias := addr - linked
	r := Region{Start: b.base + bias, Binary: b, bias: bias}
	for _, s := range b.code {
		r.End = max(r.End, s.Addr+s.FileSize+bias)
	}
	return Layout{}.With(r), r.Start < r.End
}
