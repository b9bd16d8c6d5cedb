package stopping

import (
	"bytes"
	"testing"
)

// Reads give the bytes of memory, across pages, and fail where it ends.
func TestPages(t *testing.T) {
	memory := make([]byte, 100*pageSize+100)
	for i := range memory {
		memory[i] = byte(i / 7)
	}
	calls := 0
	var p pages
	p.begin(func(addr uint64, buf []byte) []byte {
		calls++
		return buf[:copy(buf, memory[min(addr, uint64(len(memory))):])]
	})
	check := func(addr uint64, n int, ok bool) {
		t.Helper()
		buf := make([]byte, n)
		if got := p.read(addr, buf); got != ok || ok && !bytes.Equal(buf, memory[addr:addr+uint64(n)]) {
			t.Errorf("read of %d bytes at %d: got %v, want %v and the memory", n, addr, got, ok)
		}
	}
	check(10, 20, true)
	check(pageSize-3, 8, true)
	check(0, 3*pageSize, true)
	if calls != 3 {
		t.Errorf("got %d reads of 3 pages, want 3", calls)
	}
	for i := range uint64(100) { // more than are kept
		check(i*pageSize+5, 8, true)
	}
	check(uint64(len(memory))-8, 8, true)
	check(uint64(len(memory))-8, 9, false)
	check(1<<40, 1, false)
}
