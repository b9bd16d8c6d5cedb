package elffile

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"fulgur/internal/elffile/elftest"
)

// large returns a compressed section whose contents do not stay in memory, and
// these.
func large(t testing.TB) (s *Section, data []byte) {
	t.Helper()
	data = make([]byte, 2*maxInMemory)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range data {
		data[i] = byte(random.IntN(4))
	}
	content := compressed(t, elf.COMPRESS_ZLIB, data, uint64(len(data)))
	return sectionOf(t, elftest.Section{Name: ".debug_info", Flags: elf.SHF_COMPRESSED, Content: content}), data
}

// TestBudget lets files decompress only as much as they may together.
func TestBudget(t *testing.T) {
	const size = 2 * maxInMemory
	for _, tt := range []struct {
		name       string
		most, free uint64
		problem    string // of the second section, empty for none
	}{
		{"both", 2 * size, 1 << 40, ""},
		{"too much", 2*size - 1, 1 << 40, "more than 4194303 bytes"},
		{"too little space", 1 << 40, 3 * size, "more than half of the free space (TMPDIR chooses another place)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := &budget{most: tt.most}
			// Half of what is free without what was written.
			b.free = func(*os.File) (uint64, error) { return tt.free - b.used, nil }
			first, _ := large(t)
			second, _ := large(t)
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
				t.Errorf("error %v, want one that says %q", err, tt.problem)
			}
			if err := errors.Join(first.file.Close(), second.file.Close()); err != nil {
				t.Error(err)
			}
			if b.used != 0 {
				t.Errorf("%d bytes were not given back", b.used)
			}
			third, _ := large(t)
			third.file.budget = b
			if _, err := third.Open(); err != nil {
				t.Errorf("after others were closed: %v", err)
			}
		})
	}
}

// TestFreeSpace asks a real file system.
func TestFreeSpace(t *testing.T) {
	file, err := createTemporary()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if free, err := freeSpace(file); err != nil || free == 0 {
		t.Errorf("%d, %v", free, err)
	}
}

// TestLazy decompresses what is read, and nothing before.
func TestLazy(t *testing.T) {
	s, data := large(t)
	l, err := s.Lazy()
	if err != nil {
		t.Fatal(err)
	}
	if l.Size() != int64(len(data)) || len(s.file.temporary) != 0 {
		t.Errorf("%d bytes of %d, %d temporary files before reading", l.Size(), len(data), len(s.file.temporary))
	}
	got := make([]byte, 1000)
	if n, err := l.ReadAt(got, int64(len(data)-len(got))); n != len(got) || err != nil || !bytes.Equal(got, data[len(data)-len(got):]) {
		t.Errorf("read %d bytes, %v", n, err)
	}
	if len(s.file.temporary) != 1 {
		t.Errorf("%d temporary files, want 1", len(s.file.temporary))
	}

	corrupt := sectionOf(t, elftest.Section{Name: ".debug_info", Flags: elf.SHF_COMPRESSED, Content: compressed(t, elf.COMPRESS_ZLIB, []byte("abc"), 4)})
	if l, err = corrupt.Lazy(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.ReadAt(got, 0); !errors.As(err, new(*FormatError)) {
		t.Errorf("reading corrupt data: %v", err)
	}
	if _, err := sectionOf(t, elftest.Section{Name: ".bss", Type: elf.SHT_NOBITS, Size: 100}).Lazy(); !errors.Is(err, ErrNoContents) {
		t.Errorf("error %v, want ErrNoContents", err)
	}
	whole := sectionOf(t, elftest.Section{Name: ".debug_info", Content: []byte("info")})
	if l, err = whole.Lazy(); err != nil || l.Size() != 4 {
		t.Errorf("not compressed: %v", err)
	}
}

// TestInterrupted ends decompression with the file's context.
func TestInterrupted(t *testing.T) {
	s, _ := large(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	// While the temporary file is written.
	s.file.budget = &budget{most: 1 << 40, free: func(*os.File) (uint64, error) {
		cancel(enough)
		return 1 << 40, nil
	}}
	s.file.SetContext(ctx)
	_, err := s.Open()
	if !errors.Is(err, enough) || errors.As(err, new(*FormatError)) || strings.Contains(err.Error(), "TMPDIR") {
		t.Errorf("error %v", err)
	}
	if len(s.file.temporary) != 0 || s.file.budget.used != 0 {
		t.Errorf("%d temporary files and %d bytes are left", len(s.file.temporary), s.file.budget.used)
	}
}
