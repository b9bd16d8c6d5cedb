package elffile

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"fulgur/internal/testenv"
)

// The Go build ID is the one that the go command prints.
func TestGoBuildID(t *testing.T) {
	goCommand := testenv.Tool(t, "go")
	program := filepath.Join(t.TempDir(), "hello")
	source := program + ".go"
	if err := os.WriteFile(source, []byte("package main\n\nfunc main() {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(goCommand, "build", "-o", program, source).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	want, err := exec.Command(goCommand, "tool", "buildid", program).Output()
	if err != nil {
		t.Fatal(err)
	}
	f, err := Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got := f.IDs().Go; got == "" || got != strings.TrimSpace(string(want)) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// The hash covers the size, the first and the last 4096 bytes.
func TestHash(t *testing.T) {
	own, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{64, 4095, 4096, 5000, len(own)} {
		data := bytes.Clone(own[:size])
		first, last := data[:min(size, 4096)], data[size-min(size, 4096):]
		all := append(append(bytes.Clone(first), last...), binary.BigEndian.AppendUint64(nil, uint64(size))...)
		sum := sha256.Sum256(all)
		f := &File{r: bytes.NewReader(data), size: int64(size)}
		if got, want := f.sumUp(), hex.EncodeToString(sum[:16]); got != want {
			t.Errorf("%d bytes: got %s, want %s", size, got, want)
		}
	}
	if got := (&File{r: bytes.NewReader(own[:10]), size: 20}).sumUp(); got != "" {
		t.Errorf("truncated file: got %s, want none", got)
	}
}
