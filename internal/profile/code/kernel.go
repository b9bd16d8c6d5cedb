package code

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"fulgur/internal/profile"
	"fulgur/internal/symbols/disasm"
	"fulgur/internal/symbols/elffile"
	"fulgur/internal/symbols/symbolize"
)

// kcore is the memory of the kernel, as an ELF file whose segments have runtime addresses
// (fs/proc/kcore.c).
const kcore = "/proc/kcore"

// Kernel is the code of the running kernel and its modules, with runtime addresses. Its
// methods are safe for concurrent use.
type Kernel struct {
	memory    *elffile.File
	functions []kernelFunction // ascending by start
}

// kernelFunction is a name of a function. Several may have the same start.
type kernelFunction struct {
	start uint64
	name  string
}

// openKernel opens the running kernel.
func openKernel() (*Kernel, error) {
	memory, err := elffile.Open(kcore)
	switch {
	case errors.Is(err, os.ErrPermission):
		return nil, fmt.Errorf("the kernel's instructions need root, and a kernel without lockdown: %w", err)
	case errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("the running kernel does not show its instructions (CONFIG_PROC_KCORE): %w", err)
	case err != nil:
		return nil, err
	}
	k := &Kernel{memory: memory}
	if _, err = symbolize.OpenKernel(symbolize.Kallsyms, symbolize.Options{}); err == nil { // else, all addresses are 0
		err = symbolize.KernelFunctions(func(name []byte, address uint64) bool {
			k.functions = append(k.functions, kernelFunction{address, string(name)})
			return true
		})
	}
	if err != nil {
		return nil, errors.Join(err, memory.Close())
	}
	slices.SortStableFunc(k.functions, func(a, b kernelFunction) int { return cmp.Compare(a.start, b.start) })
	return k, nil
}

// Kernel returns the running kernel, if the build ID in m, the mapping of the kernel or of
// a module, is the running one's. The library closes it.
func (l *Library) Kernel(m profile.Mapping) (*Kernel, error) {
	module := ""
	if m.Path != profile.KernelPath {
		module = strings.Trim(m.Path, "[]")
		if module == "" || strings.ContainsAny(module, "/.") {
			return nil, fmt.Errorf("%s is not a module of the kernel", m.Path)
		}
	}
	id, err := l.finder.KernelBuildID(module)
	switch {
	case err != nil:
		return nil, err
	case m.BuildID == "":
		return nil, fmt.Errorf("%s: no build ID was recorded", m.Path)
	case !elffile.SameBuildID(m.BuildID, id):
		return nil, fmt.Errorf("%s is another build than on this machine: build ID %s was recorded, the running one has %s", m.Path, m.BuildID, id)
	}
	l.mu.Lock()
	l.opened = true
	l.mu.Unlock()
	return l.kernel()
}

// Close closes the kernel's memory.
func (k *Kernel) Close() error { return k.memory.Close() }

// at returns the names of the function that contains an address, and its end.
func (k *Kernel) at(address uint64) (names []kernelFunction, end uint64) {
	after, _ := slices.BinarySearchFunc(k.functions, address, func(f kernelFunction, address uint64) int {
		if f.start <= address {
			return -1
		}
		return 1
	})
	if after == 0 {
		return nil, 0
	}
	start := k.functions[after-1].start
	first := after - 1
	for first > 0 && k.functions[first-1].start == start {
		first--
	}
	end = start + maxFunction
	if after < len(k.functions) {
		end = min(end, k.functions[after].start)
	}
	if address >= end {
		return nil, 0
	}
	return k.functions[first:after], end
}

// Has reports whether an address is in the function with a name. The kernel is at another
// address after each boot, and on each machine: an address from a profile is only valid if
// the profile names the same function there.
func (k *Kernel) Has(address uint64, name string) bool {
	names, _ := k.at(address)
	return slices.ContainsFunc(names, func(f kernelFunction) bool {
		source, _, _ := strings.Cut(f.name, ".") // as debug information has it: "free_one_page.isra.0"
		return f.name == name || source == name
	})
}

// Functions returns the functions at addresses, without their sizes. Entries without a
// known function are nil.
func (k *Kernel) Functions(addresses []uint64) ([]*Function, error) {
	list := make([]*Function, len(addresses))
	for i, address := range addresses {
		if names, _ := k.at(address); names != nil {
			list[i] = &Function{Name: names[0].name, Start: names[0].start}
		}
	}
	return list, nil
}

// Function returns the function at an address. It extends to the next one, since kallsyms has
// no sizes. The error wraps [ErrNoFunction] if there is none.
func (k *Kernel) Function(address uint64) (Function, error) {
	names, end := k.at(address)
	if names == nil {
		return Function{}, fmt.Errorf("address %#x: %w", address, ErrNoFunction)
	}
	return Function{Name: names[0].name, Start: names[0].start, Size: end - names[0].start}, nil
}

// LookupBatch returns no lines.
func (k *Kernel) LookupBatch(addresses []uint64) ([][]symbolize.Frame, error) {
	return make([][]symbolize.Frame, len(addresses)), nil
}

// Arch is like [File.Arch].
func (k *Kernel) Arch() string { return arch(k.memory.Machine()) }

// Disassemble returns the instructions in size bytes at an address, as they are at this
// moment: the kernel changes its code, for example at tracepoints that are in use.
func (k *Kernel) Disassemble(_ context.Context, start, size uint64) ([]disasm.Instruction, error) {
	offset, ok := k.memory.Offset(start)
	if !ok {
		return nil, fmt.Errorf("%s has no code at %#x", k.memory.Name(), start)
	}
	bytes, err := k.memory.Bytes(int64(offset), size, "code")
	if err != nil {
		return nil, err
	}
	decoded, err := disasm.Decode(k.memory.Machine(), bytes, start)
	if err != nil {
		return nil, err
	}
	names := map[uint64]disasm.Symbol{}
	for _, target := range decoded.Targets() {
		if fn, err := k.Function(target); err == nil {
			names[target] = disasm.Symbol{Name: fn.Name, Offset: target - fn.Start}
		}
	}
	return decoded.Instructions(names), nil
}
