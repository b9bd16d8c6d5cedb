package unwindmap

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fulgur/internal/symbols/callframe"
	"fulgur/internal/symbols/debugfile"
	"fulgur/internal/symbols/elffile/elftest"
	"fulgur/internal/testenv"
	"fulgur/internal/unwind"
)

// command runs a program that creates files.
func command(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(testenv.Tool(t, name), args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
}

// compilePath compiles the table of a file.
func compilePath(t *testing.T, path string) *unwind.Table {
	t.Helper()
	finder, err := debugfile.New(debugfile.Config{})
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	c, err := compile(t.Context(), input{
		r: bytes.NewReader(content), size: int64(len(content)), name: path, root: "/", finder: finder.Local(),
	}, unwind.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c.Table
}

// TestSeparateDebugFile strips a program with unwind information in .debug_frame. The
// table is the same as long as the debug file exists.
func TestSeparateDebugFile(t *testing.T) {
	dir := t.TempDir()
	whole, stripped, debug := filepath.Join(dir, "whole"), filepath.Join(dir, "program"), filepath.Join(dir, "program.debug")
	command(t, "gcc", "-O2", "-g", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables",
		"-o", whole, filepath.Join("..", "testdata", "frames.c"))
	command(t, "objcopy", "--only-keep-debug", whole, debug)
	command(t, "objcopy", "--strip-all", "--add-gnu-debuglink="+debug, whole, stripped)
	want := compilePath(t, whole)
	check := func(what string, equal bool) {
		t.Helper()
		got := compilePath(t, stripped)
		if same := slices.Equal(got.Rows, want.Rows) && slices.Equal(got.Rules, want.Rules); same != equal || got.Stats.Damaged > 0 {
			t.Errorf("%s: got %d rows, %d from the whole program, equal: %v, %v; want equal: %v", what, len(got.Rows), len(want.Rows), same, got.Stats.Damage, equal)
		}
	}
	check("separate", true)
	for _, form := range []string{"zlib-gabi", "zlib-gnu"} {
		command(t, "objcopy", "--compress-debug-sections="+form, debug)
		check(form, true)
	}
	if err := os.Remove(debug); err != nil {
		t.Fatal(err)
	}
	check("without its debug file", false)
}

// TestTooLarge checks that huge sections are refused, whether compressed or with holes.
func TestTooLarge(t *testing.T) {
	file := func(s elftest.Section) []byte {
		return elftest.File{Machine: Machine, Sections: []elftest.Section{s}}.Bytes()
	}
	header := elftest.Struct(elf.Chdr64{Type: uint32(elf.COMPRESS_ZLIB), Size: callframe.MaxSize + 1, Addralign: 8})
	compressed := file(elftest.Section{Name: ".debug_frame", Flags: elf.SHF_COMPRESSED, Content: append(header, make([]byte, 1<<20)...)})
	sparse := file(elftest.Section{Name: ".eh_frame", Content: make([]byte, 8)})
	// Elf64_Ehdr.e_shoff, and Elf64_Shdr.sh_size of the first section.
	headers := binary.LittleEndian.Uint64(sparse[40:])
	binary.LittleEndian.PutUint64(sparse[headers+64+32:], callframe.MaxSize+1)
	for name, content := range map[string][]byte{"compressed": compressed, "sparse": sparse} {
		f, err := os.Create(filepath.Join(t.TempDir(), name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		if _, err := f.Write(content); err != nil {
			t.Fatal(err)
		}
		const size = 2 * callframe.MaxSize
		if err := f.Truncate(size); err != nil {
			t.Fatal(err)
		}
		_, err = compile(t.Context(), input{r: f, size: size, name: name}, unwind.Options{})
		if err == nil || !strings.Contains(err.Error(), "more than any program has") {
			t.Errorf("%s: got %v, want %q in it", name, err, "more than any program has")
		}
	}
}
