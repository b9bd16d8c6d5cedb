package events

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"fulgur/internal/message/usage"
	"fulgur/internal/symbols/elffile"
	"fulgur/internal/symbols/returns"
)

// compiledCalls adds the points of calls of functions that are not Go's: their entries, or for a
// uretprobe their returns. It refuses functions whose returns are in doubt, and leaves them out of
// patterns.
func (p *Probe) compiledCalls(f *elffile.File, file int, found []function, q Query) error {
	traits := traitsOf(p.tables[file])
	p.OtherRegisters = p.OtherRegisters || traits.otherRegisters
	finder := returns.Finder{
		File:    f,
		Symbols: p.tables[file],
		Follow:  func(address uint64) bool { return q.Calls || traits.isPart(address) },
		Parts:   traits.partsOf,
	}
	seen := map[uint64]bool{}
	for _, fn := range found {
		places, err := finder.Find(fn.addr)
		replaced := false
		if err != nil {
			err = fmt.Errorf("the end of its calls is unknown: %w", err)
			if p.uretprobes {
				places, replaced, err = []uint64{fn.addr}, p.Event.Kind == Uretprobe, traits.checkUretprobe(fn.addr)
			}
		}
		switch {
		case err != nil && IsGlob(p.Event.Name):
			p.LeaveOut(fn.name, err.Error())
			continue
		case err != nil && !p.uretprobes:
			return usage.Errorf("%s: %v; %s measures it nevertheless, but can end the program", p.Event, err, usage.Uretprobes)
		case err != nil:
			return usage.Errorf("%s: %v", p.Event, err)
		case p.Event.Kind == Uprobe:
			places = []uint64{fn.addr}
		}
		for _, at := range places {
			if q.Calls && seen[at] {
				continue // a function that several call last
			}
			seen[at] = true
			offset, ok := f.Offset(at)
			if !ok {
				return usage.Errorf("%s: no code in the file at %#x", p.Event, at)
			}
			point := Point{Name: fn.name, File: file, Address: offset, Replaced: replaced}
			if err := p.add(point, q, call{returning: p.Event.Kind == Uretprobe}, IsGlob(p.Event.Name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// traits are what the symbols of a file tell about the calls of its functions.
type traits struct {
	// otherRegisters is set if functions may not preserve the registers that functions in C preserve.
	otherRegisters bool
	unsafe         map[uint64]error // why functions cannot have a uretprobe, by address
	parts          map[uint64]bool  // addresses of the parts of functions; see isPart
	// split are the parts of functions by the names of the functions, and whole the functions by these
	// names. names are these names of functions and parts, by address.
	split, whole map[string][]uint64
	names        map[uint64]string
}

// otherRegisters are symbols of files with functions that do not preserve the registers that functions in C
// preserve: those of OCaml, V8 and Swift.
var otherRegisters = map[string]bool{"caml_startup": true, "Builtins_JSEntry": true, "swift_retain": true}

// Reasons why a function cannot have a uretprobe.
var (
	errKeepsAddress = errors.New("it keeps its return address for a later jump: a uretprobe, which replaces this address, would crash the program")
	errFindsCaller  = errors.New("it finds its caller by the return address, which a uretprobe replaces")
)

// addressUsers are functions of C libraries.
var addressUsers = map[string]error{
	"setjmp": errKeepsAddress, "_setjmp": errKeepsAddress, "__setjmp": errKeepsAddress,
	"sigsetjmp": errKeepsAddress, "__sigsetjmp": errKeepsAddress,
	"getcontext": errKeepsAddress, "swapcontext": errKeepsAddress,
	"dlopen": errFindsCaller, "dlmopen": errFindsCaller, "dlsym": errFindsCaller, "dlvsym": errFindsCaller,
	"backtrace": errFindsCaller,
}

func newTraits() *traits {
	return &traits{
		unsafe: map[uint64]error{}, parts: map[uint64]bool{},
		split: map[string][]uint64{}, whole: map[string][]uint64{}, names: map[uint64]string{},
	}
}

// traitsOf reads the symbols of a file.
func traitsOf(tables elffile.Tables) *traits {
	t := newTraits()
	each := func(do func(name string, address uint64)) {
		_ = tables.Each(func(sym elffile.Symbol, name func() []byte) bool { // what was read so far counts
			do(string(name()), sym.Value)
			return len(t.parts) < maxFunctions
		})
	}
	each(t.add)
	if len(t.split) > 0 {
		each(t.addWhole)
	}
	return t
}

// add considers a symbol, defined or not.
func (t *traits) add(name string, address uint64) {
	name, _, _ = strings.Cut(name, "@") // the version
	t.otherRegisters = t.otherRegisters || otherRegisters[name]
	if address == 0 {
		return
	}
	if err, ok := addressUsers[name]; ok {
		t.unsafe[address] = err
	}
	if strings.Contains(name, ".cold") && isPart(name) {
		t.parts[address] = true
		of := part.ReplaceAllString(name, "")
		t.split[of] = appendNew(t.split[of], address)
		t.names[address] = of
	}
}

// addWhole considers a symbol after all parts are known.
func (t *traits) addWhole(name string, address uint64) {
	name, _, _ = strings.Cut(name, "@")
	if address != 0 && t.split[name] != nil {
		t.whole[name] = appendNew(t.whole[name], address)
		t.names[address] = name
	}
}

// maxSplit limits the parts of a function, or the functions with its name, in a list. Package returns refuses
// functions with so many parts.
const maxSplit = 100

// appendNew appends an address unless the list has it.
func appendNew(list []uint64, address uint64) []uint64 {
	if len(list) == maxSplit || slices.Contains(list, address) {
		return list
	}
	return append(list, address)
}

// checkUretprobe returns an error if the function at an address needs its own return address.
func (t *traits) checkUretprobe(address uint64) error { return t.unsafe[address] }

// partsOf returns the parts of the function to which the code at an address belongs. It returns false if several
// functions have its name.
func (t *traits) partsOf(address uint64) ([]uint64, bool) {
	name := t.names[address]
	return t.split[name], len(t.whole[name]) < 2
}

// isPart reports whether a part of a function is at an address.
func (t *traits) isPart(address uint64) bool { return t.parts[address] }
