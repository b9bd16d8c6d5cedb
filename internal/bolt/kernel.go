package bolt

// kernelSymbols are the symbols by which perf and kallsyms locate the kernel: the first in
// its code.
var kernelSymbols = [...]string{"_text", "_stext"}

// Kernel reports whether b is a Linux kernel (vmlinux).
func (b *Binary) Kernel() bool { return b.base >= kernelBase }

// KernelLayout returns the kernel's part of all layouts, given that symbol, which is _text
// or _stext, is at addr. It reports false if the kernel has no such symbol.
func (b *Binary) KernelLayout(symbol string, addr uint64) (Layout, bool) {
	linked, ok := b.linked[symbol]
	if !ok {
		return nil, false
	}
	bias := addr - linked
	r := Region{Start: b.base + bias, Binary: b, bias: bias}
	for _, s := range b.code {
		r.End = max(r.End, s.Addr+s.FileSize+bias)
	}
	return Layout{r}, r.Start < r.End
}
