package unwind

import (
	"bytes"
	"cmp"
	"debug/elf"
	"encoding/binary"
	"slices"

	"fulgur/internal/symbols/elffile"
	"fulgur/internal/symbols/instruction"
)

// Limits of the search for functions without call frame information.
const (
	// maxCodeSteps bounds the instructions of a file that are executed, and stepsOfByte those for each of its
	// bytes. Code has about one step.
	maxCodeSteps = 2 << 20
	stepsOfByte  = 8
	// maxCodeScan bounds the bytes of a file's code with call frame information that are searched for calls
	// of other code, and maxCodeDecoded those that are decoded.
	maxCodeScan, maxCodeDecoded = 4 << 20, 1 << 20
	// maxDataScan bounds the bytes of a file's data that are searched for pointers.
	maxDataScan = 4 << 20
	// minCode is the number of bytes of code without call frame information that are worth a search for
	// functions. The start-up code in nearly each file has fewer.
	minCode = 256
	// maxEntries bounds the functions.
	maxEntries = 1 << 18
	// maxPending bounds the pointers that are collected before their functions are analyzed.
	maxPending = 1 << 12
	// minSearchedGap and maxSearchedGap are the sizes in bytes of gaps that are searched for padding.
	minSearchedGap, maxSearchedGap = 4 << 10, 4 << 20
	// maxCodeSections bounds the sections with code. Programs have a few.
	maxCodeSections = 64
)

// codeRules makes rules for functions that no table describes, from their code.
//
// An entry is sure if a symbol or a call leads there: the return address is then at the stack pointer, or in
// the link register. From there on, flow follows the code. Another entry, to which only a pointer or a jump
// leads, may also be a label in a function. It counts if its code returns: if each way to a return instruction
// leaves the stack pointer where it was at the label, the return address was there too.
//
// Code that contradicts what was derived, and code that no known way leads to, gets no rule, unless it belongs
// to a function that sets up a frame pointer: then it gets the rule of that frame. If nearly all functions
// around it have standard frames, it gets KindChain.
type codeRules struct {
	*builder
	reader *codeReader
	gaps   []codeGap
	last   int // index of the gap found last
	flow   flow
	// sure and maybe hold the entries, queue and doubtful those that are not analyzed yet.
	sure, maybe     addrSet
	queue, doubtful []uint64
	// returning holds the functions that return.
	returning addrSet
	// endless holds the functions that are known not to return.
	endless addrSet
	// afterCalls holds what is reached only through calls that seem to return.
	afterCalls addrSet
	// again holds sure entries whose analysis left something in doubt.
	again []uint64
	// analyses describes the analyses that made rows.
	analyses []codeAnalysis
	// steps is the number of instructions that were executed, and limit its bound.
	steps, limit int

	rules *ruleSet
	rows  []codeRow
	// known holds the addresses with rows.
	known addrSet
	// starts holds the functions that were analyzed.
	starts []codeStart
	// added, for tests, is called when the rules of a function were added.
	added func()
}

// codeAnalysis is the analysis of a function: its rows are rows[first:end].
type codeAnalysis struct {
	entry      uint64
	sure       bool
	first, end int
}

// codeRow is the rule of some instructions.
type codeRow struct {
	addr uint64
	size uint32
	rule uint32
}

func (r codeRow) end() uint64 { return r.addr + uint64(r.size) }

// flatten sorts rows, and makes those distinct that overlap. Where they disagree, such as those of functions
// that share code, there is no rule.
func flatten(rows []codeRow) []codeRow {
	slices.SortFunc(rows, func(a, b codeRow) int {
		if a.addr != b.addr {
			return cmp.Compare(a.addr, b.addr)
		}
		return cmp.Compare(a.rule, b.rule)
	})
	flat := make([]codeRow, 0, len(rows))
	add := func(from, to uint64, rule uint32) {
		if from < to {
			flat = append(flat, codeRow{from, uint32(to - from), rule})
		}
	}
	for _, r := range rows {
		if r.size == 0 {
			continue // dropped
		}
		if len(flat) == 0 || r.addr >= flat[len(flat)-1].end() {
			flat = append(flat, r)
			continue
		}
		last := flat[len(flat)-1]
		// Before the last row is only code where others disagree.
		from, end := max(r.addr, last.addr), r.end()
		if r.rule == last.rule {
			flat[len(flat)-1].size = uint32(max(end, last.end()) - last.addr)
			continue
		}
		flat = flat[:len(flat)-1]
		both := min(end, last.end())
		add(last.addr, from, last.rule)
		add(from, both, 0)
		add(max(from, both), last.end(), last.rule)
		add(max(from, both), end, r.rule)
	}
	return flat
}

// codeStart is the start of a function.
type codeStart struct {
	addr uint64
	// rule is that of the frame to which the function sets up a frame pointer, or 0.
	rule uint32
}

// codeGap is a part of the code without call frame information.
type codeGap struct {
	start, end uint64
	// framed and bare are the numbers of functions with and without frame pointers, framedCallers and
	// bareCallers those of functions that call others.
	framed, bare               int
	framedCallers, bareCallers int
}

// few reports whether so few functions are exceptions that another one is probably none.
func few(exceptions, functions int) bool {
	const enough = 16
	return functions >= enough && exceptions*enough <= functions
}

// keepsFramePointers reports whether nearly all functions keep frame pointers, also those that call none.
func (g *codeGap) keepsFramePointers() bool { return few(g.bare, g.framed) }

// isSettled reports whether so many functions keep frame pointers that the others of the gap need no complete
// analysis, which would take long for the built-in functions of a script engine.
func (g *codeGap) isSettled() bool {
	const enough = 64
	return g.framedCallers >= enough && few(g.bareCallers, g.framedCallers)
}

// count counts a function.
func (g *codeGap) count(framed, calls bool) {
	switch {
	case framed && calls:
		g.framedCallers++
	case calls:
		g.bareCallers++
	}
	if framed {
		g.framed++
	} else {
		g.bare++
	}
}

// addCode adds rules for code that has none, from the code. debug is the separate debug file or nil. It
// reports whether there are any.
func (b *builder) addCode(debug *elffile.File) bool {
	if IsGo(b.file) {
		return false
	}
	c := newCodeRules(b)
	size := uint64(0)
	for _, g := range c.gaps {
		size += g.end - g.start
	}
	c.addInit()
	if size < minCode {
		c.run()
		return c.finish()
	}
	if b.deferred {
		return c.leave()
	}
	c.addSymbols(b.file)
	if inner, err := b.file.Embedded(); err == nil && inner != nil {
		c.addSymbols(inner)
	}
	if debug != nil {
		c.addSymbols(debug)
	}
	c.addStubs()
	c.addStart()
	c.addCalls()
	c.search()
	c.stats.Instructions = c.steps
	return c.finish()
}

// leave adds KindUnread for all code that would be analyzed, and reports whether there is any.
func (c *codeRules) leave() bool {
	unread := chunk{rules: c.rules, rows: []localRow{{rule: c.rules.add(Rule{Kind: KindUnread})}}}
	for _, g := range c.gaps {
		c.stats.Unread += g.end - g.start
		unread.spans = append(unread.spans, span{start: g.start, end: g.end, origin: g.start, chunk: &unread, n: 1})
	}
	c.spans = fill(c.spans, layer([]*chunk{&unread}))
	return true
}

func newCodeRules(b *builder) *codeRules {
	c := &codeRules{builder: b, reader: &codeReader{b: b, chunks: map[uint64][]byte{}}, rules: newRuleSet()}
	c.flow = flow{
		isa: b.arch.isa, code: c.reader, limit: maxFunctionSteps, blocks: map[uint64]*block{}, noReturn: map[uint64]bool{}, returning: c.returning.has, endless: c.endless.has,
		limits: func(addr uint64) limit {
			switch {
			case c.gap(addr) == nil:
				return limitOther
			case c.sure.has(addr):
				return limitEntry
			}
			return limitNone
		},
	}
	c.flow.rule = c.rules.add
	c.flow.sets.isCode = func(addr uint64) bool { return c.gap(addr) != nil }
	code := b.codeSections()
	b.code.gaps(b.spans, func(start, end uint64) {
		for _, s := range code {
			from, to := max(start, s.Addr), min(end, s.Addr+s.Size)
			isAll := from == s.Addr && to == s.Addr+s.Size // of a section, so it is no padding
			if from < to && (isAll || to-from >= alignment/2) {
				c.gaps = append(c.gaps, codeGap{start: from, end: to})
			}
		}
	})
	for _, g := range c.gaps {
		c.limit = min(c.limit+int(min(g.end-g.start, maxCodeSteps))*stepsOfByte, maxCodeSteps)
	}
	return c
}

// codeSections returns the places of the code: sections, or else segments, which may also contain data.
func (b *builder) codeSections() (code []Segment) {
	sections, err := b.file.Sections()
	if err == nil {
		for _, s := range sections {
			if s.Flags&elf.SHF_EXECINSTR != 0 && s.Type == elf.SHT_PROGBITS && s.Addr+s.Size > s.Addr {
				code = append(code, Segment{Addr: s.Addr, Size: s.Size})
			}
		}
	}
	slices.SortFunc(code, func(a, b Segment) int { return cmp.Compare(a.Addr, b.Addr) })
	end := uint64(0)
	code = slices.DeleteFunc(code, func(s Segment) bool {
		overlaps := s.Addr < end
		end = max(end, s.Addr+s.Size)
		return overlaps
	})
	if len(code) == 0 || len(code) > maxCodeSections {
		return b.code.segments
	}
	return code
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

// isOpen reports whether an address is in code that is still of interest.
func (c *codeRules) isOpen(addr uint64) bool {
	g := c.gap(addr)
	return g != nil && !g.isSettled()
}

// addSure adds an entry beyond doubt.
func (c *codeRules) addSure(addr uint64) {
	if c.isOpen(addr) && c.sure.n < maxEntries && c.sure.add(addr) {
		c.queue = append(c.queue, addr)
	}
}

// addMaybe adds an entry in doubt.
func (c *codeRules) addMaybe(addr uint64) {
	if c.isOpen(addr) && c.maybe.n < maxEntries && c.maybe.add(addr) {
		c.doubtful = append(c.doubtful, addr)
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
			if sym.Binding != elf.STB_LOCAL && sym.Type == elf.STT_FUNC && names != nil && isEndless(names.At(uint64(sym.Name))) {
				c.endless.add(sym.Value)
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

// endlessNames are the names of common functions that do not return.
var endlessNames = map[string]bool{
	"abort": true, "exit": true, "_exit": true, "_Exit": true, "quick_exit": true, "pthread_exit": true, "thrd_exit": true,
	"__assert_fail": true, "__assert_perror_fail": true, "__assert": true, "__stack_chk_fail": true, "__chk_fail": true, "__fortify_fail": true,
	"longjmp": true, "_longjmp": true, "siglongjmp": true, "__longjmp_chk": true,
	"_Unwind_Resume": true, "__cxa_throw": true, "__cxa_rethrow": true, "__cxa_bad_cast": true, "__cxa_bad_typeid": true,
	"__cxa_throw_bad_array_new_length": true, "__cxa_pure_virtual": true, "_ZSt9terminatev": true,
}

// isEndless reports whether a function of this name does not return.
func isEndless(name []byte) bool {
	// std::__throw_bad_alloc and the like
	return endlessNames[string(name)] || bytes.HasPrefix(name, []byte("_ZSt")) && bytes.Contains(name, []byte("__throw_"))
}

// addStart adds the functions to which the code at a program's entry point leads, such as main. That code itself
// has no caller.
func (c *codeRules) addStart() {
	entry := c.file.Entry()
	if c.gap(entry) == nil {
		return
	}
	c.flow.run(entry)
	c.steps += c.flow.steps
	for _, addr := range slices.Concat(c.flow.calls, c.flow.references) {
		c.addSure(addr)
	}
}

// addInit adds the functions that the C library calls at the start and the end.
func (c *codeRules) addInit() {
	entries, err := c.file.Dynamic()
	if err != nil {
		return // without them, more is in doubt
	}
	for _, e := range entries {
		if e.Tag == elf.DT_INIT || e.Tag == elf.DT_FINI {
			c.addSure(e.Value)
		}
	}
}

// addStubs finds the stubs of functions that do not return.
func (c *codeRules) addStubs() {
	stubs, err := c.file.PLT()
	if err != nil {
		return // without them, more is in doubt
	}
	for _, s := range stubs {
		if isEndless([]byte(s.Name)) {
			c.endless.add(s.Addr)
		}
	}
}

// addCalls adds the functions that code with call frame information calls or refers to.
func (c *codeRules) addCalls() {
	left, decoded := uint64(maxCodeScan), uint64(maxCodeDecoded)
	frame := c.arch.isa.entryFrame()
	for _, s := range c.spans {
		size := s.end - s.start
		if size > left {
			return
		}
		left -= size
		if !c.refers(s.start, s.end) {
			continue
		}
		if size > decoded {
			return
		}
		decoded -= size
		for at := s.start; at < s.end; {
			code := c.reader.at(at)
			in, ok := c.arch.isa.decode(code, at)
			if in.Size == 0 {
				break
			}
			if ok && c.arch.isa.pairs && in.Kind == instruction.Plain {
				c.arch.isa.execute(&frame, &in, code, 1)
			}
			c.addUses(&in)
			at += uint64(in.Size)
		}
	}
}

// refers reports whether code may refer to a gap. It is faster than decoding.
func (c *codeRules) refers(start, end uint64) bool {
	low, high := c.gaps[0].start, c.gaps[len(c.gaps)-1].end
	for at := start; at < end; {
		code := c.reader.at(at)
		if code = code[:min(uint64(len(code)), end-at)]; len(code) == 0 {
			return false
		}
		if c.arch.isa.refers(code, at, low, high, c.hasGap) {
			return true
		}
		at = at&^(codeChunk-1) + codeChunk
	}
	return false
}

// hasGap reports whether a range of addresses overlaps a gap.
func (c *codeRules) hasGap(from, to uint64) bool {
	i, _ := slices.BinarySearchFunc(c.gaps, from+1, func(g codeGap, addr uint64) int { return cmp.Compare(g.end, addr) })
	return i < len(c.gaps) && c.gaps[i].start < to
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
		if r.Type == c.arch.isa.relative || r.Type == c.arch.isa.irelative {
			c.addMaybe(uint64(r.Addend))
			if len(c.doubtful) >= maxPending {
				c.run()
			}
		}
		return c.steps < c.limit
	})
	c.addWords()
}

// addWords adds the functions that words in data lead to, in files whose pointers no such relocation describes:
// programs at fixed addresses, and those with compact relocations.
func (c *codeRules) addWords() {
	sections, err := c.file.Sections()
	const compact = 19 // SHT_RELR
	isCompact := func(s *elffile.Section) bool { return s.Type == compact }
	if err != nil || c.file.Type() != elf.ET_EXEC && !slices.ContainsFunc(sections, isCompact) {
		return
	}
	left, buf := uint64(maxDataScan), make([]byte, codeChunk)
	for _, s := range sections {
		isData := s.Type == elf.SHT_PROGBITS || s.Type == elf.SHT_INIT_ARRAY || s.Type == elf.SHT_FINI_ARRAY
		if !isData || s.Flags&elf.SHF_ALLOC == 0 || s.Flags&elf.SHF_EXECINSTR != 0 || s.Size > left {
			continue
		}
		left -= s.Size
		for off := uint64(0); off < s.Size; off += codeChunk {
			n, _ := c.file.Reader().ReadAt(buf[:min(codeChunk, s.Size-off)], int64(s.Offset+off))
			for words := buf[:n&^7]; len(words) > 0; words = words[8:] {
				if to := binary.LittleEndian.Uint64(words); to%c.arch.isa.step == 0 {
					c.addMaybe(to)
				}
			}
			if len(c.doubtful) >= maxPending {
				c.run()
			}
			if c.steps >= c.limit {
				return
			}
		}
	}
}

// search analyzes all functions, beginning with those that are known so far.
func (c *codeRules) search() {
	c.run()
	c.addPointers()
	c.run()
	c.sweep()
	c.run()
	c.runAgain()
	c.run()
	c.addStarts()
}

// sweep adds the functions that are called in code to which no known way leads. It needs instructions of one size,
// for which code is read as it is executed. Data in the code may look like a call, but not twice.
func (c *codeRules) sweep() {
	if c.arch.isa.step == 1 {
		return
	}
	left := uint64(maxCodeScan)
	var called addrSet
	for i := range c.gaps {
		g := &c.gaps[i]
		end := min(g.end, g.start+left)
		left -= end - g.start
		for at := g.start; at < end; at += c.arch.isa.step {
			if c.known.has(at) {
				continue
			}
			in, ok := c.arch.isa.decode(c.reader.at(at), at)
			switch {
			case in.Size == 0:
				return
			case !ok || in.Kind != instruction.Call || in.Target == at+uint64(in.Size) || c.gap(in.Target) == nil:
			case called.add(in.Target):
				c.addMaybe(in.Target)
			default:
				c.addSure(in.Target)
			}
		}
	}
}

// run analyzes the functions that are known so far.
func (c *codeRules) run() {
	for c.steps < c.limit && (len(c.queue) > 0 || len(c.doubtful) > 0) {
		slices.Sort(c.queue)
		slices.Sort(c.doubtful)
		queue, doubtful := c.queue, c.doubtful
		c.queue, c.doubtful = nil, nil
		for _, entry := range queue {
			if c.steps < c.limit && !c.function(entry, true) {
				c.again = append(c.again, entry)
			}
		}
		if len(c.queue) > 0 { // which may contain the others
			c.doubtful = append(c.doubtful, doubtful...)
			continue
		}
		for _, addr := range doubtful {
			switch {
			case c.steps >= c.limit || c.sure.has(addr):
			case c.afterCalls.has(addr):
				// If a function may begin here, the call before does not return.
				c.function(addr, false)
				if n := len(c.analyses); n > 0 && c.analyses[n-1].entry == addr {
					c.sure.add(addr)
				}
			case !c.known.has(addr):
				c.function(addr, false)
			}
		}
	}
}

// maxAgain bounds how often functions are analyzed again.
const maxAgain = 4

// runAgain analyzes functions again. More entries and functions that return are known now. So a function
// that seemed to go on in the next one may not, and more of another may be proven.
func (c *codeRules) runAgain() {
	for range maxAgain {
		wrong := c.dropWrong()
		if len(wrong) == 0 && len(c.again) == 0 {
			return
		}
		again := c.again
		c.again = nil
		for _, a := range wrong {
			if c.steps < c.limit {
				c.function(a.entry, a.sure)
			}
		}
		for _, entry := range again {
			if c.steps < c.limit {
				c.function(entry, true)
			}
		}
		c.again = nil // once more would not help
		c.run()
	}
	c.dropWrong()
}

// dropWrong drops the rows of functions that seemed to go on in another one, whose entry was found later. It
// returns their analyses.
func (c *codeRules) dropWrong() (wrong []codeAnalysis) {
	c.analyses = slices.DeleteFunc(c.analyses, func(a codeAnalysis) bool {
		rows := c.rows[a.first:a.end]
		if !slices.ContainsFunc(rows, func(r codeRow) bool { return c.entersAnother(r, a.entry) }) {
			return false
		}
		for i := range rows {
			rows[i].size = 0
		}
		wrong = append(wrong, a)
		return true
	})
	return wrong
}

// entersAnother reports whether a row contains the entry of another function.
func (c *codeRules) entersAnother(r codeRow, entry uint64) bool {
	for at := r.end(); at > r.addr; {
		found, ok := c.sure.before(at - 1)
		switch {
		case !ok: // in two pages
			at -= min(at, (at-1)%addrPageSize+1+addrPageSize)
			continue
		case found < r.addr:
			return false
		case found != entry:
			return true
		}
		at = found
	}
	return false
}

// function analyzes a function and adds its rows, if its entry is sure or its code returns. It reports
// whether nothing is in doubt.
func (c *codeRules) function(entry uint64, sure bool) (complete bool) {
	if g := c.gap(entry); g == nil || g.isSettled() {
		return true
	}
	f := &c.flow
	ok := f.run(entry)
	c.steps += f.steps
	if !ok || !sure && (f.returns == 0 || f.irregular) {
		return false
	}
	if f.returns > 0 {
		c.returning.add(entry)
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
	a := codeAnalysis{entry: entry, sure: sure, first: len(c.rows)}
	again, calls := c.known.has(entry), false
	f.each(func(b *block, rows []codeRow) {
		for _, r := range rows {
			c.known.addRange(r.addr, r.end())
		}
		if b.byCall {
			c.afterCalls.add(c.skipPadding(b.start))
		}
		c.rows = append(c.rows, rows...)
		calls = calls || b.callsOut
	})
	a.end = len(c.rows)
	c.analyses = append(c.analyses, a)
	c.starts = append(c.starts, codeStart{entry, f.setUp})
	if g := c.gap(entry); g != nil && !again {
		g.count(c.keepsChain(f.setUp), calls)
	}
	if c.added != nil {
		c.added()
	}
	return complete
}

// addStarts finds functions of gaps that are only partly analyzed by the padding between functions. It
// follows them up to where they set up frame pointers.
func (c *codeRules) addStarts() {
	for i := range c.gaps {
		if g := &c.gaps[i]; !g.keepsFramePointers() && g.end-g.start >= minSearchedGap && g.end-g.start <= maxSearchedGap {
			c.addStartsOf(g)
		}
	}
}

func (c *codeRules) addStartsOf(g *codeGap) {
	const align = 16 // of functions
	next := g.start
	for addr := (g.start + align - 1) &^ (align - 1); addr < g.end && c.steps < c.limit; addr += align {
		for ; next < addr; next++ { // entries that are not aligned
			if c.sure.has(next) {
				c.glance(next, true)
			}
		}
		if before := c.reader.at(addr - align); c.sure.has(addr) || len(before) >= align && c.arch.isa.endsWithPadding(before[:align]) {
			c.glance(addr, c.sure.has(addr))
		}
		next = addr + 1
	}
}

// glance follows a function up to where it sets up a frame pointer. sure is whether a function begins there
// beyond doubt.
func (c *codeRules) glance(entry uint64, sure bool) {
	if c.known.has(entry) {
		return
	}
	f := &c.flow
	f.brief, f.limit = true, maxGlanceSteps
	if sure {
		f.limit *= 16
	}
	defer func() { f.brief, f.limit = false, maxFunctionSteps }()
	ok := f.run(entry)
	c.steps += f.steps
	if ok && (sure || f.setUp != 0 || f.returns > 0 && !f.irregular) {
		calls := false
		f.each(func(b *block, rows []codeRow) {
			for _, r := range rows {
				if !c.known.has(r.addr) {
					c.known.addRange(r.addr, r.end())
					c.rows = append(c.rows, r)
				}
			}
			calls = calls || b.callsOut
		})
		if c.added != nil {
			c.added()
		}
		c.starts = append(c.starts, codeStart{addr: entry, rule: f.setUp})
		framed := c.keepsChain(f.setUp)
		c.gap(entry).count(framed, calls || framed)
	} else if sure {
		c.starts = append(c.starts, codeStart{addr: entry})
	}
}

// skipPadding returns the address of the first instruction from addr on that has an effect.
func (c *codeRules) skipPadding(addr uint64) uint64 {
	for {
		code := c.reader.at(addr)
		in, ok := c.arch.isa.decode(code, addr)
		if !ok || in.Kind != instruction.Plain || !c.arch.isa.isPadding(code[:in.Size]) {
			return addr
		}
		addr += uint64(in.Size)
	}
}

// isChain reports whether the rule follows the chain of frame pointers.
func (r Rule) isChain() bool {
	return r.Kind == KindFP && r.CFA == 16 && r.FPSlot == SlotCFA && r.FP == -16 && r.RASlot == SlotCFA && r.RA == -8
}

// keepsChain reports whether a function with this rule in its frame keeps frame pointers as generated code does:
// so that nothing but the frame pointer is needed to know the caller's registers.
func (c *codeRules) keepsChain(rule uint32) bool { return c.rules.list[rule].isChain() }

// finish adds the rows to the builder.
func (c *codeRules) finish() bool {
	c.rows = flatten(c.rows)
	slices.SortFunc(c.starts, func(a, b codeStart) int { return cmp.Compare(a.addr, b.addr) })
	f := filler{
		codeRules: c, chunk: chunk{rules: c.rules},
		chain: c.rules.add(Chain(ChainAny)), standard: c.rules.add(Chain(ChainAtEnd)),
	}
	leaf := c.arch.isa.entryFrame()
	f.leaf = c.rules.add(leaf.rule())
	rows, starts := c.rows, c.starts
	for i := range c.gaps {
		f.codeGap = &c.gaps[i]
		n, _ := slices.BinarySearchFunc(rows, f.end, func(r codeRow, end uint64) int { return cmp.Compare(r.addr, end) })
		m, _ := slices.BinarySearchFunc(starts, f.end, func(s codeStart, end uint64) int { return cmp.Compare(s.addr, end) })
		f.starts = starts[:m]
		f.fill(rows[:n])
		rows, starts = rows[n:], starts[m:]
	}
	if len(f.chunk.spans) == 0 {
		return false
	}
	c.stats.Functions += c.sure.n
	c.stats.Analyzed = true
	c.spans = fill(c.spans, layer([]*chunk{&f.chunk}))
	return true
}

// filler makes the span of a gap.
type filler struct {
	*codeRules
	*codeGap
	chunk  chunk
	starts []codeStart // of the gap
	// chain, standard and leaf are rules: KindChain, with ChainAtEnd, and that of a function without a frame.
	chain, standard, leaf uint32
	last                  uint32 // the rule of the last row
}

// put adds a row.
func (f *filler) put(addr uint64, rule uint32) {
	off := uint32(addr - f.start)
	if n := len(f.chunk.rows); rule == f.last {
		return
	} else if n > 0 && f.last != noRule && f.chunk.rows[n-1].off == off {
		f.chunk.rows[n-1].rule = rule
	} else {
		f.chunk.rows = append(f.chunk.rows, localRow{off, rule})
	}
	f.last = rule
}

// noRule stands for no row.
const noRule = ^uint32(0)

// fill makes the span from the rows of the gap.
func (f *filler) fill(rows []codeRow) {
	start, end := f.start, f.end
	if len(rows) == 0 && !f.keepsFramePointers() {
		return
	}
	first := uint32(len(f.chunk.rows))
	f.last = noRule
	at := start
	for _, r := range rows {
		f.undecided(at, r.addr)
		at = r.end()
		if r.rule == 0 {
			f.undecided(r.addr, at)
		} else {
			f.put(r.addr, f.simple(r.rule))
		}
	}
	f.undecided(at, end)
	f.chunk.spans = append(f.chunk.spans, span{
		start: start, end: end, origin: start, chunk: &f.chunk, first: first, n: uint32(len(f.chunk.rows)) - first,
	})
}

// simple returns the rule of analyzed code as it is put into a row.
func (f *filler) simple(rule uint32) uint32 {
	if f.rules.list[rule].isChain() {
		return f.standard // the kernel's walker reads V8's frames there; fewer rows
	}
	return rule
}

// undecided adds rows for code without rules.
func (f *filler) undecided(from, to uint64) {
	if from >= to {
		return
	}
	if f.keepsFramePointers() {
		f.put(from, f.chain)
		return
	}
	i, found := slices.BinarySearchFunc(f.starts, from, func(s codeStart, addr uint64) int { return cmp.Compare(s.addr, addr) })
	rule := uint32(0) // of the function's frame
	if found {
		rule = f.starts[i].rule
	} else if i > 0 {
		rule = f.starts[i-1].rule
	}
	for from < to {
		next := to
		for i < len(f.starts) && f.starts[i].addr <= from {
			i++
		}
		if i < len(f.starts) {
			next = min(to, f.starts[i].addr)
		}
		if rule != 0 {
			f.framed(from, next, f.simple(rule))
		} else {
			f.put(from, 0)
		}
		if i < len(f.starts) {
			rule = f.starts[i].rule
		}
		from = next
	}
}

// framed adds rows for code of a function that sets up a frame pointer. rule is that of its frame.
func (f *filler) framed(from, to uint64, rule uint32) {
	f.put(from, rule)
	for at := from; at < to; {
		code := f.reader.at(at)
		if len(code) == 0 {
			return
		}
		// The function's frame is no longer there at a return instruction.
		released, leaf, end := f.arch.isa.restored(code)
		if end == 0 || at+uint64(end) > to {
			at += f.arch.isa.step
			continue
		}
		f.put(at+uint64(released), 0)
		f.put(at+uint64(leaf), f.leaf)
		if at += uint64(end); at < to {
			f.put(at, rule)
		}
	}
}
