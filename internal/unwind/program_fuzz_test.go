package unwind

import (
	"testing"

	"fulgur/internal/symbols/elffile/elftest"
)

// FuzzProgramTable compiles the .eh_frame of whole programs. The rules of an
// undamaged one must be the generator's; the table of a damaged one must be one
// that a walker without checks of its own can use, and no larger than its source
// allows.
func FuzzProgramTable(f *testing.F) {
	f.Add([]byte{})
	for seed := byte(1); seed < 8; seed++ {
		data := make([]byte, 900)
		for i := range data {
			data[i] = byte(i*i)*seed + seed
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 4096 {
			return // more decisions than a program has
		}
		p := elftest.NewProgram(elftest.NewChoices(data))
		file, err := elffileOf(t, p.Bytes)
		if err != nil {
			if !p.Damaged {
				t.Fatal(err)
			}
			return
		}
		table, err := Compile(file, Options{Workers: 1})
		if err != nil {
			if !p.Damaged {
				t.Fatal(err)
			}
			return
		}
		checkTable(t, table)
		// Each byte of a program of call frame information makes one row at
		// most, and each FDE two more.
		if limit := 2*len(p.Bytes) + 10; len(table.Rows) > limit+len(table.Blocks) {
			t.Fatalf("%d rows of a file of %d bytes", len(table.Rows), len(p.Bytes))
		}
		for addr := uint64(elftest.ProgramCode); addr < p.CodeEnd; addr++ {
			rule := table.Lookup(addr)
			_ = rule.String()
			if !p.Damaged {
				checkRule(t, addr, rule, p.Rules)
			}
		}
	})
}

// checkRule compares a rule with the one that the generator wrote for addr.
func checkRule(t *testing.T, addr uint64, got Rule, rules []elftest.FrameRule) {
	t.Helper()
	var want elftest.FrameRule
	for _, r := range rules {
		if r.Addr <= addr {
			want = r
		}
	}
	kind := KindSP
	if want.ByFP {
		kind = KindFP
	}
	saved := 0
	if got.FPSlot == SlotCFA {
		saved = -int(got.FP)
	}
	if got.Kind != kind || int(got.CFA) != want.CFA || got.RASlot != SlotCFA || got.RA != -8 || saved != want.SavedFP {
		t.Fatalf("%#x: rule %v, want %+v", addr, got, want)
	}
}
