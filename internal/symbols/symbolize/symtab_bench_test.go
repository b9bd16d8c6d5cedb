package symbolize

import (
	"debug/elf"
	"os"
	"testing"

	"fulgur/internal/symbols/debugfile/debugfiletest"
)

// BenchmarkELF opens the file in FULGUR_BENCH_ELF, or the running test, which has a
// pclntab and a symbol table, and looks up 10 000 of its addresses.
func BenchmarkELF(b *testing.B) {
	path := os.Getenv("FULGUR_BENCH_ELF")
	if path == "" {
		path = "/proc/self/exe"
	}
	f, err := elf.Open(path)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	text := f.Section(".text")
	addrs := make([]uint64, 10_000)
	for i := range addrs {
		addrs[i] = text.Addr + uint64(i)*(text.Size/uint64(len(addrs)))
	}
	for name, opts := range map[string]Options{"inlines": {}, "names": {NoInlines: true}} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				e := openFile(b, path, opts)
				e.Search(b.Context(), debugfiletest.NewFinder(b), "/", path)
				if _, err := e.LookupBatch(addrs); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(len(addrs)*b.N)/b.Elapsed().Seconds(), "addrs/s")
		})
	}
}
