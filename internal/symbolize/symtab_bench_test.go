package symbolize

import (
	"debug/elf"
	"os"
	"testing"
)

// BenchmarkELF names a thousand addresses of the file in FULGUR_BENCH_ELF, or
// of the running test, which has Go's table and a symbol table.
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
	addrs := make([]uint64, 1000)
	for i := range addrs {
		addrs[i] = text.Addr + uint64(i)*(text.Size/uint64(len(addrs)))
	}
	b.ReportAllocs()
	for b.Loop() {
		e := openFile(b, path, Options{})
		if _, err := e.LookupBatch(addrs); err != nil {
			b.Fatal(err)
		}
	}
}
