package events

import (
	"errors"
	"fmt"
	"strings"

	"fulgur/internal/message/usage"
	"fulgur/internal/symbols/elffile"
	"fulgur/internal/symbols/gocode"
	"fulgur/internal/symbols/symbolize"
)

// goCalls adds the points of calls of Go functions: their entries, after the check of the stack,
// or for a uretprobe their return instructions. It refuses functions whose returns are in doubt,
// and leaves them out of patterns.
func (p *Probe) goCalls(f *elffile.File, file int, found []function, q Query) error {
	if err := gocode.CheckVersion(f); err != nil {
		return usage.Errorf("%s: %v", p.Event, err)
	}
	codes, err := goCodes(f, found)
	if err != nil {
		return usage.Errorf("%s: %v", p.Event, err)
	}
	for _, fn := range found {
		calls, err := goCallsOf(f, fn, codes[fn.addr])
		if err != nil && IsGlob(p.Event.Name) {
			p.LeaveOut(fn.name, err.Error())
			continue
		}
		if err != nil {
			return usage.Errorf("%s: %v", p.Event, err)
		}
		places := calls.Returns
		if p.Event.Kind == Uprobe {
			places = []uint64{calls.Entry}
		}
		for _, at := range places {
			point := Point{Name: fn.name, File: file, Address: fn.offset + at}
			if err := p.add(point, q, goCall{returning: p.Event.Kind == Uretprobe}, IsGlob(p.Event.Name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// goCodes returns the entries of functions in Go's table, by address; zero for others.
func goCodes(f *elffile.File, found []function) (map[uint64]symbolize.GoFunction, error) {
	codes := make(map[uint64]symbolize.GoFunction, len(found))
	for _, fn := range found {
		codes[fn.addr] = symbolize.GoFunction{}
	}
	err := symbolize.GoFunctions(f, func(c symbolize.GoFunction) bool {
		if _, ok := codes[c.Start]; ok {
			codes[c.Start] = c
		}
		return true
	})
	return codes, err
}

// goEntries adds the entries of functions of a Go program, which can also contain C code. Those
// of compiled functions are after the check of the stack: if the stack is too small, Go executes
// the function again from its start.
func (p *Probe) goEntries(f *elffile.File, file int, found []function, q Query) error {
	codes, err := goCodes(f, found)
	if err == nil {
		err = gocode.CheckVersion(f)
	}
	times := map[string]int{}
	for _, fn := range found {
		times[fn.name]++
	}
	for _, fn := range found {
		at, code := p.Event.Offset, codes[fn.addr]
		var fields Fields = goCall{}
		switch {
		case err != nil:
			fields = noFields{err}
		case code.Start == 0:
			fields = call{}
		case code.Assembly:
			fields = noFields{errors.New("the place of the arguments of a function in assembly is unknown")}
		case strings.HasSuffix(fn.name, ".abi0") || times[fn.name] > 1:
			fields = noFields{errors.New("it can be a wrapper, whose arguments are not in registers")}
		}
		if at == 0 && code.Start != 0 && !code.Assembly {
			text, err := f.Bytes(int64(fn.offset), min(code.End-code.Start, gocode.Prologue), "function")
			if err != nil {
				return usage.Errorf("%s: %v", p.Event, err)
			}
			at = gocode.AfterStackCheck(f.Machine(), text)
		}
		point := Point{Name: fn.name, File: file, Address: fn.offset + at}
		if err := p.add(point, q, fields, IsGlob(p.Event.Name)); err != nil {
			return err
		}
	}
	return nil
}

// goCall has the words of the arguments of a compiled Go function that are in integer registers, or the
// first word of its results.
type goCall struct{ returning bool }

// Number implements [Fields].
func (c goCall) Number(name string) (Field, error) {
	index, ok := argument(name)
	switch {
	case c.returning && name != retval:
		return Field{}, unknownField(name, []string{retval})
	case c.returning:
		index = 0
	case !ok || index >= len(goRegisters):
		return Field{}, unknownField(name, []string{fmt.Sprintf("arg0 to arg%d", len(goRegisters)-1)})
	}
	return Field{Offset: goRegisters[index], Size: 8, IsSigned: 1}, nil
}

// Text implements [Fields].
func (goCall) Text(name string) (Field, error) {
	return Field{}, fmt.Errorf("field %s cannot be compared with a string: Go's strings have no NUL at their end; their length is the next field", name)
}

// Shown implements [Fields]. The types of arguments are unknown.
func (goCall) Shown() []Shown { return nil }

// noFields is the fields of a function whose arguments cannot be read, with the reason.
type noFields struct{ reason error }

// Number implements [Fields].
func (n noFields) Number(string) (Field, error) { return Field{}, n.reason }

// Text implements [Fields].
func (n noFields) Text(string) (Field, error) { return Field{}, n.reason }

// Shown implements [Fields].
func (noFields) Shown() []Shown { return nil }

// goFunctions returns the matching functions in Go's own table, which stripped programs have, too.
// It leaves out functions with names of 64 bytes or more.
func (p *Probe) goFunctions(f *elffile.File, similar *nearest) (found []function, err error) {
	err = symbolize.GoFunctions(f, func(fn symbolize.GoFunction) bool {
		name := string(fn.Name)
		if name == "" {
			return true
		}
		if !Match(p.Event.Name, name) {
			similar.add(name)
			return true
		}
		if offset, ok := f.Offset(fn.Start); ok {
			found = append(found, function{name, offset, fn.Start, fn.End - fn.Start})
		}
		return len(found) < maxFunctions
	})
	if err != nil {
		return nil, usage.Errorf("%s: %v", p.Event, err)
	}
	return found, nil
}

// goCallsOf returns the places of a function. The error is the reason if they are in doubt.
func goCallsOf(f *elffile.File, fn function, code symbolize.GoFunction) (c gocode.Calls, err error) {
	switch size := code.End - code.Start; {
	case code.Start == 0:
		return c, errors.New("it is not a Go function, in a Go program")
	case code.Assembly:
		return c, errors.New("the end of a function in assembly is unknown")
	case size > maxFunction:
		return c, fmt.Errorf("the function has %d bytes, more than %d", size, maxFunction)
	default:
		text, err := f.Bytes(int64(fn.offset), size, "function")
		if err != nil {
			return c, err
		}
		if c, err = gocode.Find(f.Machine(), text); err != nil {
			return c, fmt.Errorf("the end of its calls is unknown: %w", err)
		}
		return c, nil
	}
}
