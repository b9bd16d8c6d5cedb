package symbolize

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"fulgur/internal/symbols/debugfile"
	"fulgur/internal/symbols/elffile"
)

// bpfModule is the module shown for BPF programs.
const bpfModule = "bpf"

// DebugKernel is a [Table] of the running kernel, with runtime addresses. Names come from
// another table. Files, lines and inlined functions come from the debug information of the
// kernel and its modules, where available.
type DebugKernel struct {
	names Table
	opts  Options
	ctx   context.Context // stops lookups, see [NewDebugKernel]
	// open returns the debug information of a module, or of the kernel if the name is
	// empty, and its runtime offset from the link-time addresses. It returns nil if there
	// is none, as on most machines.
	open func(module string) (*debugInfo, uint64, error)
}

// NewDebugKernel returns a table that adds debug information found by finder to names, a
// table of functions and modules. The symbols in kallsyms, usually /proc/kallsyms,
// provide the kernel's location. When ctx is done, downloads, reading of debug information and
// demangling stop.
func NewDebugKernel(ctx context.Context, names Table, finder *debugfile.Finder, kallsyms string, opts Options) *DebugKernel {
	return &DebugKernel{names: names, opts: opts, ctx: ctx, open: func(module string) (*debugInfo, uint64, error) {
		if module == "" {
			return openVmlinux(ctx, finder, kallsyms, opts)
		}
		d, err := openModule(ctx, finder, module, opts)
		return d, 0, err
	}}
}

// LookupBatch implements [Table].
func (k *DebugKernel) LookupBatch(addrs []uint64) ([][]Frame, error) {
	frames, err := k.names.LookupBatch(addrs)
	if k.opts.NoInlines {
		return frames, err
	}
	modules := map[string][]int{} // addresses in each module
	for i, f := range frames {
		if len(f) == 1 && f[0].Module != bpfModule {
			modules[f[0].Module] = append(modules[f[0].Module], i)
		}
	}
	errs := []error{err}
	for _, module := range slices.Sorted(maps.Keys(modules)) {
		errs = append(errs, k.describe(module, modules[module], addrs, frames))
	}
	nameFrames(k.ctx, frames, k.opts)
	return frames, errors.Join(errs...)
}

// describe describes the frames that belong to a module.
func (k *DebugKernel) describe(module string, which []int, addrs []uint64, frames [][]Frame) error {
	d, bias, err := k.open(module)
	if d == nil {
		return err
	}
	linked, described := make([]uint64, len(which)), make([][]Frame, len(which))
	for i, at := range which {
		linked[i], described[i] = addrs[at]-bias, frames[at]
	}
	err = errors.Join(err, d.describe(linked, described), d.close())
	for i, at := range which {
		for j := range described[i] {
			described[i][j].Module = module
		}
		frames[at] = described[i]
	}
	return err
}

// openVmlinux opens the debug information of the running kernel.
func openVmlinux(ctx context.Context, finder *debugfile.Finder, kallsyms string, opts Options) (*debugInfo, uint64, error) {
	file, err := finder.Kernel(ctx)
	if err != nil {
		return nil, 0, nil //nolint:nilerr // then there are only names
	}
	bias, err := kernelBias(file.File, kallsyms)
	if err != nil {
		return nil, 0, errors.Join(err, file.Close())
	}
	d, err := openDebugInfo(ctx, finder, file, opts)
	d.keep(file)
	return d, bias, err
}

// openModule opens the debug information of a kernel module, relocated to its runtime
// address.
func openModule(ctx context.Context, finder *debugfile.Finder, name string, opts Options) (*debugInfo, error) {
	module, err := finder.Module(ctx, name)
	if err != nil {
		return nil, nil //nolint:nilerr // then there are only names
	}
	relocated, err := newRelocator(module.File.File, module.Sections)
	if err != nil {
		return nil, errors.Join(err, module.Close())
	}
	d, err := openRelocated(ctx, finder, module.File, relocated, opts)
	d.keep(module.File)
	return d, err
}

// kernelBias returns the runtime offset of the kernel from the addresses of vmlinux. The
// kernel moves itself to a random address (KASLR).
func kernelBias(vmlinux *elffile.File, kallsyms string) (uint64, error) {
	values, err := vmlinux.SymbolValues(TextSymbol)
	if err != nil {
		return 0, err
	}
	linked, found := values[TextSymbol]
	if !found {
		return 0, fmt.Errorf("%s: no symbol %s, so its address is unknown", vmlinux.Name(), TextSymbol)
	}
	running, err := KernelText(kallsyms)
	return running - linked, err
}
