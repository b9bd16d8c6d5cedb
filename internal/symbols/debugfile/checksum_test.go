package debugfile

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// linkedTo returns a binary without a build ID at /usr/bin/app below root. Its debug link
// names app.debug with a checksum that matches no file.
func linkedTo(t testing.TB, root string) *File {
	t.Helper()
	return binaryAt(t, root, image(t, "", debugLink("app.debug", 1)))
}

// TestChecksumSize checks that files that are large, or large and sparse, are skipped
// without computing their checksum.
func TestChecksumSize(t *testing.T) {
	for _, tt := range []struct {
		name    string
		size    int64
		problem string
	}{
		{"too large", maxChecksummed + 1, "too many for a checksum"},
		{"sparse", maxSparse + 1, "are too sparse for a checksum"},
		{"sparse and small", 1 << 20, "checksum is "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := tree{"/usr/bin/app.debug": string(image(t, "", debugInfo("wrong")))}.write(t)
			if err := os.Truncate(root+"/usr/bin/app.debug", tt.size); err != nil {
				t.Fatal(err)
			}
			f, err := newFinder(t, Config{}).Debug(t.Context(), linkedTo(t, root))
			found(t, f, err, root, "", tt.problem)
		})
	}
}

// TestChecksumInterrupted checks that a search ends with its context.
func TestChecksumInterrupted(t *testing.T) {
	root := tree{"/usr/bin/app.debug": string(image(t, "", debugInfo("wrong")))}.write(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	cancel(enough)
	f, err := newFinder(t, Config{}).Debug(ctx, linkedTo(t, root))
	found(t, f, err, root, "", "enough")
	if !errors.Is(err, enough) {
		t.Errorf("got error %v, want %v", err, enough)
	}
}

// TestSameRoots checks that a directory is searched only once, even if it has several names,
// such as the host's root and the root of an ordinary process.
func TestSameRoots(t *testing.T) {
	root := tree{"/usr/bin/app.debug": string(image(t, "", debugInfo("wrong")))}.write(t)
	link := filepath.Join(t.TempDir(), "root")
	if err := os.Symlink(root, link); err != nil {
		t.Fatal(err)
	}
	_, err := newFinder(t, Config{Root: link, Host: root}).Debug(t.Context(), linkedTo(t, root))
	if got := strings.Count(err.Error(), "checksum is "); got != 1 {
		t.Errorf("got %d checksums of one file, want 1: %v", got, err)
	}

	if got := newFinder(t, Config{Host: "/"}).roots("/proc/self/root"); len(got) != 1 {
		t.Errorf("got roots %q, want only the process's", got)
	}
}
