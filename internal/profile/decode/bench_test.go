package decode

import (
	"bytes"
	"io"
	"testing"

	"fulgur/internal/profile/encode/encodetest"
	"fulgur/internal/profile/encode/firefox"
	"fulgur/internal/profile/encode/pprof"
)

func BenchmarkRead(b *testing.B) {
	p := encodetest.Large(20_000)
	for name, data := range map[string][]byte{
		"pprof":   encoded(b, func(w io.Writer) error { return pprof.Write(w, p, pprof.Options{}) }),
		"firefox": encoded(b, func(w io.Writer) error { return firefox.WriteProfile(w, p, firefox.Options{}) }),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := Read(b.Context(), bytes.NewReader(data), "input"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
