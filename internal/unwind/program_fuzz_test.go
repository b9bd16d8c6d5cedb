package unwind

import (
	"testing"

	"fulgur/internal/symbols/elffile/elftest"
)

// FuzzProgramTable compiles the .eh_frame of generated programs. For an undamaged
// program, the rules must be the generator's. For a damaged one, a walker without checks
// must be able to use the table, and the table's size must be bounded by the file's.
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
			return // more choices than a program uses
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
		// Each byte of call frame instructions makes at most one row, and each FDE two
		// more.
		if limit := 2*len(p.Bytes) + 10; len(table.Rows) > limit+len(table.Blocks) {
			t.Fatalf("got %d rows from a file of %d bytes", len(table.Rows), len(p.Bytes))
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

// checkRule compares a rule with the generator's for addr.
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
		t.Fatalf("%#x: got rule %v, want %+v", addr, got, want)
	}
}
