package elffile

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"os"
	"strings"
	"testing"

	"fulgur/internal/files/tempfile"
	"fulgur/internal/symbols/elffile/elftest"
)

// largeSize is a size that does not stay in memory.
const largeSize = 1_060_000

// largeData has largeSize bytes; largeContent is its compressed form.
var largeData, largeContent []byte

// large returns a compressed section with the contents largeData.
func large(t testing.TB) *Section {
	t.Helper()
	if largeData == nil {
		largeData = bytes.Repeat([]byte("debug info"), largeSize/10)
		largeContent = compressed(t, elf.COMPRESS_ZLIB, largeData, uint64(len(largeData)))
	}
	return sectionOf(t, elftest.Section{Name: ".debug_info", Flags: elf.SHF_COMPRESSED, Content: largeContent})
}

// TestBudget checks that files share a limit for decompressed data.
func TestBudget(t *testing.T) {
	for _, tt := range []struct {
		name        string
		limit, free uint64
		problem     string // for the second section, empty for none
	}{
		{"both", 2 * largeSize, 1 << 40, ""},
		{"too much", 2*largeSize - 1, 1 << 40, "more than 2119999 bytes"},
		{"too little space", 1 << 40, 3 * largeSize, "more than half of the free space (set TMPDIR to use another directory)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := &budget{limit: tt.limit}
			// The budget is half of the free space, which does not include written data.
			b.free = func(*os.File) (uint64, error) { return tt.free - b.used, nil }
			first := large(t)
			second := large(t)
			first.file.budget, second.file.budget = b, b
			if _, err := first.Open(); err != nil {
				t.Fatal(err)
			}
			_, err := second.Open()
			if tt.problem == "" {
				if err != nil {
					t.Error(err)
				}
			} else if err == nil || !strings.Contains(err.Error(), tt.problem) || errors.As(err, new(*FormatError)) {
				t.Errorf("got error %v, want one that contains %q", err, tt.problem)
			}
			if err := errors.Join(first.file.Close(), second.file.Close()); err != nil {
				t.Error(err)
			}
			if b.used != 0 {
				t.Errorf("got %d bytes in use after Close, want 0", b.used)
			}
			third := large(t)
			third.file.budget = b
			if _, err := third.Open(); err != nil {
				t.Errorf("after the others were closed: %v", err)
			}
		})
	}
}

// TestLargeLink checks that nothing large is decompressed to read a link.
func TestLargeLink(t *testing.T) {
	s := large(t)
	for _, name := range []string{".gnu_debuglink", ".gnu_debugaltlink", ".debug_sup"} {
		s.Name = name
		_, err := s.file.DebugLink()
		if err == nil {
			_, err = s.file.AltLink()
		}
		if err == nil || !strings.Contains(err.Error(), "claims to be 1060000 bytes") || len(s.file.temporary) != 0 {
			t.Errorf("%s: got %v, %d temporary files; want an error about the size, 0", name, err, len(s.file.temporary))
		}
	}
}

// TestFreeSpace reads the free space of a real file system.
func TestFreeSpace(t *testing.T) {
	file, err := tempfile.Create()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if free, err := freeSpace(file); err != nil || free == 0 {
		t.Errorf("got %d, %v; want free space", free, err)
	}
}

// TestLazy checks that data is decompressed when it is read, not before.
func TestLazy(t *testing.T) {
	s, data := large(t), largeData
	l, err := s.Lazy()
	if err != nil {
		t.Fatal(err)
	}
	if l.Size() != int64(len(data)) || len(s.file.temporary) != 0 {
		t.Errorf("got %d bytes of %d, %d temporary files before reading; want 0", l.Size(), len(data), len(s.file.temporary))
	}
	got := make([]byte, 1000)
	if n, err := l.ReadAt(got, int64(len(data)-len(got))); n != len(got) || err != nil || !bytes.Equal(got, data[len(data)-len(got):]) {
		t.Errorf("got %d bytes, %v; want the end of the data", n, err)
	}
	if len(s.file.temporary) != 1 {
		t.Errorf("got %d temporary files, want 1", len(s.file.temporary))
	}

	corrupt := sectionOf(t, elftest.Section{Name: ".debug_info", Flags: elf.SHF_COMPRESSED, Content: compressed(t, elf.COMPRESS_ZLIB, []byte("abc"), 4)})
	if l, err = corrupt.Lazy(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.ReadAt(got, 0); !errors.As(err, new(*FormatError)) {
		t.Errorf("reading corrupt data: got %v, want a FormatError", err)
	}
	if _, err := sectionOf(t, elftest.Section{Name: ".bss", Type: elf.SHT_NOBITS, Size: 100}).Lazy(); !errors.Is(err, ErrNoContents) {
		t.Errorf("got error %v, want ErrNoContents", err)
	}
	whole := sectionOf(t, elftest.Section{Name: ".debug_info", Content: []byte("info")})
	if l, err = whole.Lazy(); err != nil || l.Size() != 4 {
		t.Errorf("uncompressed section: got error %v, want 4 bytes", err)
	}
}

// TestInterrupted checks that decompression ends with the file's context.
func TestInterrupted(t *testing.T) {
	s := large(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	// This runs while the temporary file is written.
	s.file.budget = &budget{limit: 1 << 40, free: func(*os.File) (uint64, error) {
		cancel(enough)
		return 1 << 40, nil
	}}
	s.file.SetContext(ctx)
	_, err := s.Open()
	if !errors.Is(err, enough) || errors.As(err, new(*FormatError)) || strings.Contains(err.Error(), "TMPDIR") {
		t.Errorf("got error %v, want %v", err, enough)
	}
	if len(s.file.temporary) != 0 || s.file.budget.used != 0 {
		t.Errorf("got %d temporary files and %d bytes left, want 0", len(s.file.temporary), s.file.budget.used)
	}
}
