package unpack

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"
	"testing/iotest"

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
			got, err := io.ReadAll(NewXZReader(bytes.NewReader(xz(t, data[:n], strings.Fields(args)...))))
			if err != nil || !bytes.Equal(got, data[:n]) {
				t.Errorf("%s: %d bytes: got %d, %v; want the original data", args, n, len(got), err)
			}
			two := bytes.Join([][]byte{xz(t, data[:n], strings.Fields(args)...), xz(t, data)}, make([]byte, 8))
			if got, err = io.ReadAll(NewXZReader(bytes.NewReader(two))); err != nil || !bytes.Equal(got, append(bytes.Clone(data[:n]), data...)) {
				t.Errorf("%s: two streams of %d and %d bytes: got %d, %v; want all data", args, n, len(data), len(got), err)
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
		{"no end", good[:len(good)-8], "unexpected EOF"},
		{"index", change(len(good)-20, 0xff), "xz: "},
		{"more", append(bytes.Clone(good), "\x00\x00\x00\x00more than zeros"...), "not an xz stream"},
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
		if _, err := io.ReadAll(NewXZReader(bytes.NewReader(tt.content))); err == nil || !strings.Contains(err.Error(), tt.problem) {
			t.Errorf("%s: got error %v, want one that contains %q", tt.name, err, tt.problem)
		}
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
		whole, wholeErr := io.ReadAll(io.LimitReader(NewXZReader(bytes.NewReader(content)), limit))
		pieces, piecesErr := io.ReadAll(iotest.HalfReader(io.LimitReader(NewXZReader(iotest.OneByteReader(bytes.NewReader(content))), limit)))
		if !bytes.Equal(whole, pieces) || (wholeErr == nil) != (piecesErr == nil) {
			t.Fatalf("got %d bytes (%v) in one read, %d (%v) in pieces; want the same", len(whole), wholeErr, len(pieces), piecesErr)
		}
	})
}
