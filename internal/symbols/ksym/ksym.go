// Package ksym symbolizes kernel addresses, and finds addresses of kernel symbols, with BPF
// programs that look up only the requested ones. Reading /proc/kallsyms, as
// [symbolize.Kernel] does, takes tens of milliseconds for any request, because the kernel
// lists all of its symbols.
package ksym

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/cilium/ebpf"

	"fulgur/internal/bpf"
	"fulgur/internal/linux/memlock"
	"fulgur/internal/symbols/symbolize"
)

// Table is a [symbolize.Table] of runtime addresses. Its names are the same as in the
// kernel's own stack traces. It is not safe for concurrent use.
type Table struct {
	objects bpf.KSymObjects
	opts    symbolize.Options
}

// Open loads the BPF programs. It needs CAP_BPF and CAP_PERFMON, and Linux 5.17. Errors
// come from the kernel, as returned by cilium/ebpf.
func Open(opts symbolize.Options) (*Table, error) {
	memlock.Lift()
	t := &Table{opts: opts}
	if err := bpf.LoadKSymObjects(&t.objects, nil); err != nil {
		return nil, fmt.Errorf("load the programs that name kernel addresses: %w", err)
	}
	return t, nil
}

// LookupBatch implements [symbolize.Table].
func (t *Table) LookupBatch(addrs []uint64) ([][]symbolize.Frame, error) {
	frames := make([][]symbolize.Frame, 0, len(addrs))
	asked := make([]bpf.KSymSymbol, t.objects.Ksyms.MaxEntries())
	keys := make([]uint32, len(asked))
	for i := range keys {
		keys[i] = uint32(i)
	}
	for chunk := range slices.Chunk(addrs, len(asked)) {
		for i, addr := range chunk {
			asked[i] = bpf.KSymSymbol{Addr: addr}
		}
		if err := t.ask(keys[:len(chunk)], asked[:len(chunk)]); err != nil {
			return slices.Grow(frames, len(addrs))[:len(addrs)], err
		}
		for _, s := range asked[:len(chunk)] {
			frames = append(frames, t.frames(s))
		}
	}
	return frames, nil
}

// Addresses returns the runtime addresses of kernel symbols. They are 0 for unknown symbols,
// and for symbols whose addresses the kernel hides from this process.
func (t *Table) Addresses(names []string) ([]uint64, error) {
	asked := make([]bpf.KSymSymbol, len(names))
	keys := make([]uint32, len(asked))
	for i, name := range names {
		keys[i] = uint32(i)
		if copy(asked[i].Text[:len(asked[i].Text)-1], name) < len(name) {
			return nil, fmt.Errorf("find kernel symbols: the name %q is too long", name)
		}
	}
	if err := t.run(t.objects.FindKsyms, keys, asked); err != nil {
		return nil, fmt.Errorf("find kernel symbols: %w", err)
	}
	addrs := make([]uint64, len(asked))
	for i, s := range asked {
		addrs[i] = s.Addr
	}
	return addrs, nil
}

// ask makes the kernel fill in the names of symbols.
func (t *Table) ask(keys []uint32, symbols []bpf.KSymSymbol) error {
	if err := t.run(t.objects.NameKsyms, keys, symbols); err != nil {
		return fmt.Errorf("name kernel addresses: %w", err)
	}
	return nil
}

// run passes symbols to a program, which completes them. It passes at most as many as the map
// has entries.
func (t *Table) run(program *ebpf.Program, keys []uint32, symbols []bpf.KSymSymbol) error {
	if _, err := t.objects.Ksyms.BatchUpdate(keys, symbols, nil); err != nil {
		return err
	}
	context := bpf.KSymContext{Entries: uint32(len(symbols))}
	if _, err := program.Run(&ebpf.RunOptions{Context: context}); err != nil {
		return err
	}
	var cursor ebpf.MapBatchCursor
	_, err := t.objects.Ksyms.BatchLookup(&cursor, keys, symbols, nil)
	if errors.Is(err, ebpf.ErrKeyNotExist) { // the end of the map
		return nil
	}
	return err
}

// frames returns the function of a symbol, or none if its address has no name.
func (t *Table) frames(s bpf.KSymSymbol) []symbolize.Frame {
	text, _, _ := bytes.Cut(s.Text[:], []byte{0})
	name, module, offset, ok := parse(text)
	if !ok {
		return nil
	}
	f := symbolize.NewFrame(name, offset, t.opts)
	f.Module = string(module)
	return []symbolize.Frame{f}
}

// parse parses the output of the kernel's %pS (lib/vsprintf.c, kernel/kallsyms.c):
// "name+0x1/0x20 [module]", or the bare address if no symbol contains it.
func parse(text []byte) (name, module []byte, offset uint64, ok bool) {
	if symbol, rest, inModule := bytes.Cut(text, []byte(" [")); inModule {
		// A module's build ID may follow its name.
		rest, _, _ = bytes.Cut(bytes.TrimSuffix(rest, []byte("]")), []byte(" "))
		text, module = symbol, rest
	}
	plus := bytes.LastIndex(text, []byte("+0x"))
	if plus <= 0 {
		return nil, nil, 0, false
	}
	number, _, sized := bytes.Cut(text[plus+len("+0x"):], []byte("/0x"))
	offset, err := strconv.ParseUint(string(number), 16, 64)
	return text[:plus], module, offset, sized && err == nil
}

// Close unloads the programs.
func (t *Table) Close() error { return t.objects.Close() }
