package procfs

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const mapsText = `55d0c6a00000-55d0c6a02000 r--p 00000000 08:01 1234                       /usr/bin/true
55d0c6a02000-55d0c6a06000 r-xp 00002000 08:01 1234                       /usr/bin/true
7f0000000000-7f0000001000 rwxp 00000000 00:00 0 
7f0000002000-7f0000003000 r-xp 00001000 fe:00 99                         /tmp/a b\012c (deleted)
7ffd00000000-7ffd00002000 r-xp 00000000 00:00 0                          [vdso]
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
`

func TestParseMaps(t *testing.T) {
	want := []Map{
		{Start: 0x55d0c6a02000, Limit: 0x55d0c6a06000, Offset: 0x2000, Maj: 8, Min: 1, Ino: 1234, Name: "/usr/bin/true", Executable: true},
		{Start: 0x7f0000000000, Limit: 0x7f0000001000, Executable: true, Writable: true},
		{Start: 0x7f0000002000, Limit: 0x7f0000003000, Offset: 0x1000, Maj: 0xfe, Ino: 99, Name: "/tmp/a b\nc (deleted)", Executable: true},
		{Start: 0x7ffd00000000, Limit: 0x7ffd00002000, Name: "[vdso]", Executable: true},
		{Start: 0xffffffffff600000, Limit: 0xffffffffff601000, Name: "[vsyscall]", Executable: true},
	}
	got, err := ParseMaps([]byte(mapsText))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestParseAllMaps(t *testing.T) {
	got, err := parseMaps([]byte("1000-2000 rw-p 0 0:0 0\n2000-3000 r-xs 0 0:0 0\n3000-4000 -wxp 0 0:0 0\n4000-5000 ---p 0 0:0 0\n"), true)
	want := []Map{
		{Start: 0x1000, Limit: 0x2000, Writable: true},
		{Start: 0x2000, Limit: 0x3000, Executable: true},
		{Start: 0x3000, Limit: 0x4000, Writable: true, Executable: true},
		{Start: 0x4000, Limit: 0x5000},
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Error(err, diff)
	}
}

func TestParseMapsMalformed(t *testing.T) {
	for _, s := range []string{
		"\n", "x", "1000-2000", "1000-2000 r-x", "1000-2000 r-xp 0 08:01",
		"2000-1000 r-xp 0 08:01 1", "1000-2000 r-xp 0 0801 1", "1000-2000 r-xp 0 08:01 x",
		"3000-4000 r-xp 0 0:0 0\n1000-2000 r-xp 0 0:0 0", "10000000000000000-2 r-xp 0 0:0 0",
	} {
		if maps, err := ParseMaps([]byte(s)); err == nil {
			t.Errorf("ParseMaps(%q): got %v, want an error", s, maps)
		}
	}
}

func TestParseOwnMaps(t *testing.T) {
	b, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	if maps, err := ParseMaps(b); err != nil || len(maps) == 0 {
		t.Errorf("this process: got %v, %v; want mappings", maps, err)
	}
}

func FuzzParseMaps(f *testing.F) {
	f.Add([]byte(mapsText))
	f.Add([]byte("1000-2000 r-xp 0 0:0 0"))
	f.Fuzz(func(t *testing.T, b []byte) {
		maps, err := ParseMaps(b)
		if err != nil {
			return
		}
		for i, m := range maps {
			if m.Start >= m.Limit || i > 0 && m.Start < maps[i-1].Limit {
				t.Errorf("got overlapping or empty ranges: %v", maps)
			}
		}
	})
}

func TestParseMapsNamed(t *testing.T) {
	const text = "1000-2000 rw-s 00000000 00:01 7   /memfd:OTEL_CTX (deleted)\n" +
		"2000-3000 rw-p 00000000 00:01 7   /tmp/memfd:OTEL_CTX\n" +
		"3000-4000 r--p 00000000 00:00 0   [anon:OTEL_CTX]\n" +
		"4000-5000 r-xp 00000000 00:00 0\n"
	got, err := parseMapsNamed([]byte(text), []string{"/memfd:OTEL_CTX", "[anon:OTEL_CTX]"})
	if err != nil || len(got) != 2 || got[0].Start != 0x1000 || got[1].Start != 0x3000 {
		t.Errorf("got %+v, %v; want the first and the third mapping", got, err)
	}
	if got, err := parseMapsNamed([]byte("x-y rw-p /memfd:a\n"), []string{"/memfd:a"}); err == nil {
		t.Errorf("a malformed line: got %+v", got)
	}
}
