package unwind

import (
	"cmp"
	"container/heap"
	"encoding/binary"
	"slices"

	"fulgur/internal/symbols/instruction"
)

// Limits of the analysis of code.
const (
	// maxTable bounds the entries of the table of a switch.
	maxTable = 1024
	// maxFunctionSteps bounds the instructions that the analysis of a function executes.
	maxFunctionSteps = 1 << 17
	// maxGlanceSteps bounds them up to where a function sets up a frame pointer.
	maxGlanceSteps = 1 << 8
	// maxKeptBlocks bounds the blocks whose memory is reused.
	maxKeptBlocks = 1 << 10
)

// flow follows the control flow of a function, with what is known of its frame.
//
// A call may not return: then what follows it may belong to another function. So code that is reached only
// through calls counts if it is proven. Proven are a return instruction that finds the return address, what
// leads there, and what proven code jumps to or goes on with.
type flow struct {
	isa   *isa
	code  *codeReader
	entry uint64
	// limits tells what begins at an address.
	limits func(addr uint64) limit
	// returning reports whether the function at an address is known to return.
	returning func(addr uint64) bool
	// endless reports whether the function at an address is known not to return.
	endless func(addr uint64) bool
	// calls and references collect the targets of direct calls, and the addresses to which instructions
	// refer. doubts collects what follows calls and is not proven.
	calls, references, doubts []uint64
	// rule returns the number of a rule.
	rule func(r Rule) uint32
	// check, for tests, is called with the frame before each instruction.
	check func(addr uint64, frame *codeFrame)

	blocks map[uint64]*block
	// list holds the blocks, followed by those of earlier functions, whose memory is reused.
	list []*block
	// rows holds the rules of the blocks.
	rows []codeRow
	sets codeSets
	// starts holds the addresses of the blocks, and seen those of all instructions.
	starts, seen addrSet
	queue        blockQueue
	steps        int
	// noReturn holds the ends of calls after which the code goes on with another frame.
	noReturn map[uint64]bool
	restart  bool
	// returns is the number of blocks with a return instruction that finds the return address.
	returns int
	// irregular is whether a call is made in a frame in which functions make none.
	irregular bool
	// limit bounds steps.
	limit int
	// brief ends ways where the frame pointer is set up.
	brief bool
	// setUp is the rule of the frame where the frame pointer is set up, or 0.
	setUp uint32
}

// limit is what begins at an address.
type limit uint8

const (
	limitNone  limit = iota // more code of the function
	limitEntry              // another function
	limitOther              // code with call frame information, or none
)

// block is a sequence of instructions that is entered at its start alone, and ends after a call.
type block struct {
	start  uint64
	end    uint64 // of the instructions that were executed
	frame  codeFrame
	queued bool
	// byCall is whether only calls lead here, by their return.
	byCall bool
	// What follows is what the last execution found.

	// until is the end of its instructions, and rows are their rules in flow.rows.
	until uint64
	rows  struct{ first, n int }
	next  []*block
	// afterCall is the block after the call at the end of the block, also in next. It is reached if the
	// called function is known to return.
	afterCall *block
	reached   bool
	// callsOut is whether the block ends with a call.
	callsOut bool
	// good and bad are whether the block leaves the function with and without the return address at the
	// stack pointer.
	good, bad bool
	// leaves is whether it does so by a return instruction.
	leaves bool
	// setUp is the rule of the frame where the frame pointer is set up in the block, or 0.
	setUp uint32
	// unready is whether the call at the end of the block is made in a frame in which functions make none.
	unready bool
	// What follows is set at the end of the analysis.

	before []*block
	proven bool
	// led is whether a way leads here from the entry.
	led bool
}

// begin forgets what an execution found.
func (b *block) begin(rows int) {
	b.until, b.rows.first, b.rows.n = b.start, rows, 0
	b.next, b.afterCall = b.next[:0], nil
	b.reached, b.callsOut, b.good, b.bad, b.leaves, b.setUp, b.unready = false, false, false, false, false, 0, false
}

// blockQueue is a heap of blocks. Those at low addresses come first, since code mostly leads forward: so
// most blocks are executed once.
type blockQueue []*block

func (q blockQueue) Len() int           { return len(q) }
func (q blockQueue) Less(i, j int) bool { return q[i].start < q[j].start }
func (q blockQueue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *blockQueue) Push(b any)        { *q = append(*q, b.(*block)) }
func (q *blockQueue) Pop() any {
	last := len(*q) - 1
	b := (*q)[last]
	*q = (*q)[:last]
	return b
}

// maxRestarts bounds the analyses of a function.
const maxRestarts = 8

// run analyzes the function at entry. It reports false if there is no result.
func (f *flow) run(entry uint64) bool {
	f.entry, f.steps, f.returns, f.irregular, f.setUp, f.doubts = entry, 0, 0, false, 0, f.doubts[:0]
	clear(f.noReturn)
	for range maxRestarts {
		if !f.spread() {
			return false
		}
		if !f.restart {
			return f.prove()
		}
	}
	return false
}

// spread finds all instructions and their frames.
func (f *flow) spread() bool {
	f.queue, f.rows, f.restart = f.queue[:0], f.rows[:0], false
	f.list = f.list[:0]
	clear(f.blocks)
	f.starts.clear()
	f.seen.clear()
	f.sets.sets = f.sets.sets[:0]
	f.calls, f.references = f.calls[:0], f.references[:0]
	first := f.isa.entryFrame()
	f.enter(f.entry, &first, false)
	var frame codeFrame
	for len(f.queue) > 0 && !f.restart {
		b := heap.Pop(&f.queue).(*block)
		b.queued = false
		b.frame.copyTo(&frame)
		w := blockWalk{flow: f, block: b, frame: &frame}
		w.walk()
		if f.steps > f.limit {
			return false
		}
	}
	return true
}

// split executes the blocks again in which another one was found to begin after their last execution.
func (f *flow) split() {
	slices.SortFunc(f.list, func(a, b *block) int { return cmp.Compare(a.start, b.start) })
	var frame codeFrame
	for i, b := range f.list[:len(f.list)-1] {
		if f.list[i+1].start < b.until {
			b.frame.copyTo(&frame)
			w := blockWalk{flow: f, block: b, frame: &frame, final: true}
			w.walk()
		}
	}
}

// prove marks the proven blocks.
func (f *flow) prove() bool {
	f.split()
	var todo []*block
	mark := func(b *block) {
		if !b.proven {
			b.proven = true
			todo = append(todo, b)
		}
	}
	mark(f.blocks[f.entry])
	for _, b := range f.list {
		for _, n := range b.next {
			n.before = append(n.before, b)
		}
		if b.good {
			mark(b)
		}
	}
	for len(todo) > 0 {
		b := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, n := range b.next {
			if n != b.afterCall || b.reached {
				mark(n)
			}
		}
		for _, n := range b.before {
			mark(n)
		}
	}
	f.follow()
	for _, b := range f.list {
		switch {
		case b.proven && b.bad:
			return false
		case b.proven && b.unready:
			f.irregular = true
		case !b.proven && b.byCall:
			f.doubts = append(f.doubts, b.start)
		}
	}
	return true
}

// follow finds returns and where the frame pointer is set up on the ways from the entry. Others belong to functions that only seem to
// be called: after a call that does not return, the next function begins.
func (f *flow) follow() {
	first := f.blocks[f.entry]
	first.led = true
	differ := false
	for todo := []*block{first}; len(todo) > 0; {
		b := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if b.leaves {
			f.returns++
		}
		switch {
		case b.setUp == 0 || b.setUp == f.setUp:
		case f.setUp == 0 && !differ:
			f.setUp = b.setUp
		default: // frames of different sizes
			f.setUp, differ = 0, true
		}
		for _, n := range b.next {
			if n.proven && !n.led {
				n.led = true
				todo = append(todo, n)
			}
		}
	}
}

// each calls yield with each proven block of the function, and its rules.
func (f *flow) each(yield func(b *block, rows []codeRow)) {
	for _, b := range f.list {
		if b.proven {
			yield(b, f.rows[b.rows.first:][:b.rows.n])
		}
	}
}

// newBlock returns a new block at an address, in the memory of an earlier function's if there is one.
func (f *flow) newBlock(addr uint64, byCall bool) *block {
	n := len(f.list)
	if n == cap(f.list) || n >= maxKeptBlocks {
		f.list = append(f.list, &block{})
	} else if f.list = f.list[:n+1]; f.list[n] == nil {
		f.list[n] = &block{}
	}
	b := f.list[n]
	*b = block{start: addr, byCall: byCall, frame: codeFrame{slots: b.frame.slots}, next: b.next, before: b.before[:0]}
	b.begin(0)
	return b
}

// enter adds a way to an address with a frame.
func (f *flow) enter(addr uint64, frame *codeFrame, byCall bool) {
	b := f.blocks[addr]
	if b == nil {
		b = f.newBlock(addr, byCall)
		frame.copyTo(&b.frame)
		if f.seen.has(addr) {
			// The block that goes on here now ends here.
			if around, ok := f.starts.before(addr); ok {
				f.enqueue(f.blocks[around])
			}
		}
		f.blocks[addr] = b
		f.starts.add(addr)
		f.enqueue(b)
		return
	}
	if byCall != b.byCall && b.frame.regs[f.isa.sp] != frame.regs[f.isa.sp] {
		// The call does not return: the code after it is entered otherwise.
		f.noReturn[addr] = true
		f.restart = f.restart || b.byCall
		return
	}
	b.byCall = b.byCall && byCall
	if b.frame.meet(frame, &f.sets) {
		f.enqueue(b)
	}
}

func (f *flow) enqueue(b *block) {
	if !b.queued {
		b.queued = true
		heap.Push(&f.queue, b)
	}
}

// number returns the number that stands for an instruction in values. It is not 0.
func (f *flow) number(at uint64) uint32 { return uint32(at-f.entry)<<1 | 1 }

// blockWalk executes the instructions of a block from its frame on, and notes what it finds. It follows the
// ways that lead out of it, unless final is set: then they are known.
type blockWalk struct {
	*flow
	*block
	frame *codeFrame
	final bool
}

// note adds the rule of an instruction.
func (w *blockWalk) note(at uint64, size int) {
	if w.check != nil {
		w.check(at, w.frame)
	}
	last := len(w.flow.rows) - 1
	rule := uint32(0)
	if w.block.rows.n > 0 {
		rule = w.flow.rows[last].rule
	}
	if w.frame.moved || w.block.rows.n == 0 {
		w.frame.moved = false
		rule = w.rule(w.frame.rule())
	}
	if w.block.rows.n > 0 && rule == w.flow.rows[last].rule {
		w.flow.rows[last].size += uint32(size)
		return
	}
	w.flow.rows = append(w.flow.rows, codeRow{at, uint32(size), rule})
	w.block.rows.n++
}

// walk executes the instructions.
func (w *blockWalk) walk() {
	w.begin(len(w.flow.rows))
	for at := w.start; ; {
		if at != w.start && w.isBlock(at) || at != w.entry && w.limits(at) != limitNone {
			w.goOn(at, w.frame)
			return
		}
		if (w.block.setUp == 0 || w.brief) && w.frame.isSetUp() {
			w.block.setUp = w.rule(w.frame.setUpRule())
			if w.brief {
				return
			}
		}
		code := w.code.at(at)
		in, ok := w.isa.decode(code, at)
		if !ok {
			w.bad = true
			return
		}
		w.note(at, in.Size)
		next := at + uint64(in.Size)
		w.until = next
		if in.Kind == instruction.Plain {
			w.isa.execute(w.frame, &in, code, w.number(at))
		}
		if !w.final {
			w.steps++
			w.seen.add(at)
			w.end = max(w.end, next)
			if in.Reference != 0 {
				w.references = append(w.references, in.Reference)
			}
			if in.Kind == instruction.Call && in.Target != next {
				w.calls = append(w.calls, in.Target)
			}
			if w.steps > w.limit {
				return
			}
		}
		switch in.Kind {
		case instruction.Plain:
		case instruction.Call, instruction.IndirectCall:
			if in.Kind == instruction.Call && in.Target == next { // to get its own address
				w.isa.called(w.frame)
				break
			}
			w.callsOut = true
			if in.Kind == instruction.Call && w.endless(in.Target) {
				return
			}
			w.frame.called()
			w.returned(next)
			w.reached = in.Kind == instruction.Call && w.returning(in.Target)
			return
		default:
			w.branch(&in)
			if in.Kind.Ends() {
				return
			}
			w.isa.branched(w.frame, &in, false)
		}
		at = next
	}
}

// isBlock reports whether another block begins at an address that the block leads to. One has to begin where
// two meet, if one of them began in the middle of an instruction of the other one, and at each page, so that
// [addrSet.before] finds it.
func (w *blockWalk) isBlock(at uint64) bool {
	return w.starts.has(at) || !w.final && (at>>addrPageShift != w.start>>addrPageShift || at >= w.end && w.seen.has(at))
}

// returned follows the return of a call.
func (w *blockWalk) returned(to uint64) {
	if w.limits(to) != limitNone || w.noReturn[to] {
		return // it is the last instruction of the function
	}
	if !w.final {
		w.enter(to, w.frame, true)
	}
	// Where a call is made in a frame as at an entry, the next function may follow, which proves nothing.
	if !w.isa.isReady(w.frame) {
		w.unready = true
	} else if b := w.blocks[to]; b != nil {
		w.afterCall = b
		w.next = append(w.next, b)
	}
}

// goOn follows the way to an address that is not by a call.
func (w *blockWalk) goOn(to uint64, frame *codeFrame) {
	if to == w.entry || w.limits(to) == limitNone {
		if to == w.entry && !frame.isAtEntry() {
			// The next function, of which this one is a part: a call before does not return.
			w.bad = true
			return
		}
		if !w.final {
			w.enter(to, frame, false)
		}
		if b := w.blocks[to]; b != nil {
			w.next = append(w.next, b)
		}
		return
	}
	// Another function is called instead of this one.
	switch frame.exit() {
	case exitBad:
		w.bad = true
	case exitGood:
		w.good = w.good || w.limits(to) == limitEntry
	}
}

// branch follows an instruction that may branch.
func (w *blockWalk) branch(in *instruction.Instruction) {
	switch in.Kind {
	case instruction.ConditionalJump, instruction.CounterJump, instruction.Jump:
		var taken codeFrame
		w.frame.copyTo(&taken)
		w.isa.branched(&taken, in, true)
		w.goOn(in.Target, &taken)
	case instruction.IndirectJump:
		w.jumpIndirect(in)
	case instruction.Return:
		how := w.frame.exit()
		w.bad = w.bad || how == exitBad
		w.good = w.good || how == exitGood
		w.leaves = w.leaves || how == exitGood
	}
}

// jumpIndirect follows the jump of a switch, and one to labels.
func (w *blockWalk) jumpIndirect(in *instruction.Instruction) {
	v := w.isa.target(w.frame, in)
	for _, to := range w.sets.choices(v) {
		w.goOn(to, w.frame)
	}
	if v.kind != valueTarget {
		return
	}
	if !w.final {
		w.steps += int(v.n) // each entry is read
	}
	size := uint64(1) << (tableFormat(v.reg) & tableSize)
	for i := range uint64(v.n) {
		entry, ok := w.code.data(uint64(v.off)+size*i, int(size))
		if !ok {
			return
		}
		if to := v.target(entry); w.limits(to) == limitNone {
			w.goOn(to, w.frame)
		}
	}
}

// codeReader reads code at random addresses.
type codeReader struct {
	b      *builder
	chunks map[uint64][]byte
	reads  int
	// last is the chunk read last, at start.
	last  []byte
	start uint64
}

const (
	codeChunk = 16 << 10
	// maxCodeChunks bounds the memory of a reader.
	maxCodeChunks = 256
	// maxCodeReads bounds the chunks that are read, in case that jumps lead back and forth.
	maxCodeReads   = 1 << 15
	maxInstruction = 16
)

// at returns the code at an address, at least one instruction unless it cannot be read.
func (r *codeReader) at(addr uint64) []byte {
	start := addr &^ (codeChunk - 1)
	if r.last != nil && r.start == start {
		return r.last[addr-start:]
	}
	chunk, ok := r.chunks[start]
	if !ok {
		if r.reads++; r.reads > maxCodeReads {
			return nil
		}
		if len(r.chunks) == maxCodeChunks {
			clear(r.chunks)
		}
		chunk = r.read(start)
		r.chunks[start] = chunk
	}
	r.last, r.start = chunk, start
	return chunk[min(addr-start, uint64(len(chunk))):]
}

// read reads a chunk, and what follows it up to the size of an instruction.
func (r *codeReader) read(start uint64) []byte {
	buf := make([]byte, codeChunk+maxInstruction)
	for _, s := range r.b.code.segments {
		from, to := max(start, s.Addr), min(start+uint64(len(buf)), s.Addr+s.Size)
		if from >= to {
			continue
		}
		part := buf[from-start : to-start]
		if n, _ := r.b.file.Reader().ReadAt(part, int64(s.Offset+from-s.Addr)); n < len(part) {
			return nil
		}
	}
	return buf
}

// data returns the number of size bytes at an address.
func (r *codeReader) data(addr uint64, size int) (uint64, bool) {
	off, ok := r.b.file.Offset(addr)
	if !ok {
		return 0, false
	}
	var buf [8]byte
	n, _ := r.b.file.Reader().ReadAt(buf[:size], int64(off))
	return binary.LittleEndian.Uint64(buf[:]), n == size
}
