package dwarf

import (
	"strings"
	"testing"

	"fulgur/internal/testenv"
)

// benchProgram returns the program named by the environment, see [TestAgainstLLVM].
func benchProgram(b *testing.B) string {
	programs := testenv.Given(b, "FULGUR_TEST_DWARF")
	path, _, _ := strings.Cut(programs, ":")
	return path
}

// BenchmarkOpen reads the index of addresses.
func BenchmarkOpen(b *testing.B) {
	s := openSections(b, benchProgram(b), "")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Open(s, Options{}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkCold opens a file and looks up 10 000 addresses.
func BenchmarkCold(b *testing.B) {
	path := benchProgram(b)
	s := openSections(b, path, "")
	addrs := randomAddresses(b, path, 10000)
	b.ReportAllocs()
	for b.Loop() {
		d, err := Open(s, Options{})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := d.LookupBatch(addrs); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(len(addrs)*b.N)/b.Elapsed().Seconds(), "addrs/s")
}

// BenchmarkWarm looks up 10 000 addresses again, within a budget large enough to cache
// all their data.
func BenchmarkWarm(b *testing.B) {
	path := benchProgram(b)
	d, err := Open(openSections(b, path, ""), Options{Budget: 64 << 20})
	if err != nil {
		b.Fatal(err)
	}
	addrs := randomAddresses(b, path, 10000)
	if _, err := d.LookupBatch(addrs); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := d.LookupBatch(addrs); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(len(addrs)*b.N)/b.Elapsed().Seconds(), "addrs/s")
}
