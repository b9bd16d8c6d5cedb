package unwindmap

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"fulgur/internal/bpf"
	"fulgur/internal/linux/memlock"
	"fulgur/internal/linux/rcu"
	"fulgur/internal/unwind"
)

// Types shared with the kernel's walker, from bpf/unwind_maps.h.
type (
	mapping   = bpf.UnwindUnwindMapping
	rule      = bpf.UnwindUnwindRule
	sealed    = bpf.UnwindUnwindProcess
	pageState = bpf.UnwindUnwindPageState
)

const (
	ruleNone    = uint32(bpf.UnwindUnwindRuleIndexUNWIND_RULE_NONE)
	ruleChain   = uint32(bpf.UnwindUnwindRuleIndexUNWIND_RULE_CHAIN)
	ruleChainGo = uint32(bpf.UnwindUnwindRuleIndexUNWIND_RULE_CHAIN_GO)
	// ruleChainAtEnd is for analyzed code.
	ruleChainAtEnd = uint32(bpf.UnwindUnwindRuleIndexUNWIND_RULE_CHAIN_AT_END)
	ruleUnread     = uint32(bpf.UnwindUnwindRuleIndexUNWIND_RULE_UNREAD)
	ruleFirst      = uint32(bpf.UnwindUnwindRuleIndexUNWIND_RULE_FIRST)
	noTable        = uint32(bpf.UnwindUnwindRowsUNWIND_NO_TABLE)
	// tablePending makes programs request the process's layout, and walk by frame pointers
	// until the table is compiled.
	tablePending = uint32(bpf.UnwindUnwindRowsUNWIND_PENDING)
	// tableLate ends stacks: code without its table may not keep frame pointers.
	tableLate = uint32(bpf.UnwindUnwindRowsUNWIND_LATE)
)

// chains has the rules that follow frame pointers, by what is known of the chain.
var chains = [...]uint32{unwind.ChainAny: ruleChain, unwind.ChainStacks: ruleChainGo, unwind.ChainAtEnd: ruleChainAtEnd}

// attachers is the number of threads that attach pages in parallel. Before Linux 6.8,
// each page costs a grace period, which concurrent waiters share.
const attachers = 32

// kernelMaps holds the maps of bpf/unwind.bpf.c. Those with a slice are mapped into
// memory.
type kernelMaps struct {
	objects  bpf.UnwindObjects
	page     *ebpf.MapSpec
	links    []link.Link
	mapped   [][]byte
	rules    []rule
	layouts  []mapping
	states   []pageState
	asked    []bpf.UnwindUnwindAsking
	mu       sync.Mutex
	attached map[uint32]*ebpf.Map
}

// sizes holds the numbers of entries of the maps. runtimes is the number for processes with a
// language runtime, whose entries are 16 times as large as others, and for processes with labels.
type sizes struct{ pages, rules, mappings, processes, runtimes uint32 }

// loadMaps loads the maps and attaches the programs that follow forks and exits.
func loadMaps(s sizes, types *btf.Cache) (_ *kernelMaps, err error) {
	spec, err := bpf.LoadUnwind()
	if err != nil {
		return nil, err
	}
	for name, n := range map[string]uint32{
		bpf.UnwindMapUnwindPages:      s.pages,
		bpf.UnwindMapUnwindPageStates: s.pages,
		bpf.UnwindMapUnwindRules:      s.rules,
		bpf.UnwindMapUnwindMappings:   s.mappings,
		bpf.UnwindMapUnwindProcesses:  s.processes,
		bpf.UnwindMapRuntimeProcesses: s.runtimes,
		bpf.UnwindMapLabelProcesses:   s.runtimes,
	} {
		spec.Maps[name].MaxEntries = n
	}
	k := &kernelMaps{page: spec.Maps[bpf.UnwindMapUnwindPages].InnerMap.Copy(), attached: map[uint32]*ebpf.Map{}}
	k.page.Key, k.page.Value = nil, nil // otherwise each page would load its own BTF
	memlock.Lift()
	options := ebpf.CollectionOptions{Cache: types}
	if err := bpf.UsePIDNamespace(spec, &options); err != nil {
		return nil, err
	}
	if err := spec.LoadAndAssign(&k.objects, &options); err != nil {
		return nil, fmt.Errorf("load the maps of unwind tables: %w", err)
	}
	if err := k.open(); err != nil {
		return nil, errors.Join(err, k.close())
	}
	return k, nil
}

func (k *kernelMaps) open() error {
	if err := errors.Join(
		mapMemory(k, k.objects.UnwindRules, &k.rules),
		mapMemory(k, k.objects.UnwindMappings, &k.layouts),
		mapMemory(k, k.objects.UnwindPageStates, &k.states),
		mapMemory(k, k.objects.UnwindAsked, &k.asked),
	); err != nil {
		return err
	}
	for arg, index := range chains {
		k.writeRules(index, []unwind.Rule{unwind.Chain(uint8(arg))})
	}
	for _, p := range []*ebpf.Program{k.objects.UnwindFork, k.objects.UnwindFree} {
		l, err := link.AttachTracing(link.TracingOptions{Program: p})
		if err != nil {
			return fmt.Errorf("follow forks and exits of processes: %w", err)
		}
		k.links = append(k.links, l)
	}
	return nil
}

// mapMemory maps the entries of an array as a slice.
func mapMemory[T any](k *kernelMaps, m *ebpf.Map, to *[]T) error {
	size := int(m.MaxEntries()) * int(unsafe.Sizeof(*new(T)))
	page := os.Getpagesize()
	b, err := unix.Mmap(m.FD(), 0, (size+page-1)&^(page-1), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("map the memory of %s: %w", m, err)
	}
	k.mapped = append(k.mapped, b)
	*to = unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), m.MaxEntries())
	return nil
}

func (k *kernelMaps) close() error {
	var errs []error
	for _, l := range k.links {
		errs = append(errs, l.Close())
	}
	for _, b := range k.mapped {
		errs = append(errs, unix.Munmap(b))
	}
	k.mapped = nil
	for _, m := range k.attached {
		errs = append(errs, m.Close())
	}
	return errors.Join(append(errs, k.objects.Close())...)
}

// inParallel calls fn for ranges of 0 … n-1 on several threads.
func inParallel(n int, fn func(from, to int) error) error {
	var group sync.WaitGroup
	parts := min(n, attachers)
	errs := make([]error, parts)
	for i := range parts {
		group.Go(func() { errs[i] = fn(i*n/parts, (i+1)*n/parts) })
	}
	group.Wait()
	return errors.Join(errs...)
}

// attach implements pageMaps.
func (k *kernelMaps) attach(pages []uint32, contents [][]byte) error {
	made := make([]*ebpf.Map, len(pages))
	fds := make([]uint32, len(pages))
	err := func() error {
		for i := range pages {
			m, err := ebpf.NewMap(k.page)
			if err != nil {
				return fmt.Errorf("create a page of unwind tables: %w", err)
			}
			made[i], fds[i] = m, uint32(m.FD())
			if contents[i] == nil {
				continue
			}
			if err := m.Put(uint32(0), contents[i]); err != nil {
				return fmt.Errorf("fill a page of unwind tables: %w", err)
			}
		}
		return inParallel(len(pages), func(from, to int) error {
			_, err := k.objects.UnwindPages.BatchUpdate(pages[from:to], fds[from:to], nil)
			if errors.Is(err, ebpf.ErrNotSupported) { // before Linux 5.17
				err = nil
				for i := from; i < to && err == nil; i++ {
					err = k.objects.UnwindPages.Put(pages[i], fds[i])
				}
			}
			if err != nil {
				return fmt.Errorf("attach pages of unwind tables: %w", err)
			}
			return nil
		})
	}()
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, m := range made {
		if err == nil {
			k.attached[pages[i]] = m
		} else if m != nil {
			err = errors.Join(err, m.Close())
		}
	}
	return err
}

// detach implements pageMaps.
func (k *kernelMaps) detach(pages []uint32) error {
	if err := inParallel(len(pages), func(from, to int) error {
		for _, page := range pages[from:to] {
			if err := k.objects.UnwindPages.Delete(page); err != nil {
				return fmt.Errorf("detach a page of unwind tables: %w", err)
			}
			// From now on, programs that miss the page request it.
			k.states[page] = pageState{}
		}
		return nil
	}); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	var errs []error
	for _, page := range pages {
		errs = append(errs, k.attached[page].Close())
		delete(k.attached, page)
	}
	return errors.Join(errs...)
}

func (k *kernelMaps) attachedAt(page uint32) *ebpf.Map {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.attached[page]
}

// read implements pageMaps.
func (k *kernelMaps) read(page uint32, content []byte) error {
	if err := k.attachedAt(page).Lookup(uint32(0), content); err != nil {
		return fmt.Errorf("read a page of unwind tables: %w", err)
	}
	return nil
}

// write implements pageMaps.
func (k *kernelMaps) write(page uint32, content []byte) error {
	if err := k.attachedAt(page).Put(uint32(0), content); err != nil {
		return fmt.Errorf("write a page of unwind tables: %w", err)
	}
	return nil
}

// takeUsed implements pageMaps.
func (k *kernelMaps) takeUsed(yield func(page uint32)) error {
	for i := range k.states {
		if k.states[i].Used != 0 {
			k.states[i].Used = 0
			yield(uint32(i))
		}
	}
	return nil
}

// writeRules implements kernel.
func (k *kernelMaps) writeRules(first uint32, rules []unwind.Rule) {
	for i, r := range rules {
		k.rules[first+uint32(i)] = rule{
			Cfa: r.CFA, Fp: r.FP, Ra: r.RA, Kind: uint8(r.Kind), Arg: r.Arg, FpSlot: uint8(r.FPSlot), RaSlot: uint8(r.RASlot),
		}
	}
}

// mappings implements kernel.
func (k *kernelMaps) mappings(at span) []mapping { return k.layouts[at.start:][:at.n] }

// process implements kernel.
func (k *kernelMaps) process(pid int) (e entry, ok bool, err error) {
	var s sealed
	err = k.objects.UnwindProcesses.Lookup(uint32(pid), &s)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return e, false, nil
	}
	if err != nil {
		return e, false, fmt.Errorf("look up the mappings of process %d: %w", pid, err)
	}
	return unseal(s), true, nil
}

// putProcess implements kernel.
func (k *kernelMaps) putProcess(pid int, e entry) error {
	err := k.objects.UnwindProcesses.Put(uint32(pid), e.seal())
	if errors.Is(err, unix.E2BIG) {
		return errFull
	}
	if err != nil {
		return fmt.Errorf("set the mappings of process %d: %w", pid, err)
	}
	return nil
}

// deleteProcesses implements kernel.
func (k *kernelMaps) deleteProcesses(pids []int) error {
	keys := make([]uint32, len(pids))
	for i, pid := range pids {
		keys[i] = uint32(pid)
	}
	for len(keys) > 0 {
		n, err := k.objects.UnwindProcesses.BatchDelete(keys, nil)
		if err == nil {
			return nil
		}
		if !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("forget the mappings of processes: %w", err)
		}
		keys = keys[min(n+1, len(keys)):] // the kernel stops at the first missing key
	}
	return nil
}

// forgetProcesses implements kernel.
func (k *kernelMaps) forgetProcesses() error {
	m := k.objects.UnwindProcesses
	pids, entries := make([]uint32, m.MaxEntries()), make([]sealed, m.MaxEntries())
	var cursor ebpf.MapBatchCursor
	for {
		_, err := m.BatchLookupAndDelete(&cursor, pids, entries, nil)
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil // the map is empty
		}
		if err != nil {
			return fmt.Errorf("forget the mappings of all processes: %w", err)
		}
	}
}

// forgetRequests implements kernel.
func (k *kernelMaps) forgetRequests() { clear(k.asked) }

// answered implements kernel.
func (k *kernelMaps) answered(until uint64) {
	atomic.StoreUint64(&k.asked[len(k.asked)-1].Time, until)
}

// wait implements kernel.
func (k *kernelMaps) wait() error { return rcu.Wait() }

// tasks calls yield with every process that has a user stack, and its image.
func (k *kernelMaps) tasks(yield func(pid int, image uint64)) error {
	l, err := link.AttachIter(link.IterOptions{Program: k.objects.UnwindTasks})
	if err != nil {
		return fmt.Errorf("list processes: %w", err)
	}
	defer l.Close()
	r, err := l.Open()
	if err != nil {
		return fmt.Errorf("list processes: %w", err)
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		return fmt.Errorf("list processes: %w", err)
	}
	const size = unsafe.Sizeof(bpf.UnwindUnwindTask{})
	for ; uintptr(len(b)) >= size; b = b[size:] {
		t := (*bpf.UnwindUnwindTask)(unsafe.Pointer(&b[0]))
		yield(int(t.Tgid), t.Image)
	}
	return nil
}

// memory returns the memory of the maps in bytes, as accounted by the kernel, or 0 if the
// kernel does not report it.
func (k *kernelMaps) memory() uint64 {
	var sum uint64
	add := func(m *ebpf.Map) {
		if info, err := m.Info(); err == nil {
			if n, ok := info.Memlock(); ok {
				sum += n
			}
		}
	}
	o := &k.objects.UnwindMaps
	for _, m := range []*ebpf.Map{
		o.UnwindPages, o.UnwindPageStates, o.UnwindRules, o.UnwindMappings,
		o.UnwindProcesses, o.UnwindAsked, o.UnwindRequests, o.UnwindCache, o.RuntimeProcesses, o.RuntimePrograms, o.RuntimeAny, o.PythonStates,
		o.LabelProcesses, o.LabelAny,
	} {
		add(m)
	}
	return sum
}
