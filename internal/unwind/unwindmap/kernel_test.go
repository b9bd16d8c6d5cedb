package unwindmap

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"

	"fulgur/internal/unwind"
)

// fakeKernel replaces the kernel's maps, and finds rules in them like the kernel's
// walker.
type fakeKernel struct {
	mu        sync.Mutex
	pages     map[uint32][]byte
	used      map[uint32]bool
	rules     map[uint32]unwind.Rule
	layouts   []mapping
	processes map[int]entry
	limit     int // processes
	waits     int
	forgotten int // number of forgetRequests calls
}

func newFakeKernel(c config) *fakeKernel {
	return &fakeKernel{
		pages: map[uint32][]byte{}, used: map[uint32]bool{}, rules: map[uint32]unwind.Rule{},
		layouts: make([]mapping, c.mappings), processes: map[int]entry{}, limit: int(c.processes),
	}
}

func (k *fakeKernel) attach(pages []uint32, contents [][]byte) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, page := range pages {
		if k.pages[page] != nil {
			return fmt.Errorf("page %d is attached already", page)
		}
		content := contents[i]
		if content == nil {
			content = make([]byte, pageBytes)
		}
		k.pages[page] = slices.Clone(content)
	}
	return nil
}

func (k *fakeKernel) detach(pages []uint32) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, page := range pages {
		if k.pages[page] == nil {
			return fmt.Errorf("page %d is not attached", page)
		}
		delete(k.pages, page)
	}
	return nil
}

func (k *fakeKernel) read(page uint32, content []byte) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.pages[page] == nil {
		return fmt.Errorf("page %d is not attached", page)
	}
	copy(content, k.pages[page])
	return nil
}

func (k *fakeKernel) write(page uint32, content []byte) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.pages[page] == nil {
		return fmt.Errorf("page %d is not attached", page)
	}
	copy(k.pages[page], content)
	return nil
}

func (k *fakeKernel) takeUsed(yield func(page uint32)) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for page := range k.used {
		yield(page)
	}
	clear(k.used)
	return nil
}

func (k *fakeKernel) writeRules(first uint32, rules []unwind.Rule) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, r := range rules {
		k.rules[first+uint32(i)] = r
	}
}

func (k *fakeKernel) mappings(at span) []mapping { return k.layouts[at.start:][:at.n] }

func (k *fakeKernel) process(pid int) (entry, bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	e, ok := k.processes[pid]
	return e, ok, nil
}

func (k *fakeKernel) putProcess(pid int, e entry) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, ok := k.processes[pid]; !ok && len(k.processes) >= k.limit {
		return errFull
	}
	k.processes[pid] = e
	return nil
}

func (k *fakeKernel) deleteProcesses(pids []int) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, pid := range pids {
		delete(k.processes, pid)
	}
	return nil
}

func (k *fakeKernel) forgetProcesses() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	clear(k.processes)
	return nil
}

func (k *fakeKernel) forgetRequests() { k.forgotten++ }

func (k *fakeKernel) answered(until uint64) {}

func (k *fakeKernel) wait() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.waits++
	return nil
}

// fork copies the parent's entry, like the kernel.
func (k *fakeKernel) fork(parent, child int, image uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if e, ok := k.processes[parent]; ok {
		k.processes[child] = entry{Image: image, Layout: e.Layout}
	}
}

// pageError is the index of a page that is not attached.
type pageError uint32

func (e pageError) Error() string { return fmt.Sprintf("page %d is not attached", uint32(e)) }

// word reads a word like the BPF programs.
func (k *fakeKernel) word(w uint32) (uint32, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	page := k.pages[w>>pageShift]
	if page == nil {
		return 0, pageError(w >> pageShift)
	}
	k.used[w>>pageShift] = true
	return binary.NativeEndian.Uint32(page[4*(w%pageWords):]), nil
}

var (
	errUnmapped = errors.New("nothing is mapped there")
	errPending  = errors.New("its table is still being compiled")
	errLate     = errors.New("its table is still being compiled, and has taken too long")
)

// find returns the index of the rule for an address of a process.
func (k *fakeKernel) find(pid int, addr uint64) (uint32, error) {
	e, ok, _ := k.process(pid)
	if !ok {
		return 0, errUnmapped
	}
	list := k.mappings(layoutSpan(e.Layout))
	i := slices.IndexFunc(list, func(m mapping) bool { return m.Start <= addr && addr < m.End })
	if i < 0 {
		return 0, errUnmapped
	}
	m := list[i]
	switch m.Rows {
	case noTable:
		return m.Fallback, nil
	case tablePending:
		return 0, errPending
	case tableLate:
		return 0, errLate
	}
	link := addr - m.Bias
	block := m.Blocks + uint32(link>>unwind.BlockShift)
	first, err := k.word(block)
	if err != nil {
		return 0, err
	}
	end, err := k.word(block + 1)
	if err != nil {
		return 0, err
	}
	at := m.Rows + first
	for ; at < m.Rows+end; at++ {
		w, err := k.word(at)
		if err != nil {
			return 0, err
		}
		if unwind.Row(w).Low() > uint32(link)%(1<<unwind.BlockShift) {
			break
		}
	}
	w, err := k.word(at - 1)
	if err != nil {
		return 0, err
	}
	switch rule := unwind.Row(w).Rule(); rule {
	case ruleNone:
		return m.Fallback, nil
	case ruleUnread:
		return 0, errPending
	default:
		return rule, nil
	}
}
