package symbolize

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"maps"
	"slices"

	"fulgur/internal/symbols/debugfile"
	"fulgur/internal/symbols/elffile"
)

// bpfModule is the name of the module that BPF programs are shown in.
const bpfModule = "bpf"

// DebugKernel is a [Table] of the running kernel on running addresses: names
// come from another table, files, lines and inlined functions from the debug
// information of the kernel and its modules, as far as that is found.
type DebugKernel struct {
	names Table
	opts  Options
	// open returns the debug information of a module, of the kernel itself
	// if it has no name, and how far it runs from where it was linked. It is
	// nil where there is none, as on most machines.
	open func(module string) (*debugInfo, uint64, error)
}

// NewDebugKernel returns the table that adds to names, which knows functions
// and modules, what finder finds. The symbols in kallsyms, usually
// /proc/kallsyms, tell where the kernel runs. The end of ctx ends downloads,
// and reading debug information.
func NewDebugKernel(ctx context.Context, names Table, finder *debugfile.Finder, kallsyms string, opts Options) *DebugKernel {
	return &DebugKernel{names: names, opts: opts, open: func(module string) (*debugInfo, uint64, error) {
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
	modules := map[string][]int{} // what lies in each
	for i, f := range frames {
		if len(f) == 1 && f[0].Module != bpfModule {
			modules[f[0].Module] = append(modules[f[0].Module], i)
		}
	}
	errs := []error{err}
	for _, module := range slices.Sorted(maps.Keys(modules)) {
		errs = append(errs, k.describe(module, modules[module], addrs, frames))
	}
	nameFrames(frames, k.opts)
	return frames, errors.Join(errs...)
}

// describe describes those of the frames that lie in a module.
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
		return nil, 0, nil //nolint:nilerr // names are all there is then
	}
	bias, err := kernelBias(file.File, kallsyms)
	if err != nil {
		return nil, 0, errors.Join(err, file.Close())
	}
	d, err := openDebugInfo(ctx, finder, file, opts)
	d.keep(file)
	return d, bias, err
}

// openModule opens the debug information of a kernel module. It is put to where
// the module runs.
func openModule(ctx context.Context, finder *debugfile.Finder, name string, opts Options) (*debugInfo, error) {
	module, err := finder.Module(ctx, name)
	if err != nil {
		return nil, nil //nolint:nilerr // names are all there is then
	}
	relocated, err := newRelocator(module.File.File, module.Sections)
	if err != nil {
		return nil, errors.Join(err, module.Close())
	}
	d, err := openRelocated(ctx, finder, module.File, relocated, opts)
	d.keep(module.File)
	return d, err
}

// textSymbol begins the kernel's code, first among the functions of kallsyms.
const textSymbol = "_text"

// kernelBias returns how far the kernel runs from where vmlinux was linked to:
// it moves itself to an unforeseeable place (KASLR).
func kernelBias(vmlinux *elffile.File, kallsyms string) (uint64, error) {
	table := openTable(vmlinux, elf.SHT_SYMTAB)
	if table == nil {
		return 0, fmt.Errorf("%s: no symbols, to tell where it runs", vmlinux.Name())
	}
	var linked uint64
	found := false
	if err := vmlinux.EachSymbol(table.section, func(s elffile.Symbol) bool {
		if found = string(table.names.At(uint64(s.Name))) == textSymbol; found {
			linked = s.Value
		}
		return !found
	}); err != nil {
		return 0, err
	}
	if !found {
		return 0, fmt.Errorf("%s: no symbol %s, to tell where it runs", vmlinux.Name(), textSymbol)
	}
	kernel, err := OpenKernel(kallsyms, Options{})
	if err != nil {
		return 0, err
	}
	var running uint64
	// The kernel writes symbols as they are read: this is about the first.
	if err := kernel.each(func(s kernelSymbol) bool {
		if string(s.name) == textSymbol {
			running = s.addr
		}
		return running == 0
	}); err != nil {
		return 0, err
	}
	if running == 0 {
		return 0, fmt.Errorf("%s: no symbol %s, to tell where the kernel runs", kallsyms, textSymbol)
	}
	return running - linked, nil
}
