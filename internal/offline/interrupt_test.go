package offline

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"fulgur/internal/profile"
)

// interrupter interrupts a run when it warns about its input, which is after it was read.
type interrupter struct {
	interrupt func()
	allocated uint64 // by this process until then, in bytes
}

func (i *interrupter) Write(b []byte) (int, error) {
	i.interrupt()
	i.allocated = allocated()
	return len(b), nil
}

// allocated returns how much memory this process has ever allocated, in bytes.
func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// An interrupted conversion, comparison or report does not build the tables of its output, which
// takes a minute for a large profile.
func TestInterruptedBeforeWriting(t *testing.T) {
	var text strings.Builder
	for i := range 50_000 {
		text.WriteString("t;main;" + strings.Repeat("f", i%100) + ";g" + strings.Repeat("h", i/100) + " 1\n")
	}
	long := "t;" + strings.Repeat("x", profile.MaxName+1) + " 1\n"
	dir := t.TempDir()
	plain, warned := filepath.Join(dir, "plain.folded"), filepath.Join(dir, "warned.folded")
	for path, data := range map[string]string{plain: text.String(), warned: text.String() + long} {
		if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out := filepath.Join(dir, "out")
	runs := map[string]func(ctx context.Context, stderr io.Writer) error{
		"diff": func(ctx context.Context, stderr io.Writer) error {
			_, err := Diff(ctx, DiffOptions{Base: []string{plain}, New: []string{warned}, Output: out, Format: "html", Stderr: stderr})
			return err
		},
		"report": func(ctx context.Context, stderr io.Writer) error {
			_, err := Report(ctx, ReportOptions{Input: warned, Output: out, Stderr: stderr})
			return err
		},
	}
	for _, format := range []string{"html", "pprof", "otlp", "firefox", "speedscope"} {
		runs[format] = func(ctx context.Context, stderr io.Writer) error {
			_, err := Convert(ctx, ConvertOptions{Input: warned, Output: out, Format: format, Stderr: stderr})
			return err
		}
	}
	for name, run := range runs {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			at := &interrupter{interrupt: cancel}
			err := run(ctx, at)
			if err == nil || !strings.Contains(err.Error(), "interrupted") {
				t.Fatalf("got error %v, want one about the interrupt", err)
			}
			const most = 1 << 20
			if n := allocated() - at.allocated; n > most {
				t.Errorf("allocated %d bytes after the interrupt, want at most %d", n, most)
			}
		})
	}
}
