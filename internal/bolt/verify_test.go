package bolt_test

import (
	"debug/elf"
	"errors"
	"iter"
	"os"
	"strings"
	"testing"

	"fulgur/internal/bolt"
	"fulgur/internal/symbols/disasm"
	"fulgur/internal/symbols/elffile"
	"fulgur/internal/testenv"
)

// openSelf opens the test itself.
func openSelf(t *testing.T) *elffile.File {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	f, err := elffile.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// sources returns a trace for every branch instruction at the beginning of .text of f.
func sources(t *testing.T, f *elffile.File, c *bolt.Code) []bolt.Trace {
	t.Helper()
	text := f.Section(".text")
	var traces []bolt.Trace
	for at := text.Addr; at < text.Addr+min(text.Size, 64<<10); {
		size, flow, _, err := c.Step(at)
		if err != nil {
			t.Fatal(err)
		}
		if flow != disasm.Straight {
			traces = append(traces, bolt.Trace{From: at, To: text.Addr, Count: 3})
		}
		at += uint64(size)
	}
	return traces
}

func all(traces []bolt.Trace) iter.Seq2[bolt.Trace, error] {
	return func(yield func(bolt.Trace, error) bool) {
		for _, t := range traces {
			if !yield(t, nil) {
				return
			}
		}
	}
}

// Branches of the same code are accepted, even with a few wrong ones. Branches of other code
// are detected.
func TestVerify(t *testing.T) {
	f := openSelf(t)
	b, err := bolt.NewBinary(f)
	if err != nil {
		t.Fatal(err)
	}
	c := bolt.NewCode(f)
	right := sources(t, f, c)
	if len(right) < 20 {
		t.Fatalf("got only %d branches", len(right))
	}
	if err := c.Verify(b, all(right)); err != nil {
		t.Errorf("same code: got error %v", err)
	}
	// Interrupts enter the kernel from any instruction.
	text := f.Section(".text").Addr
	if err := c.Verify(b, all(append(right, bolt.Trace{From: text + 1, Count: 1000}, bolt.Trace{From: bolt.NoBranch, To: text, End: text, Count: 1000}))); err != nil {
		t.Errorf("with interrupts: got error %v", err)
	}
	outside := bolt.Trace{From: 1, To: text, Count: 9}
	if err := c.Verify(b, all(append(right, outside))); err != nil {
		t.Errorf("a few others: got error %v", err)
	}
	outside.Count = 1000
	err = c.Verify(b, all(append(right, outside)))
	if other := new(bolt.OtherCodeError); !errors.As(err, &other) || other.Wrong != 1000 || !strings.Contains(err.Error(), "is not the code that ran") {
		t.Errorf("other code: got error %v", err)
	}
	wrong := errors.New("cut short")
	if err := c.Verify(b, func(yield func(bolt.Trace, error) bool) { yield(bolt.Trace{}, wrong) }); !errors.Is(err, wrong) {
		t.Errorf("got error %v, want %v", err, wrong)
	}
}

// A source that is fused with the branch after it counts as a branch.
func TestVerifyFused(t *testing.T) {
	f := openSelf(t)
	if f.Machine() != elf.EM_X86_64 {
		testenv.Unsupported(t, "instructions are not fused")
	}
	b, err := bolt.NewBinary(f)
	if err != nil {
		t.Fatal(err)
	}
	c := bolt.NewCode(f)
	var fused []bolt.Trace
	for _, trace := range sources(t, f, c) {
		for before := trace.From - 5; before < trace.From; before++ {
			if size, flow, known, err := c.Step(before); err == nil && known && flow == disasm.Straight && before+uint64(size) == trace.From {
				fused = append(fused, bolt.Trace{From: before, To: trace.To, Count: 100})
				break
			}
		}
	}
	if err := c.Verify(b, all(fused)); err != nil || len(fused) < 10 {
		t.Errorf("got error %v for %d branches", err, len(fused))
	}
}
