package bolt

import (
	"debug/elf"
	"errors"
	"fmt"
	"iter"

	"fulgur/internal/symbols/disasm"
)

const (
	// maxWrongShare is the share of branches that may start somewhere other than at a branch
	// instruction. Processors and kernels produce a few such records.
	maxWrongShare = 0.01
	// maxWrongKernel is the same for the kernel, which patches its own code (static keys,
	// alternatives), and where interrupts branch from anywhere. If a different kernel ran,
	// more than 30 % of the branches are wrong.
	maxWrongKernel = 0.1
	// minWrong is the number of such branches below which their share is not significant.
	minWrong = 10
	// fusedBytes bounds the distance from a reported address to the branch instruction: AMD's
	// processors may report an instruction that is fused with the branch after it
	// (branch_type_fused in the kernel's arch/x86/events/utils.c).
	fusedBytes = longestX86
)

// OtherCodeError reports that branches were recorded in code that differs from the file's.
type OtherCodeError struct {
	// Name is the file's name, and BuildID its build ID or "".
	Name, BuildID string
	// Wrong is the number of branches that start where the file has no branch instruction,
	// and Branches the number of all branches.
	Wrong, Branches uint64
}

// Error implements error.
func (e *OtherCodeError) Error() string {
	id := "it has no build ID to check"
	if e.BuildID != "" {
		id = "although build ID " + e.BuildID + " may be the same"
	}
	return fmt.Sprintf("%s is not the code that ran (%s): %.0f %% of the recorded branches start where it has no branch instruction; use the file that ran",
		e.Name, id, 100*share(e.Wrong, e.Branches))
}

// Verify checks that traces of b, sorted by From, were recorded in this code: that they start
// at branch instructions. It reads all of them. The error is an [OtherCodeError] if more than
// 1 % do not, or 10 % in a kernel. Verify does not check code of machines without a decoder.
func (c *Code) Verify(b *Binary, traces iter.Seq2[Trace, error]) error {
	e := &OtherCodeError{Name: b.Name, BuildID: b.BuildID}
	var last uint64 // the last source
	wrong := false
	for t, err := range traces {
		if err != nil {
			return err
		}
		if t.From == 0 || t.From == NoBranch || t.To == 0 {
			continue // an interrupt enters the kernel from anywhere
		}
		if t.From != last {
			branches, err := c.branches(t.From)
			switch {
			case errors.Is(err, disasm.ErrMachine):
				return nil
			case err != nil && !errors.Is(err, errNoCode):
				return err
			}
			last, wrong = t.From, err != nil || !branches
		}
		e.Branches += t.Count
		if wrong {
			e.Wrong += t.Count
		}
	}
	limit := maxWrongShare
	if b.Kernel() {
		limit = maxWrongKernel
	}
	if e.Wrong >= minWrong && share(e.Wrong, e.Branches) > limit {
		return e
	}
	return nil
}

// branches reports whether the instruction at addr, or one that it may be fused with,
// branches. It reports true for code that cannot be decoded.
func (c *Code) branches(addr uint64) (bool, error) {
	for at := addr; at < addr+fusedBytes; {
		size, flow, known, err := c.Step(at)
		if err != nil {
			return false, err
		}
		if !known || flow != disasm.Straight {
			return true, nil
		}
		if c.file.Machine() != elf.EM_X86_64 {
			break
		}
		at += uint64(size)
	}
	return false, nil
}
