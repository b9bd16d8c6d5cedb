package stopping

import (
	"sync"

	"fulgur/internal/bpf"
	"fulgur/internal/capture/perfring"
	"fulgur/internal/linux/monotonic"
	"fulgur/internal/linux/perfevent"
	"fulgur/internal/runtimes"
	"fulgur/internal/runtimes/cpython"
	"fulgur/internal/runtimes/ruby"
)

// Interpreters are the processes with an interpreter whose frames the sampler reads. It implements [known.Processes], and is safe
// for concurrent use.
type Interpreters struct {
	mu sync.Mutex
	of map[int]bpf.RuntimeProcess
}

// Put implements [known.Processes].
func (i *Interpreters) Put(pid int, runtime bpf.RuntimeProcess) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.of == nil {
		i.of = map[int]bpf.RuntimeProcess{}
	}
	i.of[pid] = runtime
	return nil
}

// PutProgram implements [known.Processes]. It does nothing.
func (i *Interpreters) PutProgram(uint64, bpf.RuntimeProgram) error { return nil }

// PutLabels implements [known.Processes]. It does nothing.
func (i *Interpreters) PutLabels(int, bpf.LabelProcess) error { return nil }

// get returns the interpreters of a process.
func (i *Interpreters) get(pid int) (bpf.RuntimeProcess, bool) {
	if i == nil {
		return bpf.RuntimeProcess{}, false
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	is, ok := i.of[pid]
	return is, ok
}

// forget forgets a process that has ended.
func (i *Interpreters) forget(pid int) {
	if i == nil {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.of, pid)
}

// function identifies a function that was read from a process.
type function struct {
	address uint64
	check   uint32
}

// maxFunctions limits the functions of a process that are known to be read. Beyond, all are read again.
const maxFunctions = 1 << 16

// interpreter reads the frames of a process's interpreters.
type interpreter struct {
	thread runtimes.Thread
	python cpython.Walker
	read   map[function]bool
	pages  pages
	sent   []perfevent.Record
}

// newInterpreter returns the reader for a process.
func newInterpreter(p *process) *interpreter {
	is := &interpreter{read: map[function]bool{}}
	is.thread.Read = is.pages.read
	is.thread.Fresh = func(address uint64, check uint32) bool {
		f := function{address, check}
		if is.read[f] {
			return false
		}
		if len(is.read) >= maxFunctions {
			clear(is.read)
		}
		is.read[f] = true
		return true
	}
	is.thread.Send = func(record []byte) {
		is.sent = append(is.sent, perfring.Code{Stamp: perfevent.Stamp{Time: monotonic.Now()}, PID: p.pid, Record: record})
	}
	return is
}

// maxFrames limits the frames of an interpreter in a stack, as the kernel side does.
const maxFrames = bpf.MaxDepth

// interpret reads the frames of the interpreters that a stopped thread runs into the state.
func (s *Sampler) interpret(p *process, tid int) {
	st := &s.state
	layout, ok := s.options.Interpreters.get(p.pid)
	if !ok {
		return
	}
	if p.interpreter == nil {
		p.interpreter = newInterpreter(p)
	}
	is := p.interpreter
	is.pages.begin(func(addr uint64, buf []byte) []byte { return p.memory(tid, addr, buf) })
	t := &is.thread
	t.TID, t.TP, t.SP = tid, st.regs.TP(tid), st.regs.SP()
	if layout.Kinds&(1<<bpf.RuntimeRuby) != 0 {
		st.add(ruby.Walk(t, &layout.Ruby, maxFrames))
	}
	if layout.Kinds&(1<<bpf.RuntimePython) != 0 {
		st.add(is.python.Walk(t, &layout.Python, maxFrames))
	}
	s.batch, is.sent = append(s.batch, is.sent...), nil
}

// add adds the frames of an interpreter.
func (st *state) add(frames runtimes.Stack) {
	if !frames.Empty() {
		st.interpreted = append(st.interpreted, frames)
	}
}

// pages has the parts of memory that were read during a stop.
type pages struct {
	from  func(addr uint64, buf []byte) []byte
	at    []uint64 // their addresses
	bytes [][]byte
}

const (
	pageSize = 4 << 10
	maxPages = 64
)

// begin forgets all pages. from reads memory, up to what cannot be read.
func (p *pages) begin(from func(addr uint64, buf []byte) []byte) { p.from, p.at = from, p.at[:0] }

// read fills buf from the memory at an address, and reports whether it could.
func (p *pages) read(addr uint64, buf []byte) bool {
	for len(buf) > 0 {
		page := p.page(addr &^ (pageSize - 1))
		off := int(addr % pageSize)
		if off >= len(page) {
			return false
		}
		n := copy(buf, page[off:])
		addr, buf = addr+uint64(n), buf[n:]
	}
	return true
}

// page returns a page, which may be short or empty if it cannot be read.
func (p *pages) page(at uint64) []byte {
	for i := len(p.at) - 1; i >= 0; i-- {
		if p.at[i] == at {
			return p.bytes[i]
		}
	}
	if len(p.at) == maxPages {
		p.at = p.at[:0]
	}
	i := len(p.at)
	if i == len(p.bytes) {
		p.bytes = append(p.bytes, make([]byte, 0, pageSize))
	}
	p.at = append(p.at, at)
	p.bytes[i] = p.bytes[i][:len(p.from(at, p.bytes[i][:pageSize]))]
	return p.bytes[i]
}
