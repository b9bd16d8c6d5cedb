package unwind

import (
	"os"
	"strings"
	"testing"

	"fulgur/internal/symbols/elffile"
	"fulgur/internal/testenv"
)

// BenchmarkCompile compiles the files in FULGUR_UNWIND_FILES, or the C library.
// BenchmarkLookup looks up addresses in them.
func BenchmarkCompile(b *testing.B) {
	for _, path := range benchFiles(b) {
		b.Run(path, func(b *testing.B) {
			b.ReportAllocs()
			var table *Table
			for b.Loop() {
				f, err := elffile.Open(path)
				if err != nil {
					b.Fatal(err)
				}
				if table, err = Compile(f, Options{}); err != nil {
					b.Fatal(err)
				}
				f.Close()
			}
			rows := float64(len(table.Rows))
			b.ReportMetric(rows*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
			b.ReportMetric(rows, "rows")
			b.ReportMetric(float64(len(table.Rules)), "rules")
			b.ReportMetric(float64(table.Bytes())/rows, "bytes/row")
			b.ReportMetric(float64(table.Bytes())/float64(table.Stats.Source), "bytes/source-byte")
		})
	}
}

func BenchmarkLookup(b *testing.B) {
	for _, path := range benchFiles(b) {
		b.Run(path, func(b *testing.B) {
			f, err := elffile.Open(path)
			if err != nil {
				b.Fatal(err)
			}
			defer f.Close()
			table, err := Compile(f, Options{})
			if err != nil {
				b.Fatal(err)
			}
			s := table.Segments[0]
			addr := uint64(0)
			for b.Loop() {
				table.Lookup(s.Addr + addr%s.Size)
				addr += 0x9e3779b1
			}
		})
	}
}

func benchFiles(b *testing.B) []string {
	if paths := os.Getenv("FULGUR_UNWIND_FILES"); paths != "" {
		return strings.Fields(paths)
	}
	for _, path := range []string{"/lib/x86_64-linux-gnu/libc.so.6", "/lib/aarch64-linux-gnu/libc.so.6", "/lib64/libc.so.6"} {
		if _, err := os.Stat(path); err == nil {
			return []string{path}
		}
	}
	testenv.Skip(b, "needs a C library in one of its usual places")
	return nil
}
