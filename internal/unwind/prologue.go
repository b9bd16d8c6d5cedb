package unwind

import (
	"bytes"
	"cmp"
	"debug/elf"
	"slices"

	"fulgur/internal/symbols/elffile"
	"fulgur/internal/symbols/instruction"
)

// Limits of the search for functions without call frame information.
const (
	// maxCodeSteps bounds the instructions of a file that are executed.
	maxCodeSteps = 2 << 20
	// maxCodeScan bounds the bytes of a file's code with call frame information that are searched for calls
	// of other code.
	maxCodeScan = 4 << 20
	// minCode is the number of bytes of code without call frame information that are worth a search. The
	// compiler's own start-up code has fewer.
	minCode = 256
	// maxEntries bounds the functions.
	maxEntries = 1 << 18
)

// codeRules makes rules for functions that no table describes, from their code.
//
// An entry is sure if a symbol or a call leads there: the return address is then at the stack pointer. From
// there on, flow follows the code. Another entry, to which only a pointer or a jump leads, may also be a
// label in a function. It counts if its code returns: if each way to a return instruction leaves the stack
// pointer where it was at the label, the return address was there too.
//
// Code that contradicts what was derived, and code that no known way leads to, gets no rule, unless the
// functions around it that call others all keep frame pointers: then it gets KindChain.
type codeRules struct {
	*builder
	reader *codeReader
	gaps   []codeGap
	last   int // index of the gap found last
	sure   map[uint64]bool
	maybe  map[uint64]bool
	// returning holds the functions that return.
	returning map[uint64]bool
	queue     []uint64 // sure entries
	steps     int

	rules *ruleSet
	rows  []codeRow
	// known holds the addresses of instructions with rows.
	known map[uint64]bool
	// check, for tests, is called with each frame.
	check func(addr uint64, frame *codeFrame)
}

// codeRow is the rule of an instruction.
type codeRow struct {
	addr uint64
	size uint32
	rule uint32
}

// codeGap is a part of the code without call frame information.
type codeGap struct {
	start, end uint64
	// framed and unframed are the numbers of functions that call others, with and without frame pointers.
	framed, unframed int
}

// keepsFramePointers reports whether nearly all functions that call others keep frame pointers.
func (g *codeGap) keepsFramePointers() bool {
	const enough, exceptions = 16, 16 // one in 16
	return g.framed >= enough && g.unframed*exceptions <= g.framed
}

// isSettled reports whether so many functions keep frame pointers that the others of the gap need no
// analysis, which would take long for the built-in functions of a script engine.
func (g *codeGap) isSettled() bool { return g.framed >= 256 && g.keepsFramePointers() }

// addCode adds rules for code that has none, from the code. debug is the separate debug file or nil. It
// reports whether there are any.
func (b *builder) addCode(debug *elffile.File) bool {
	if !ReadsCode(b.file.Machine()) || IsGo(b.file) {
		return false
	}
	c := newCodeRules(b)
	size := uint64(0)
	for _, g := range c.gaps {
		size += g.end - g.start
	}
	if size < minCode {
		return false
	}
	c.addSymbols(b.file)
	if inner, err := b.file.Embedded(); err == nil && inner != nil {
		c.addSymbols(inner)
	}
	if debug != nil {
		c.addSymbols(debug)
	}
	c.addCalls()
	c.addPointers()
	c.run()
	return c.finish()
}

// ReadsCode reports whether [Compile] makes rules for code of a machine without call frame information.
func ReadsCode(m elf.Machine) bool { return m == elf.EM_X86_64 }

func newCodeRules(b *builder) *codeRules {
	c := &codeRules{
		builder: b, reader: &codeReader{b: b, chunks: map[uint64][]byte{}},
		sure: map[uint64]bool{}, maybe: map[uint64]bool{}, returning: map[uint64]bool{}, known: map[uint64]bool{}, rules: newRuleSet(),
	}
	b.code.gaps(b.spans, func(start, end uint64) {
		if end-start >= alignment/2 {
			c.gaps = append(c.gaps, codeGap{start: start, end: end})
		}
	})
	return c
}

// gap returns the gap that contains an address, or nil.
func (c *codeRules) gap(addr uint64) *codeGap {
	if c.last < len(c.gaps) {
		if g := &c.gaps[c.last]; addr-g.start < g.end-g.start {
			return g
		}
	}
	i, found := slices.BinarySearchFunc(c.gaps, addr, func(g codeGap, addr uint64) int { return cmp.Compare(g.start, addr) })
	if !found {
		i--
	}
	if i < 0 || addr >= c.gaps[i].end {
		return nil
	}
	c.last = i
	return &c.gaps[i]
}

// addSure adds an entry beyond doubt.
func (c *codeRules) addSure(addr uint64) {
	if !c.sure[addr] && len(c.sure) < maxEntries && c.gap(addr) != nil {
		c.sure[addr] = true
		c.queue = append(c.queue, addr)
	}
}

// addMaybe adds an entry in doubt.
func (c *codeRules) addMaybe(addr uint64) {
	if len(c.maybe) < maxEntries && c.gap(addr) != nil {
		c.maybe[addr] = true
	}
}

// addSymbols adds the functions of symbols. A part of a function that the compiler moved elsewhere is no
// function of its own.
func (c *codeRules) addSymbols(f *elffile.File) {
	sections, err := f.Sections()
	if err != nil {
		return
	}
	for _, s := range sections {
		if s.Type != elf.SHT_SYMTAB && s.Type != elf.SHT_DYNSYM {
			continue
		}
		names := f.SymbolNames(s)
		// Without some of the symbols, less code has rules.
		_ = f.EachSymbol(s, func(sym elffile.Symbol) bool {
			if sym.Section == elf.SHN_UNDEF || sym.Section >= elf.SHN_LORESERVE || c.gap(sym.Value) == nil {
				return true
			}
			switch {
			case sym.Type == elf.STT_FUNC || sym.Type == elf.STT_GNU_IFUNC:
				if names == nil || !bytes.Contains(names.At(uint64(sym.Name)), []byte(".cold")) {
					c.addSure(sym.Value)
				}
			case sym.Type == elf.STT_NOTYPE && sym.Binding != elf.STB_LOCAL:
				c.addMaybe(sym.Value)
			}
			return true
		})
	}
}

// addCalls adds the functions that code with call frame information calls or refers to.
func (c *codeRules) addCalls() {
	left := uint64(maxCodeScan)
	for _, s := range c.spans {
		if s.end-s.start > left {
			return
		}
		left -= s.end - s.start
		for at := s.start; at < s.end; {
			in, ok := instruction.DecodeX86(c.reader.at(at), at)
			if !ok {
				break
			}
			c.addUses(&in)
			at += uint64(in.Size)
		}
	}
}

// addUses adds the entries that an instruction leads to.
func (c *codeRules) addUses(in *instruction.Instruction) {
	switch in.Kind {
	case instruction.Call:
		c.addSure(in.Target)
	case instruction.Jump, instruction.ConditionalJump:
		c.addMaybe(in.Target)
	}
	if in.Reference != 0 {
		c.addMaybe(in.Reference)
	}
}

// addPointers adds the functions that pointers in data lead to.
func (c *codeRules) addPointers() {
	_ = c.file.EachRela(func(_ *elffile.Section, r elffile.Rela) bool {
		if elf.R_X86_64(r.Type) == elf.R_X86_64_RELATIVE || elf.R_X86_64(r.Type) == elf.R_X86_64_IRELATIVE {
			c.addMaybe(uint64(r.Addend))
		}
		return true
	})
}

// run analyzes all functions.
func (c *codeRules) run() {
	slices.Sort(c.queue)
	var again []uint64
	tried := map[uint64]bool{}
	for {
		for len(c.queue) > 0 && c.steps < maxCodeSteps {
			entry := c.queue[0]
			c.queue = c.queue[1:]
			if !c.function(entry, true) {
				again = append(again, entry)
			}
		}
		var maybe []uint64
		for addr := range c.maybe {
			if !tried[addr] && !c.sure[addr] && !c.known[addr] {
				maybe = append(maybe, addr)
			}
			tried[addr] = true
		}
		if len(maybe) == 0 || c.steps >= maxCodeSteps {
			break
		}
		slices.Sort(maybe)
		for _, addr := range maybe {
			if c.steps < maxCodeSteps && !c.known[addr] {
				c.function(addr, false)
			}
		}
	}
	// More entries and functions that return are known now. So a function that seemed to go on in the next
	// one may not, and more of another may be proven.
	for _, entry := range again {
		if c.steps < maxCodeSteps {
			c.function(entry, true)
		}
	}
}

// function analyzes a function and adds its rows, if its entry is sure or its code returns. It reports
// whether nothing is in doubt.
func (c *codeRules) function(entry uint64, sure bool) (complete bool) {
	if g := c.gap(entry); g == nil || g.isSettled() {
		return true
	}
	f := flow{code: c.reader, entry: entry, limits: func(addr uint64) limit {
		switch {
		case c.gap(addr) == nil:
			return limitOther
		case c.sure[addr]:
			return limitEntry
		}
		return limitNone
	}, returning: func(addr uint64) bool { return c.returning[addr] }}
	ok := f.run()
	c.steps += f.steps
	if !ok || !sure && (f.returns == 0 || f.irregular) {
		return false
	}
	if f.returns > 0 {
		c.returning[entry] = true
	}
	for _, addr := range f.calls {
		c.addSure(addr)
	}
	for _, addr := range f.references {
		c.addMaybe(addr)
	}
	for _, addr := range f.doubts {
		c.addMaybe(c.skipPadding(addr))
	}
	complete = len(f.doubts) == 0
	framed, unframed, again := false, false, c.known[entry]
	f.emit(func(addr uint64, size int, frame *codeFrame, kind instruction.Kind) {
		r := frame.rule()
		c.rows = append(c.rows, codeRow{addr, uint32(size), c.rules.add(r)})
		c.known[addr] = true
		if c.check != nil {
			c.check(addr, frame)
		}
		if kind == instruction.Call || kind == instruction.IndirectCall {
			framed = framed || r.isChain()
			unframed = unframed || r != Rule{} && !r.isChain()
		}
	})
	c.steps += f.steps
	if g := c.gap(entry); g != nil && !again {
		switch {
		case unframed:
			g.unframed++
		case framed:
			g.framed++
		}
	}
	return complete
}

// skipPadding returns the address of the first instruction from addr on that has an effect.
func (c *codeRules) skipPadding(addr uint64) uint64 {
	for {
		in, ok := instruction.DecodeX86(c.reader.at(addr), addr)
		if !ok || in.Kind != instruction.Plain {
			return addr
		}
		e := instruction.TakeApart(c.reader.at(addr)[:in.Size])
		if isNop := e.Map == 0 && e.Opcode == 0x90 || e.Map == 1 && e.Opcode == 0x1f; !isNop {
			return addr
		}
		addr += uint64(in.Size)
	}
}

// isChain reports whether the rule follows the chain of frame pointers.
func (r Rule) isChain() bool {
	return r.Kind == KindFP && r.CFA == 16 && r.FPSlot == SlotCFA && r.FP == -16 && r.RASlot == SlotCFA && r.RA == -8
}

// finish adds the rows to the builder.
func (c *codeRules) finish() bool {
	slices.SortFunc(c.rows, func(a, b codeRow) int {
		return cmp.Or(cmp.Compare(a.addr, b.addr), cmp.Compare(a.rule, b.rule))
	})
	made := &synthetic{chunk{rules: c.rules}}
	rows := c.rows
	chain := c.rules.add(Rule{Kind: KindChain})
	for i := range c.gaps {
		g := &c.gaps[i]
		keeps := g.keepsFramePointers()
		n, _ := slices.BinarySearchFunc(rows, g.end, func(r codeRow, end uint64) int { return cmp.Compare(r.addr, end) })
		c.fill(made, g, rows[:n], chain, keeps)
		rows = rows[n:]
	}
	if len(made.chunk.spans) == 0 {
		return false
	}
	c.stats.Functions += len(c.sure)
	c.stats.Analyzed = true
	c.spans = fill(c.spans, layer([]*chunk{&made.chunk}))
	return true
}

// fill makes the span of a gap from its rows.
func (c *codeRules) fill(made *synthetic, g *codeGap, rows []codeRow, chain uint32, keeps bool) {
	other := uint32(0) // the rule of code without one
	if keeps {
		other = chain
	} else if len(rows) == 0 {
		return
	}
	first := uint32(len(made.chunk.rows))
	last := ^uint32(0)
	put := func(addr uint64, rule uint32) {
		if rule != 0 && keeps && c.rules.list[rule].isChain() || rule == 0 {
			rule = other
		}
		off := uint32(addr - g.start)
		if n := len(made.chunk.rows); n > int(first) && made.chunk.rows[n-1].off == off {
			made.chunk.rows[n-1].rule = rule
		} else if rule != last {
			made.chunk.rows = append(made.chunk.rows, localRow{off, rule})
		}
		last = rule
	}
	at := g.start
	put(at, 0)
	for i := 0; i < len(rows); i++ {
		r := rows[i]
		if r.addr < at {
			// In the middle of another instruction. Its rule remains if it is the same.
			if r.rule != last {
				put(r.addr, 0)
				at = max(at, r.addr+uint64(r.size))
			}
			continue
		}
		if r.addr > at {
			put(at, 0)
		}
		for i+1 < len(rows) && rows[i+1].addr == r.addr {
			i++
			if rows[i].rule != r.rule {
				r.rule = 0 // functions that share code disagree
			}
		}
		put(r.addr, r.rule)
		at = r.addr + uint64(r.size)
	}
	if at < g.end {
		put(at, 0)
	}
	made.chunk.spans = append(made.chunk.spans, span{
		start: g.start, end: g.end, origin: g.start, chunk: &made.chunk, first: first, n: uint32(len(made.chunk.rows)) - first,
	})
}
