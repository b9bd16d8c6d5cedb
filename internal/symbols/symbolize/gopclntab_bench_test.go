package symbolize

import (
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"fulgur/internal/testenv"
)

// benchmarkGo looks up sorted random addresses of a large Go program, the go command.
func benchmarkGo(b *testing.B, count int) {
	path := testenv.Tool(b, "go")
	if name := os.Getenv("GO_BINARY"); name != "" {
		path = name
	}
	e := openFile(b, path, Options{})
	text := e.File().Section(".text")
	r := rand.New(rand.NewPCG(1, 2))
	addrs := make([]uint64, count)
	for i := range addrs {
		addrs[i] = text.Addr + r.Uint64N(text.Size)
	}
	slices.Sort(addrs)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := e.LookupBatch(addrs); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(count)*float64(b.N)/b.Elapsed().Seconds(), "addresses/s")
}

func BenchmarkGo1000(b *testing.B)    { benchmarkGo(b, 1000) }
func BenchmarkGo10000(b *testing.B)   { benchmarkGo(b, 10_000) }
func BenchmarkGo1000000(b *testing.B) { benchmarkGo(b, 1_000_000) }
