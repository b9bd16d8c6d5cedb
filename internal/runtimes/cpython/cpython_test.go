package cpython

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"fulgur/internal/symbols/elffile"
	"fulgur/internal/testenv"
)

// mapped returns the file mapped by program that has the interpreter's code, and the
// interpreter's version.
func mapped(t *testing.T, program string) (path, version string) {
	t.Helper()
	text, err := exec.Command(program, "-c", `
import platform
print(platform.python_version())
print(*{l.split(None, 5)[-1].strip() for l in open("/proc/self/maps") if " r-xp " in l and "/" in l}, sep="\n")`).Output()
	if err != nil {
		t.Fatalf("%s: %v", program, err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	for _, path := range lines[1:] {
		f, err := elffile.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		_, ok, err := f.DynamicSymbol("_PyRuntime")
		if err != nil || ok {
			return path, lines[0]
		}
	}
	t.Fatalf("%s: got no file that exports _PyRuntime", program)
	return "", ""
}

// The version matches the interpreter's output.
func TestDetect(t *testing.T) {
	programs := append(strings.Fields(os.Getenv("FULGUR_TEST_MORE_PYTHONS")), testenv.Tool(t, "python3"))
	for _, program := range programs {
		path, version := mapped(t, program)
		f, err := elffile.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		b, err := Runtime{}.Detect(f)
		if err != nil || b == nil {
			t.Fatalf("%s: %v, %v", path, b, err)
		}
		if !strings.HasPrefix(version, b.Version) || strings.Count(b.Version, ".") < 1 || b.Unknown != "" {
			t.Errorf("%s: got version %s, %q, want %s", path, b.Version, b.Unknown, version)
		}
		entry := b.Entry
		b.Place(&entry, 0x1000, false)
		if entry.Python.Runtime != b.Entry.Python.Runtime+0x1000 || entry.Python.Interpreter.Start != b.Entry.Python.Interpreter.Start+0x1000 || entry.Python.Thread == byKey {
			t.Errorf("%s: got entry %+v, want the addresses moved by 0x1000", path, entry)
		}
	}
}

// A file without CPython has no build.
func TestDetectNone(t *testing.T) {
	f, err := elffile.Open(testenv.Tool(t, "readelf"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if b, err := (Runtime{}).Detect(f); b != nil || err != nil {
		t.Errorf("got %+v, %v; want nil", b, err)
	}
}

// Offsets that the kernel side cannot use are rejected.
func TestDebugOffsets(t *testing.T) {
	offsets := make([]byte, 8*maxOffsets)
	if _, ok := fromDebugOffsets(13, offsets); ok {
		t.Error("got no error for offsets of 0")
	}
	if _, ok := fromDebugOffsets(99, offsets); ok {
		t.Error("got no error for an unknown version")
	}
	for i := range offsets {
		offsets[i] = 0xff
	}
	if _, ok := fromDebugOffsets(14, offsets); ok {
		t.Error("got no error for offsets that are too large")
	}
}

func FuzzDebugOffsets(f *testing.F) {
	f.Add(13, []byte(cookie))
	large := make([]byte, 8*maxOffsets) // version 3.14, with a large offset of the owner
	for word, value := range map[int]byte{36: 250, 75: bytesSizeAt, 76: bytesDataAt, 78: strStateAt, 79: strLengthAt} {
		large[8*word] = value
	}
	f.Add(14, large)
	f.Fuzz(func(t *testing.T, minor int, b []byte) {
		offsets := make([]byte, 8*maxOffsets)
		copy(offsets, b)
		if l, ok := fromDebugOffsets(minor, offsets); ok && (l.FrameSize > maxFrame || l.FrameSize <= max(l.FrameCode, l.FrameBack, l.FramePosition, l.FrameOwner) ||
			l.StringCompact < l.StringAscii || l.CodeName > maxCode) {
			t.Errorf("got %+v", l)
		}
	})
}
