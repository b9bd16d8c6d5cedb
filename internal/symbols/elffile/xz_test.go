package elffile

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"fulgur/internal/symbols/elffile/elftest"
	"fulgur/internal/testenv"
)

// xz compresses data with the xz program.
func xz(t testing.TB, data []byte, args ...string) []byte {
	t.Helper()
	cmd := exec.Command(testenv.Tool(t, "xz"), append([]string{"-c"}, args...)...)
	cmd.Stdin = bytes.NewReader(data)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestXZ(t *testing.T) {
	data := make([]byte, 70<<10)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range data {
		data[i] = byte(random.IntN(5))
	}
	for _, args := range []string{"-6", "-0 --check=none", "-0 --check=crc32", "-0 --check=sha256", "-0 --block-size=30000", "-0 -T2 --block-size=16384", "-9"} {
		for _, n := range []int{0, 1, 2, 3, 4, len(data)} {
			got, err := io.ReadAll(newXZReader(bytes.NewReader(xz(t, data[:n], strings.Fields(args)...))))
			if err != nil || !bytes.Equal(got, data[:n]) {
				t.Errorf("%s: %d bytes: got %d, %v; want the original data", args, n, len(got), err)
			}
		}
	}
}

func TestXZMalformed(t *testing.T) {
	good := xz(t, []byte("some data that is compressed"))
	change := func(at int, to byte) []byte {
		b := bytes.Clone(good)
		b[at] = to
		return b
	}
	// header replaces the block header's flags and the fields after them.
	header := func(fields ...byte) []byte {
		b := append(bytes.Clone(good[:13]), fields...)
		b = append(b, make([]byte, 20-len(b))...)
		b = binary.LittleEndian.AppendUint32(b, crc32.ChecksumIEEE(b[12:20]))
		return append(b, good[24:]...)
	}
	for _, tt := range []struct {
		name    string
		content []byte
		problem string
	}{
		{"empty", nil, "unexpected EOF"},
		{"magic", change(0, 0), "not an xz stream"},
		{"flags", change(7, 1), "not an xz stream"},
		{"block header", change(14, 0xff), "corrupt block header"},
		{"data", change(30, 0xff), "xz: "},
		{"truncated", good[:40], "unexpected EOF"},
		{"other filter", header(0, 0x04, 0, 0), "unsupported filter"},
		{"two filters", header(1, 0x04, 0, 0x21, 1, 20), "unsupported filter"},
		{"dictionary of 4 GiB", header(0, 0x21, 1, 40), "dictionary of 4294967295 bytes"},
		{"dictionary of 96 MiB", header(0, 0x21, 1, 29), "dictionary of 100663296 bytes"},
		{"unknown dictionary", header(0, 0x21, 1, 41), "unsupported filter"},
	} {
		if _, err := io.ReadAll(newXZReader(bytes.NewReader(tt.content))); err == nil || !strings.Contains(err.Error(), tt.problem) {
			t.Errorf("%s: got error %v, want one that contains %q", tt.name, err, tt.problem)
		}
	}
}

// TestEmbedded makes a .gnu_debugdata section as Fedora's find-debuginfo does.
func TestEmbedded(t *testing.T) {
	path := compile(t, "static __attribute__((noinline)) int hidden(int n) { return n * 3; }\nint main(int n, char **v) { return hidden(n); }\n", "gcc", "-O1")
	mini := filepath.Join(t.TempDir(), "mini")
	run(t, "objcopy", "-S", "--remove-section", ".gdb_index", "--remove-section", ".comment", "--keep-symbol=hidden", path, mini)
	content, err := os.ReadFile(mini)
	if err != nil {
		t.Fatal(err)
	}
	f := fileOf(t, elftest.File{Sections: []elftest.Section{{Name: ".gnu_debugdata", Content: xz(t, content)}}}.Bytes())
	embedded, err := f.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := embedded.Bytes(0, uint64(embedded.Size()), "file"); err != nil || !bytes.Equal(got, content) {
		t.Errorf("got %d bytes, want %d; %v", len(got), len(content), err)
	}
	if s := embedded.Section(".symtab"); s == nil || s.Type != elf.SHT_SYMTAB {
		t.Error("got no .symtab")
	}
	if none, err := embedded.Embedded(); none != nil || err != nil {
		t.Errorf("file without .gnu_debugdata: got %v, %v; want nil", none, err)
	}
}

// TestEmbeddedBomb checks the limit for decompressed data.
func TestEmbeddedBomb(t *testing.T) {
	f := fileOf(t, elftest.File{Sections: []elftest.Section{{Name: ".gnu_debugdata", Content: xz(t, make([]byte, 3<<20), "-0")}}}.Bytes())
	f.limit = 2 << 20
	if _, err := f.Embedded(); err == nil || !strings.Contains(err.Error(), "more than the 2097152 bytes") {
		t.Errorf("got error %v, want %q in it", err, "more than the 2097152 bytes")
	}
	if len(f.temporary) > 0 {
		t.Error("got a temporary file left")
	}
}

// FuzzXZ decompresses arbitrary bytes. The result must not depend on the size of reads.
func FuzzXZ(f *testing.F) {
	if path, err := exec.LookPath("xz"); err == nil {
		f.Logf("seeds made by %s", path)
		f.Add(xz(f, []byte("some data that is compressed")))
		f.Add(xz(f, make([]byte, 10000), "--check=sha256", "--block-size=4096"))
	}
	f.Add([]byte("\xfd7zXZ\x00\x00\x04\xe6\xd6\xb4\x46\x02\x00\x21\x01"))
	f.Fuzz(func(t *testing.T, content []byte) {
		const limit = 1 << 20
		whole, wholeErr := io.ReadAll(io.LimitReader(newXZReader(bytes.NewReader(content)), limit))
		pieces, piecesErr := io.ReadAll(iotest.HalfReader(io.LimitReader(newXZReader(iotest.OneByteReader(bytes.NewReader(content))), limit)))
		if !bytes.Equal(whole, pieces) || (wholeErr == nil) != (piecesErr == nil) {
			t.Fatalf("got %d bytes (%v) in one read, %d (%v) in pieces; want the same", len(whole), wholeErr, len(pieces), piecesErr)
		}
	})
}
