package unwind

import (
	"fulgur/internal/symbols/callframe"
	"fulgur/internal/symbols/dwarfdata"
)

// cie is the common part of FDEs, with the state that their programs begin in.
type cie struct {
	*callframe.CIE
	initial state
}

// readCIE reads the CIE at offset off and runs its program. It stores an error in Err.
func readCIE(s *callframe.Section, a *arch, off uint64) *cie {
	c := &cie{CIE: s.ReadCIE(off)}
	if c.Err != nil {
		return c
	}
	m := machine{arch: a, cie: c, size: 1, emit: func(uint64, *Rule) {}}
	if !m.run(&dwarfdata.Reader{Data: c.Program.Data}, c.Program.Addr, 0) {
		c.Err = s.Errorf(off, "CIE with a damaged program")
		return c
	}
	c.initial = m.state
	return c
}
