package debugfile

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"hash/crc32"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"fulgur/internal/symbols/elffile"
	"fulgur/internal/symbols/elffile/elftest"
	"fulgur/internal/testenv"
)

// id is the build ID of the binary in most tests.
const id = "aabbccdd"

// image returns a synthetic ELF file with a build ID, unless id is empty, and other
// sections.
func image(t testing.TB, id string, sections ...elftest.Section) []byte {
	t.Helper()
	if id != "" {
		b, err := hex.DecodeString(id)
		if err != nil {
			t.Fatal(err)
		}
		sections = append(sections, elftest.BuildID(b))
	}
	return elftest.File{Sections: sections}.Bytes()
}

// debugInfo returns the section that makes a file a debug file; note makes files
// distinct.
func debugInfo(note string) elftest.Section {
	return elftest.Section{Name: ".debug_info", Content: []byte(note)}
}

// debugLink returns a .gnu_debuglink section.
func debugLink(name string, crc uint32) elftest.Section {
	content := append([]byte(name), make([]byte, 4-len(name)%4)...)
	return elftest.Section{Name: ".gnu_debuglink", Content: binary.LittleEndian.AppendUint32(content, crc)}
}

func crc(b []byte) uint32 { return crc32.ChecksumIEEE(b) }

// altLink returns a .gnu_debugaltlink section.
func altLink(t testing.TB, path, id string) elftest.Section {
	t.Helper()
	b, err := hex.DecodeString(id)
	if err != nil {
		t.Fatal(err)
	}
	return elftest.Section{Name: ".gnu_debugaltlink", Content: append([]byte(path+"\x00"), b...)}
}

// tree maps paths to contents; a content that begins with "->" is a symbolic link.
type tree map[string]string

// write writes the files below a new directory and returns it.
func (tr tree) write(t testing.TB) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range tr {
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if to, ok := strings.CutPrefix(content, "->"); ok {
			err = os.Symlink(to, name)
		} else {
			err = os.WriteFile(name, []byte(content), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// binaryAt opens an ELF file in memory as /usr/bin/app below root.
func binaryAt(t testing.TB, root string, content []byte) *File {
	t.Helper()
	f, err := elffile.New(bytes.NewReader(content), int64(len(content)), "app")
	if err != nil {
		t.Fatal(err)
	}
	return &File{File: f, Root: root, Path: "/usr/bin/app"}
}

// environment returns a Getenv for the given variables.
func environment(vars map[string]string) func(string) string {
	return func(name string) string { return vars[name] }
}

// newFinder returns a finder that uses this machine's files and environment only if c selects
// them.
func newFinder(t testing.TB, c Config) *Finder {
	t.Helper()
	if c.Host == "" {
		c.Host = t.TempDir()
	}
	if c.Getenv == nil {
		c.Getenv = environment(nil)
	}
	if c.Release == "" {
		c.Release = "6.1.0-test"
	}
	f, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// found checks the result of a search: want is the expected path below root, or empty if
// the error must contain problem.
func found(t testing.TB, f *File, err error, root, want, problem string) {
	t.Helper()
	switch {
	case err != nil && want != "":
		t.Errorf("got %v, want %s", err, want)
	case err != nil:
		if !strings.Contains(err.Error(), problem) {
			t.Errorf("got error %q, want one that contains %q", err, problem)
		}
	default:
		defer f.Close()
		if f.Path != want || f.Root != root {
			t.Errorf("got %s below %s, want %q below %s", f.Path, f.Root, want, root)
		}
	}
}

// run runs a tool; the test is skipped if the tool is not installed.
func run(t testing.TB, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(context.Background(), testenv.Tool(t, name), args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	return string(out)
}
