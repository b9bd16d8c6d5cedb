package elffile

import (
	"bytes"
	"compress/zlib"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/klauspost/compress/zstd"

	"fulgur/internal/symbols/elffile/elftest"
	"fulgur/internal/testenv"
)

// compressed returns the content of a section with SHF_COMPRESSED: data, with a header
// that declares size bytes.
func compressed(t testing.TB, typ elf.CompressionType, data []byte, size uint64) []byte {
	t.Helper()
	header := elftest.Struct(elf.Chdr64{Type: uint32(typ), Size: size, Addralign: 1})
	if typ == elf.COMPRESS_ZSTD {
		w, err := zstd.NewWriter(nil)
		if err != nil {
			t.Fatal(err)
		}
		return w.EncodeAll(data, header)
	}
	return append(header, deflated(t, data)...)
}

func deflated(t testing.TB, data []byte) []byte {
	var b bytes.Buffer
	w, err := zlib.NewWriterLevel(&b, zlib.HuffmanOnly)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestCompressed reads sections in each compression format, with a size that stays in
// memory and one that does not.
func TestCompressed(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, size := range []int{0, 1, 1000, maxInMemory, maxInMemory + 1} {
		data := make([]byte, size)
		for i := range data {
			data[i] = byte(random.IntN(5))
		}
		old := append(binary.BigEndian.AppendUint64([]byte("ZLIB"), uint64(size)), deflated(t, data)...)
		for _, s := range []elftest.Section{
			{Name: ".debug_info", Content: data},
			{Name: ".debug_info", Flags: elf.SHF_COMPRESSED, Content: compressed(t, elf.COMPRESS_ZLIB, data, uint64(size))},
			{Name: ".debug_info", Flags: elf.SHF_COMPRESSED, Content: compressed(t, elf.COMPRESS_ZSTD, data, uint64(size))},
			{Name: ".zdebug_info", Content: old},
			{Name: ".zdebug_info", Content: data},
		} {
			t.Run(fmt.Sprint(size, s.Name, s.Flags), func(t *testing.T) {
				f := fileOf(t, elftest.File{Sections: []elftest.Section{s}}.Bytes())
				var readers sync.WaitGroup
				for range 2 {
					readers.Go(func() {
						if got := contents(t, f.Section(".debug_info")); !bytes.Equal(got, data) {
							t.Errorf("got %d bytes, want the original data", len(got))
						}
					})
				}
				readers.Wait()
				if want := size > maxInMemory && (s.Flags != 0 || bytes.HasPrefix(s.Content, []byte("ZLIB"))); len(f.temporary) > 0 != want {
					t.Errorf("got %d temporary files, want one: %v", len(f.temporary), want)
				}
			})
		}
	}
}

// TestCompressedMalformed checks that malformed data takes little time, memory and disk
// space.
func TestCompressedMalformed(t *testing.T) {
	zeros := make([]byte, 2<<20)
	zlibZeros := compressed(t, elf.COMPRESS_ZLIB, zeros, uint64(len(zeros)))
	zstdZeros := compressed(t, elf.COMPRESS_ZSTD, zeros, uint64(len(zeros)))
	zlibAbc := compressed(t, elf.COMPRESS_ZLIB, []byte("abc"), 3)
	announce := func(content []byte, size uint64) []byte {
		content = bytes.Clone(content)
		binary.LittleEndian.PutUint64(content[8:], size)
		return content
	}
	unknown := bytes.Clone(zlibZeros)
	unknown[0] = 9
	flipped := bytes.Clone(zlibZeros)
	flipped[len(flipped)-1] ^= 1
	for _, tt := range []struct {
		name, section string
		content       []byte
		problem       string
	}{
		{"zlib, larger than announced", "", announce(zlibZeros, 100), "more than the 100 bytes"},
		{"zstd, larger than announced", "", announce(zstdZeros, 100), "more than the 100 bytes"},
		{"zlib, smaller than announced", "", announce(zlibZeros, 2<<20+1), "2097152 bytes of 2097153"},
		{"zstd, smaller than announced", "", announce(compressed(t, elf.COMPRESS_ZSTD, []byte("abc"), 0), 100), "3 bytes of 100"},
		{"zlib, unlikely", "", announce(zlibZeros, 1<<33), "claims to be"},
		{"zstd, unlikely", "", zstdZeros, "claims to be"},
		{"a size that wraps around", "", announce(zlibZeros, 1<<64-1), "claims to be"},
		{"old, unlikely", ".zdebug_info", append([]byte("ZLIB\xff\xff\xff\xff\xff\xff\xff\xff"), deflated(t, zeros)...), "claims to be"},
		{"truncated", "", zlibAbc[:len(zlibAbc)-6], "unexpected EOF"},
		{"wrong checksum", "", flipped, "checksum"},
		{"no data", "", announce(zlibZeros[:24], 100), "decompressing section .debug_info"},
		{"no header", "", zlibZeros[:23], "truncated compression header"},
		{"unknown", "", unknown, "unknown way (type 9)"},
		{"not zlib", "", append(announce(zlibZeros[:24], 100), "something else"...), "decompressing section .debug_info"},
		{"not zstd", "", append(announce(zstdZeros[:24], 100), "something else"...), "decompressing section .debug_info"},
		// This declares a window of 2 GiB.
		{"zstd, window", "", append(announce(zstdZeros[:24], 100), 0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xa8, 0x01, 0x00, 0x00), "window"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			section := elftest.Section{Name: ".debug_info", Flags: elf.SHF_COMPRESSED, Content: tt.content}
			if tt.section != "" {
				section.Name, section.Flags = tt.section, 0
			}
			s := sectionOf(t, section)
			_, err := s.Open()
			if format := (*FormatError)(nil); !errors.As(err, &format) || !strings.Contains(err.Error(), tt.problem) {
				t.Errorf("got error %v, want one that contains %q", err, tt.problem)
			} else if format.File != "synthetic" || format.Offset != int64(s.Offset) {
				t.Errorf("got an error about %s at %#x", format.File, format.Offset)
			}
			if n := len(s.file.temporary); n != 0 {
				t.Errorf("got %d temporary files left, want 0", n)
			}
		})
	}
}

func TestOpenSection(t *testing.T) {
	if _, err := sectionOf(t, elftest.Section{Name: ".text", Type: elf.SHT_NOBITS, Size: 100}).Open(); !errors.Is(err, ErrNoContents) {
		t.Errorf("got error %v, want ErrNoContents", err)
	}
	outside := sectionOf(t, elftest.Section{Name: ".debug_info", Content: []byte("info")})
	outside.Size = 1 << 40
	if _, err := outside.Open(); err == nil || !strings.Contains(err.Error(), "outside of the file") {
		t.Errorf("got error %v, want %q in it", err, "outside of the file")
	}
}

// TestNoPlace checks that the error names TMPDIR if no temporary file can be created.
func TestNoPlace(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir()+"/missing")
	data := bytes.Repeat([]byte("0123456789abcdef"), maxInMemory/12)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range data {
		data[i] += byte(random.IntN(4))
	}
	s := sectionOf(t, elftest.Section{Name: ".debug_info", Flags: elf.SHF_COMPRESSED, Content: compressed(t, elf.COMPRESS_ZLIB, data, uint64(len(data)))})
	if _, err := s.Open(); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "TMPDIR") {
		t.Errorf("got error %v, want one about TMPDIR", err)
	}
}

// TestClose checks that Close removes temporary files.
func TestClose(t *testing.T) {
	data := make([]byte, 2<<20)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range data {
		data[i] = byte(random.IntN(4))
	}
	s := sectionOf(t, elftest.Section{Name: ".debug_info", Flags: elf.SHF_COMPRESSED, Content: compressed(t, elf.COMPRESS_ZLIB, data, uint64(len(data)))})
	r, err := s.Open()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.file.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.ReadAt(make([]byte, 1), 0); !errors.Is(err, os.ErrClosed) {
		t.Errorf("reading after Close: got %v, want %v", err, os.ErrClosed)
	}
}

// TestToolchain reads debug info compressed by compilers and objcopy.
func TestToolchain(t *testing.T) {
	const source = "struct a { int n; struct a *next; char name[30]; };\nint f(struct a *a) { return a->n; }\nint main(void) { struct a a = {1}; return f(&a); }\n"
	for _, class := range []string{"-m64", "-m32"} {
		plain := compile(t, source, "gcc", class, "-g", "-gz=none", "-nostdlib", "-shared", "-fPIC")
		want := contents(t, open(t, plain).Section(".debug_info"))
		for _, kind := range []string{"zlib-gabi", "zlib-gnu", "zstd"} {
			t.Run(kind+class, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "out")
				run(t, "objcopy", "--compress-debug-sections="+kind, plain, path)
				s := open(t, path).Section(".debug_info")
				if got := contents(t, s); !bytes.Equal(got, want) {
					t.Errorf("got %d bytes of %s, want the %d original ones", len(got), s.Name, len(want))
				}
				if s.Size >= uint64(len(want)) {
					testenv.Skip(t, "needs an objcopy that compresses small sections")
				}
			})
		}
	}
}
