package elffile

import (
	"bytes"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

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
