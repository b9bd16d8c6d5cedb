package unwindmap

import (
	"context"
	"os"
	"reflect"
	"testing"

	"fulgur/internal/process"
	"fulgur/internal/unwind"
)

// The code of this process: a Go program, and the vDSO.
func TestCodes(t *testing.T) {
	table := process.NewTable(process.Options{})
	defer table.Close()
	own := uint64(reflect.ValueOf(TestCodes).Pointer())
	maps := table.Mappings(os.Getpid())
	of := func(c *Codes, kind process.Kind, addr uint64) (code unwind.Code, bias uint64, ready bool) {
		for i := range maps {
			if m := &maps[i]; m.Kind == kind && (addr == 0 || addr >= m.Start && addr < m.Limit) {
				return c.Of(m, max(addr, m.Start))
			}
		}
		t.Fatalf("no mapping of kind %v with %#x in %+v", kind, addr, maps)
		return code, 0, false
	}
	c := NewCodes(nil, 1<<30)
	if code, _, ready := of(c, process.KindFile, own); ready {
		t.Errorf("got %+v at once, want to wait for it", code)
	}
	of(c, process.KindVDSO, 0)
	c.Wait(context.Background())
	code, bias, ready := of(c, process.KindFile, own)
	if r := code.Rule(own - bias); !ready || r.Kind != unwind.KindSP || r.CFA != 8 {
		t.Errorf("got ready %v, rule %v at the entry of a Go function", ready, r)
	}
	if code.Fallback != unwind.Chain(unwind.ChainStacks) {
		t.Errorf("got fallback %v of a Go program", code.Fallback)
	}
	if code, _, ready := of(c, process.KindVDSO, 0); !ready || code.Table == nil {
		t.Errorf("vDSO: got %+v, ready %v, want a table", code, ready)
	}
	if code, _, ready := c.Of(&process.Mapping{Kind: process.KindAnon, Start: 1, Limit: 2}, 1); !ready || code != unwind.Generated() {
		t.Errorf("memory without a file: got %+v, ready %v", code, ready)
	}
	if s := c.Stats(); s.Tables != 2 || s.Bytes == 0 || s.Failure != nil {
		t.Errorf("got %+v, want two tables", s)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}

	ahead := NewCodes(nil, 1<<30)
	defer ahead.Close()
	ahead.Prepare(process.Files(maps))
	ahead.Wait(context.Background())
	for _, kind := range []process.Kind{process.KindFile, process.KindVDSO} {
		if _, _, ready := of(ahead, kind, 0); !ready {
			t.Errorf("kind %v: got no table that was made ahead", kind)
		}
	}

	full := NewCodes(nil, -1)
	defer full.Close()
	of(full, process.KindFile, own)
	full.Wait(context.Background())
	if code, _, ready := of(full, process.KindFile, own); !ready || code.Table != nil || full.Stats().NoRoom != 1 {
		t.Errorf("without room: got %+v, ready %v, %+v", code, ready, full.Stats())
	}
}
