package v8

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	"fulgur/internal/bpf"
	"fulgur/internal/runtimes"
)

// Limits on compiled code. V8 inlines a few dozen calls into a function at most.
const (
	maxBefore       = 256 << 10 // bytes to search before an address
	maxCandidates   = 64        // words that may be the object before the instructions
	maxCodes        = 1 << 12
	maxElements     = 1 << 14 // of an array
	maxTable        = 1 << 20 // bytes of a table
	maxDepth        = 64      // nested inlined calls
	maxMisses       = 64      // failed searches for code in missesTime
	maxRegexpMisses = 8       // the same, for code that may belong to no function
	missesTime      = time.Second
	checkedTime     = 10 * time.Millisecond // how long code counts as unchanged
	scanBytes       = 4 << 10               // bytes to read at once: a page, since the next page may be unreadable
)

// codeLayout has the offsets in a Code object, which describes compiled code. Up to V8 11.2,
// the instructions follow the Code object. In later versions, they follow an
// InstructionStream that points to it.
type codeLayout struct {
	header        int // from the object before the instructions to the instructions
	deoptimize    int // deoptimization data
	positions     int // source position table
	start         int // address of the instructions; 0 if they follow the Code object
	flags, size   int
	inline        bool // the instructions follow the Code object
	kindMask      int
	baseline      int // kind of functions' code without inlined calls; larger kinds are optimized
	inlinedCount  int // index in the deoptimization data
	literals      int
	shared        int
	inlinings     int
	sharedWrapper int // type of objects that point to a SharedFunctionInfo
	object        int // type of the object before the instructions
	code          int
	arrays        []int // types of arrays of tagged words
	bytes         []int // types of arrays of bytes
}

// read returns the number of bytes to read of a Code object.
func (l *codeLayout) read() int { return max(l.size, l.flags) + 4 }

// compiled is the code of a function.
type compiled struct {
	object     uint64 // before the instructions
	code       uint64 // the Code object, with its contents
	contents   words
	start      uint64 // of the instructions
	size       uint64 // in bytes
	table      []byte // the source position table
	kind       int    // as in the flags
	optimized  bool
	deoptimize uint64
	inlinings  words // pairs of a position and the index of a function
	checked    time.Time
	own        runtimes.Identity // the function, once known
	literals   map[int]*function // inlined functions, once known
}

// inliningSize is the size of an InliningPosition in bytes; see src/codegen/source-position.h.
const inliningSize = 16

// The kinds of regular expressions' code, up to V8 11 and in later versions. In each version, the
// other kind is that of WebAssembly or of builtins, whose code is not in the heap. See
// src/objects/code-kind.h.
const (
	regexpKind = iota + 3
	laterRegexpKind
)

// regexp is the name of compiled regular expressions. V8's profiles also have the pattern, but
// no object leads from the code to it.
const regexp = "(RegExp)"

// regexpAt returns the place of the compiled regular expression that contains an address, and none if
// other code contains it.
func (r *reader) regexpAt(pc uint64) ([]runtimes.Place, error) {
	c, err := r.codeAt(pc, maxRegexpMisses)
	if err != nil || c.kind != regexpKind && c.kind != laterRegexpKind {
		return nil, err
	}
	return []runtimes.Place{{Function: runtimes.Code{Kind: bpf.RuntimeV8, Name: regexp}}}, nil
}

// codeAt returns the code that contains an address. It searches for unknown code only if
// fewer than misses searches failed lately.
func (r *reader) codeAt(pc uint64, misses int) (*compiled, error) {
	byStart := func(c *compiled, pc uint64) int {
		if c.start > pc {
			return 1
		}
		return -1 // even if equal, so that the search finds the next one
	}
	i, _ := slices.BinarySearchFunc(r.codes, pc, byStart)
	if i > 0 && pc-r.codes[i-1].start < r.codes[i-1].size {
		if c := r.codes[i-1]; r.now().Sub(c.checked) < checkedTime || r.unchanged(c) {
			return c, nil
		}
		r.kept -= r.codes[i-1].bytes()
		r.codes = slices.Delete(r.codes, i-1, i)
	}
	if err := r.maySearch(pc, misses); err != nil {
		return nil, err
	}
	c, err := r.findCode(pc)
	if err != nil {
		if answered(err) {
			r.misses[pc] = true
		}
		return nil, err
	}
	c.checked = r.now()
	r.keep(c.bytes())
	i, _ = slices.BinarySearchFunc(r.codes, c.start, byStart)
	r.codes = slices.Insert(r.codes, i, c)
	return c, nil
}

// bytes returns the size of the tables of c.
func (c *compiled) bytes() int { return len(c.contents) + len(c.table) + len(c.inlinings) }

// maySearch returns an error if a search for the code of the address, or too many searches,
// failed lately. A failed search costs up to 130 reads.
func (r *reader) maySearch(pc uint64, misses int) error {
	if now := r.now(); now.Sub(r.missed) >= missesTime {
		clear(r.misses)
		r.missed = now
	}
	if r.misses[pc] || len(r.misses) >= misses {
		return fmt.Errorf("%w: no code found recently", errLayout)
	}
	return nil
}

// unchanged reports whether the code is still at its address. V8 reuses the memory of code.
func (r *reader) unchanged(c *compiled) bool {
	if code, err := r.codeOf(c.object); err != nil || code != c.code {
		return false
	}
	b, err := r.heap.read(c.code, len(c.contents))
	if err != nil || !bytes.Equal(b, c.contents) {
		return false
	}
	c.checked = r.now()
	return true
}

// findCode searches backwards from an address for the object before the instructions. This
// works for all versions, and even for code that V8 has already replaced in its function.
func (r *reader) findCode(pc uint64) (*compiled, error) {
	candidates := 0
	for at := pc &^ 7; pc-at < maxBefore; {
		low := (at - 1) &^ (scanBytes - 1)
		b := make(words, at-low)
		if err := r.memory.Read(b, low); err != nil {
			return nil, err
		}
		for i := len(b) - word; i >= 0; i -= word {
			w := b.at(i)
			if !isObject(w) || w>>47 != 0 || r.codeMap != 0 && w != r.codeMap {
				continue
			}
			if candidates++; candidates > maxCandidates {
				return nil, fmt.Errorf("%w: no code within %d candidates", errLayout, maxCandidates)
			}
			if is, err := r.instanceType(w); err != nil || is != r.codeLayout.object {
				continue
			}
			if c, err := r.compiled(low+uint64(i)+1, pc); err == nil {
				r.codeMap = w
				return c, nil
			}
		}
		at = low
	}
	return nil, fmt.Errorf("%w: no code within %d bytes", errLayout, maxBefore)
}

// codeOf returns the Code object that belongs to the object before the instructions.
func (r *reader) codeOf(object uint64) (uint64, error) {
	if r.codeLayout.inline {
		return object, nil
	}
	b, err := r.heap.read(object, 2*word)
	if err != nil {
		return 0, err
	}
	return b.at(word), nil
}

// compiled reads the code whose instructions follow an object and contain pc.
func (r *reader) compiled(object, pc uint64) (c *compiled, err error) {
	l := &r.codeLayout
	c = &compiled{object: object, start: object - 1 + uint64(l.header)}
	if c.code, err = r.codeOf(object); err != nil {
		return nil, err
	}
	if c.contents, err = r.typed(c.code, l.read(), l.code); err != nil {
		return nil, err
	}
	c.size = uint64(c.contents.uint32(l.size))
	if !l.inline && c.contents.at(l.start) != c.start || pc < c.start || pc-c.start >= c.size {
		return nil, fmt.Errorf("%w: code elsewhere", errLayout)
	}
	if c.kind = int(c.contents.uint32(l.flags)) & l.kindMask; c.kind <= l.baseline {
		return c, nil
	}
	c.optimized = true
	if c.table, err = r.array(c.contents.at(l.positions), 1, maxTable, l.bytes...); err != nil {
		return nil, err
	}
	c.deoptimize = c.contents.at(l.deoptimize)
	data, err := r.deoptimization(c)
	if err != nil {
		return nil, err
	}
	if n, ok := smi(data.at(word * l.inlinedCount)); ok && n > 0 {
		c.inlinings, err = r.array(data.at(word*l.inlinings), 1, inliningSize*maxElements, l.bytes...)
	}
	return c, err
}

// deoptimization returns the deoptimization data of optimized code. It is not cached, because
// V8 moves the functions that it points to.
func (r *reader) deoptimization(c *compiled) (words, error) {
	l := &r.codeLayout
	data, err := r.array(c.deoptimize, word, word*maxElements, l.arrays...)
	if err == nil && len(data) <= word*max(l.inlinings, l.literals, l.shared, l.inlinedCount) {
		err = fmt.Errorf("%w: deoptimization data of %d bytes", errLayout, len(data))
	}
	return data, err
}

// unwrap returns the SharedFunctionInfo that a word of an array points to: directly, weakly,
// or by a wrapper.
func (r *reader) unwrap(w uint64) (uint64, error) {
	const weak = 2
	w &^= weak
	is, err := r.typeOf(w)
	if err == nil && is == r.codeLayout.sharedWrapper {
		var b words
		if b, err = r.heap.read(w, 2*word); err == nil {
			w = b.at(word)
			is, err = r.typeOf(w)
		}
	}
	if err != nil {
		return 0, err
	}
	if is != r.layout.shared {
		return 0, fmt.Errorf("%w: type %d instead of a function", errLayout, is)
	}
	return w, nil
}

// inlined returns the places of an address in compiled code of a function, innermost first.
// It returns none if the code has no list of inlined calls or belongs to another function,
// and an error if the code is gone or could not be read.
func (r *reader) inlined(f runtimes.Frame, own *function) ([]runtimes.Place, error) {
	c, err := r.codeAt(f.PC, maxMisses)
	if err != nil || !c.optimized {
		return nil, err
	}
	if c.own != f.Identity {
		err := r.owned(c, f.Identity)
		if errors.Is(err, errLayout) {
			return nil, nil // the frame is incomplete: its function slot is another frame's
		}
		if err != nil {
			return nil, err
		}
	}
	at, call := r.positions.position(c.table, int(f.PC-c.start))
	var places []runtimes.Place
	for call >= 0 && len(places) < maxDepth {
		if (call+1)*inliningSize > len(c.inlinings) {
			return nil, nil
		}
		pair := c.inlinings[call*inliningSize:]
		is := own
		if id := pair.int32(word); id >= 0 { // a recursive call has no index
			if is, err = r.literal(c, id, f.Epoch); err != nil {
				return nil, err
			}
		}
		places = append(places, runtimes.Place{Function: is.code, Line: is.lines.at(at)})
		at, call = fields(int64(pair.at(0)))
	}
	if call >= 0 {
		return nil, nil
	}
	return append(places, runtimes.Place{Function: own.code, Line: own.lines.at(at)}), nil
}

// owned checks that optimized code belongs to a function.
func (r *reader) owned(c *compiled, id runtimes.Identity) error {
	data, err := r.deoptimization(c)
	if err != nil {
		return err
	}
	shared, err := r.unwrap(data.at(word * r.codeLayout.shared))
	if err != nil {
		return err
	}
	if shared != id.Address+1 {
		return fmt.Errorf("%w: code of another function", errLayout)
	}
	c.own = id
	return nil
}

// literal returns an inlined function of code. It is read only once, because it does not
// change until V8 frees the code.
func (r *reader) literal(c *compiled, id int, epoch uint64) (*function, error) {
	if f := c.literals[id]; f != nil {
		return f, nil
	}
	data, err := r.deoptimization(c)
	if err != nil {
		return nil, err
	}
	literals, err := r.array(data.at(word*r.codeLayout.literals), word, word*maxElements, r.codeLayout.arrays...)
	if err != nil {
		return nil, err
	}
	if len(literals) <= word*id {
		return nil, fmt.Errorf("%w: function %d of %d", errLayout, id, len(literals)/word)
	}
	shared, err := r.unwrap(literals.at(word * id))
	if err != nil {
		return nil, err
	}
	contents, err := r.typed(shared, r.sharedSize(), r.layout.shared)
	if err != nil {
		return nil, err
	}
	check, err := r.check(contents)
	if err != nil {
		return nil, err
	}
	f, err := r.function(runtimes.Identity{Epoch: epoch, Address: shared - 1, Check: check})
	if err != nil {
		return nil, err
	}
	if !r.unchanged(c) {
		return nil, fmt.Errorf("%w: the code changed", errLayout)
	}
	if c.literals == nil {
		c.literals = map[int]*function{}
	}
	c.literals[id] = f
	return f, nil
}
