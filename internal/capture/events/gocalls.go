package events

import (
	"errors"
	"fmt"

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
			if err := p.add(point, q, call{returning: p.Event.Kind == Uretprobe}, IsGlob(p.Event.Name)); err != nil {
				return err
			}
		}
	}
	return nil
}

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
		return c, errors.New("it is not a Go function, and a uretprobe would crash the Go program")
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
