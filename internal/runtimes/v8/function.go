package v8

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"fulgur/internal/bpf"
	"fulgur/internal/runtimes"
)

// function is a cached SharedFunctionInfo.
type function struct {
	identity runtimes.Identity
	code     runtimes.Code
	lines    lines
	// table is the source position table of the bytecode, if it exists. V8 creates it when a
	// stack trace needs it.
	table []byte
	tries int // attempts to read table again
}

// anonymous is the name of functions without a name, as in V8's own profiles.
const anonymous = "(anonymous)"

// Flags of a ScopeInfo: see ScopeFlags in src/objects/scope-info.tq.
const (
	scopeSavedClass  = 1 << 10
	scopeVariable    = 3 << 12 // the scope has the function's name
	scopeInferred    = 1 << 14 // the scope has a name inferred from the assignment
	maxInlinedLocals = 75
	maxLocals        = 1 << 16
)

// Indexes of words of a ScopeInfo after the map.
const (
	scopeFlags, scopeLocals, scopeStart = 0, 2, 3
	// scopeFirstWithStart is the index of the first optional word from 12.8 on, where the
	// function's start comes before the optional words.
	scopeFirstWithStart = 5
)

// shared reads the SharedFunctionInfo with the given identity, and its words.
func (h *heap) shared(id runtimes.Identity) (words, error) {
	b, err := h.typed(id.Address+1, h.sharedSize(), h.layout.shared)
	if err != nil {
		return nil, err
	}
	check, err := h.check(b)
	if err != nil {
		return nil, err
	}
	if check != id.Check {
		return nil, fmt.Errorf("%w: another function is at its address", errLayout)
	}
	return b, nil
}

// sharedSize returns the number of bytes to read of a SharedFunctionInfo.
func (l *layout) sharedSize() int { return int(l.kernel.SharedNumbers) + numbersSize }

// check returns the check of a SharedFunctionInfo. It must match v8_frame() of bpf/v8.h.
func (h *heap) check(shared words) (uint32, error) {
	n := int(h.kernel.SharedNumbers)
	script := shared.at(h.sharedScript)
	id := make(words, word)
	if err := h.memory.Read(id, script-1+uint64(h.kernel.ScriptId)); err != nil {
		return 0, err
	}
	return runtimes.Hash(shared.at(n), shared.at(n+word), script, id.at(0)), nil
}

// read reads the function with the given identity.
func (r *reader) read(id runtimes.Identity) (*function, error) {
	shared, err := r.shared(id)
	if err != nil {
		return nil, err
	}
	f := &function{identity: id, code: runtimes.Code{Kind: bpf.RuntimeV8}}
	name, start, err := r.name(shared.at(r.sharedName))
	if err != nil {
		return nil, err
	}
	// The name of an exported function of WebAssembly is its index. V8 shows it as here.
	switch is, err := r.typeOf(shared.at(r.sharedData)); {
	case !answered(err):
		return nil, err
	case err == nil && is == r.wasmExport:
		name = "wasm-function[" + name + "]"
	}
	f.code.Name = name
	s, err := r.script(shared.at(r.sharedScript))
	if !answered(err) {
		return nil, err
	}
	if err == nil {
		f.code.File, f.lines = s.file, s.lines
		f.code.FirstLine = s.lines.at(start)
	}
	// If nothing has moved in the meantime, all parts belong to one function.
	again, err := r.shared(id)
	if err != nil {
		return nil, err
	}
	if !slices.Equal(shared, again) {
		return nil, fmt.Errorf("%w: the function changed", errLayout)
	}
	return f, nil
}

// name returns the name of a function and its start in the source, in characters, or -1. of
// is a pointer to the name or to the function's ScopeInfo.
func (r *reader) name(of uint64) (name string, start int, err error) {
	if !isObject(of) {
		return anonymous, noPosition, nil // a small integer in place of a name
	}
	is, err := r.typeOf(of)
	if err != nil {
		return "", 0, err
	}
	if is < r.nonString {
		name, err = r.shortText(of, maxName)
		if name == "" {
			name = anonymous
		}
		return name, noPosition, err
	}
	return r.scopeName(of)
}

// scopeName returns the name and the start of a function in its ScopeInfo, whose layout is in
// src/objects/scope-info.tq.
func (r *reader) scopeName(scope uint64) (name string, start int, err error) {
	head, err := r.typed(scope, word*(1+r.scopeFirst), r.scopeInfo)
	if err != nil {
		return "", 0, err
	}
	// Up to 12.7 a small integer, later the lower half of the word.
	flags := head.uint32(word * (1 + scopeFlags))
	if r.scopeFirst < scopeFirstWithStart {
		flags = head.uint32(word*(1+scopeFlags) + 4)
	}
	locals, ok := smi(head.at(word * (1 + scopeLocals)))
	if !ok || locals < 0 || locals > maxLocals {
		return "", 0, errLayout
	}
	at := r.scopeFirst + 2*locals
	if locals >= maxInlinedLocals {
		at = r.scopeFirst + 1 + locals // a table has the names
	}
	if flags&scopeSavedClass != 0 {
		at++
	}
	end := scope + uint64(word*(1+at))
	rest, err := r.heap.read(end, 5*word)
	if err != nil {
		return "", 0, err
	}
	next, candidates := 0, []uint64(nil)
	if flags&scopeVariable != 0 {
		candidates = append(candidates, rest.at(0))
		next += 2
	}
	if flags&scopeInferred != 0 {
		candidates = append(candidates, rest.at(word*next))
		next++
	}
	for _, c := range candidates {
		if !isObject(c) {
			continue // no name
		}
		is, err := r.typeOf(c)
		if !answered(err) {
			return "", 0, err
		}
		if err != nil || is >= r.nonString {
			continue
		}
		if name, err = r.shortText(c, maxName); err != nil {
			return "", 0, err
		}
		if name != "" {
			break
		}
	}
	if name == "" {
		name = anonymous
	}
	if err := errors.Join(r.still(scope, head), r.still(end, rest)); err != nil {
		return "", 0, err
	}
	position := head.at(word * (1 + min(scopeStart, r.scopeFirst-1)))
	if r.scopeFirst < scopeFirstWithStart {
		position = rest.at(word * next)
	}
	start, ok = smi(position)
	if !ok || start < 0 {
		start = noPosition
	}
	return name, start, nil
}

// shortText returns a string. It truncates a string of more than limit characters and marks
// it.
func (r *reader) shortText(object uint64, limit int) (string, error) {
	s, err := r.text(object, limit+1)
	if runes := []rune(s); len(runes) > limit {
		s = string(runes[:limit]) + runtimes.Cut
	}
	return s, err
}

// script is a cached Script.
type script struct {
	file  string
	lines lines
}

// script returns a Script.
func (r *reader) script(object uint64) (script, error) {
	b, err := r.typed(object, maxScript, r.layout.script)
	if err != nil {
		return script{}, err
	}
	key := scriptKey{object: object}
	copy(key.contents[:], b)
	if s, ok := r.scripts[key]; ok {
		return s, nil
	}
	var s script
	if s.file, err = r.shortText(b.at(r.scriptName), maxFile); !answered(err) {
		return script{}, err
	} else if err != nil {
		s.file = "" // code of eval() has no name
	}
	s.file = path(s.file)
	if s.lines, err = r.lines(b); err != nil {
		return script{}, err
	}
	if err := r.still(object, b); err != nil {
		return script{}, err
	}
	r.keep(4 * len(s.lines))
	r.scripts[key] = s
	return s, nil
}

// path returns the path of a file URL, the name of modules; other names are unchanged.
func path(name string) string {
	rest, ok := strings.CutPrefix(name, "file://")
	if !ok {
		return name
	}
	if p, err := url.PathUnescape(rest); err == nil {
		return strings.ToValidUTF8(p, string(utf8.RuneError))
	}
	return name
}

// lines returns the ends of lines of a Script, either as V8 computed them or from its text.
// They are nil if it has neither.
func (r *reader) lines(script words) (lines, error) {
	ends, err := r.array(script.at(r.scriptLineEnds), word, word*maxLines, r.fixedArray)
	if !answered(err) {
		return nil, err
	}
	if err == nil && len(ends) > 0 {
		l := make(lines, len(ends)/word)
		for i := range l {
			l[i] = binary.LittleEndian.Uint32(ends[i*word+4:])
		}
		if slices.IsSorted(l) {
			return l, nil
		}
	}
	text, err := r.text(script.at(r.scriptSource), maxSource)
	if !answered(err) {
		return nil, err
	}
	if err != nil {
		return nil, nil //nolint:nilerr // there is no text
	}
	return lineEnds(text), nil
}

const (
	maxLines     = 1 << 20
	maxPositions = 1 << 20 // bytes of a source position table
)

// bytecode returns the source position table of a function's bytecode. data is the word of
// its SharedFunctionInfo that points to the bytecode, or to code or data that lead to it.
func (r *reader) bytecode(data uint64) ([]byte, error) {
	is, err := r.typeOf(data)
	if err != nil {
		return nil, err
	}
	if is != r.bytecodes {
		return nil, errLayout
	}
	at := bytecodePositions
	if r.bytecodeWrapper >= 0 {
		at = bytecodePositionsWrapped
	}
	b, err := r.typed(data, at+word, r.bytecodes)
	if err != nil {
		return nil, err
	}
	return r.array(b.at(at), 1, maxPositions, r.byteArray, r.trustedByteArray)
}

// Offsets of the source position table in a BytecodeArray, without a wrapper (up to 12.3) and
// with one: see src/objects/code.tq and bytecode-array.h. The table's type is checked.
const (
	bytecodePositions        = 32
	bytecodePositionsWrapped = 24
)
