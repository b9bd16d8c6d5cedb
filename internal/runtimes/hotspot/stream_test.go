package hotspot

import (
	"encoding/binary"
	"slices"
	"testing"
)

// encode appends a number as HotSpot does.
func encode(b []byte, n uint32, excludes byte) []byte {
	limit := uint32(192) - uint32(excludes)
	for range 4 {
		if n < limit {
			break
		}
		n -= limit
		b = append(b, byte(limit+uint32(excludes)+n%64))
		n /= 64
	}
	return append(b, byte(n)+excludes)
}

func TestUnsigned(t *testing.T) {
	for _, version := range []int{17, 21} {
		excludes := newStream(nil, version).excludes
		var b []byte
		numbers := []uint32{0, 1, 190, 191, 192, 255, 256, 12345, 1 << 20, 1<<32 - 1}
		for _, n := range numbers {
			b = encode(b, n, excludes)
		}
		s := newStream(b, version)
		for _, want := range numbers {
			if got := s.unsigned(); got != want || s.failed {
				t.Errorf("java %d: got %d, failed %t, want %d", version, got, s.failed, want)
			}
		}
		if s.unsigned(); !s.failed {
			t.Errorf("java %d: a number after the end", version)
		}
	}
}

func TestLine(t *testing.T) {
	// Bytecode 0 is on line 10, 5 on 12, 100 on 3, and 101 on 4.
	for version, table := range map[int][]byte{17: nil, 25: nil} {
		excludes := newStream(nil, version).excludes
		zigzag := func(n int) uint32 { return uint32(n<<1) ^ uint32(n>>31) }
		table = append(table, 0xff)
		table = encode(encode(table, zigzag(0), excludes), zigzag(10), excludes)
		table = append(table, 5<<3|2, 0xff)
		table = encode(encode(table, zigzag(95), excludes), zigzag(-9), excludes)
		table = append(table, 1<<3|1, 0, 1<<3|7)
		for bci, want := range map[int]int{0: 10, 4: 10, 5: 12, 99: 12, 100: 3, 101: 4, 500: 4} {
			if got := readLines(table, version).at(bci); got != want {
				t.Errorf("java %d: line %d of bytecode %d, want %d", version, got, bci, want)
			}
		}
	}
	if got := lines(nil).at(5); got != 0 {
		t.Errorf("line %d without a table", got)
	}
}

func TestScopes(t *testing.T) {
	var pcs []byte
	for _, row := range [][2]int32{{-1, 0}, {10, 1}, {20, 5}, {1 << 30, 0}} {
		pcs = binary.LittleEndian.AppendUint32(pcs, uint32(row[0]))
		pcs = binary.LittleEndian.AppendUint32(pcs, uint32(row[1]))
		pcs = append(pcs, make([]byte, 8)...)
	}
	for offset, want := range map[int64]int{0: 1, 9: 1, 10: 5, 19: 5, 20: 0, 1 << 40: 0} {
		if got := scopeAt(pcs, offset); got != want {
			t.Errorf("scope %d at offset %d, want %d", got, offset, want)
		}
	}
	// The scope at 5 is inlined into the one at 1.
	data := []byte{0xff, 0, 7, 4, 0xff, 1, 8, 9}
	if got, want := scopes(data, 17, 5), []scope{{8, 8}, {7, 3}}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	cycle := []byte{0xff, 1, 7, 4}
	if got := scopes(cycle, 17, 1); got != nil {
		t.Errorf("got %d scopes of a cycle, want none", len(got))
	}
}

// Arbitrary bytes yield a bounded result.
func FuzzStreams(f *testing.F) {
	f.Add([]byte{0xff, 0, 7, 4, 0xff, 1, 8, 9}, 5, true)
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, 1, false)
	f.Fuzz(func(t *testing.T, b []byte, at int, old bool) {
		version := 25
		if old {
			version = 17
		}
		if got := scopes(b, version, at); len(got) > maxScopes {
			t.Errorf("%d scopes", len(got))
		}
		if got := readLines(b, version).at(at); got < 0 || got > 1<<16 {
			t.Errorf("line %d", got)
		}
		scopeAt(b, int64(at))
	})
}

func TestClassName(t *testing.T) {
	for internal, want := range map[string]string{
		"java/util/Map$Entry":                              "java.util.Map$Entry",
		"T$$Lambda$14+0x0000000800c03000":                  "T$$Lambda",
		"T$$Lambda+0x00007f1234567890":                     "T$$Lambda",
		"java/lang/invoke/LambdaForm$DMH+0x00007f00001000": "java.lang.invoke.LambdaForm$DMH",
		"T$1": "T$1",
	} {
		if got := className(internal); got != want {
			t.Errorf("%s is %s, want %s", internal, got, want)
		}
	}
}
