package decode

import (
	"bytes"
	"encoding/binary"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/encodetest"
	"fulgur/internal/profile/encode/firefox"
	"fulgur/internal/profile/encode/flame"
	"fulgur/internal/profile/encode/otlp"
	"fulgur/internal/testenv"
)

// All profiles in a file are read, or none.
func TestSeveral(t *testing.T) {
	parts := []*profile.Profile{encodetest.Typical(), encodetest.Symbols(), encodetest.Typical()}
	var jsons, protos [][]byte
	want := map[string]int64{}
	for _, p := range parts {
		protos = append(protos, encoded(t, func(w io.Writer) error { return otlp.Write(w, p, otlp.Options{}) }))
		jsons = append(jsons, bytes.TrimSpace(encoded(t, func(w io.Writer) error { return otlp.WriteJSON(w, p, otlp.Options{}) })))
		for name, n := range typeTotals(p) {
			want[name] += n
		}
	}
	prefixed := func(messages [][]byte, pack string) (data []byte) {
		for _, m := range messages {
			if pack != "" {
				cmd := exec.Command(testenv.Tool(t, pack), "-c")
				cmd.Stdin = bytes.NewReader(m)
				var err error
				if m, err = cmd.Output(); err != nil {
					t.Fatal(err)
				}
			}
			data = append(binary.BigEndian.AppendUint32(data, uint32(len(m))), m...)
		}
		return data
	}
	for name, c := range map[string]struct {
		data   []byte
		format Format
	}{
		"lines":             {bytes.Join(jsons, []byte("\n")), OTLPJSON},
		"lines with an end": {append(bytes.Join(jsons, []byte("\n\n")), "\n"...), OTLPJSON},
		"without lines":     {bytes.Join(jsons, nil), OTLPJSON},
		"protobuf":          {slices.Concat(protos...), OTLP},
		"messages":          {prefixed(protos, ""), OTLP},
		"messages of JSON":  {prefixed(jsons, ""), OTLP},
		"zstd":              {prefixed(protos, "zstd"), OTLP},
		"JSON with zstd":    {prefixed(jsons, "zstd"), OTLP},
	} {
		got := typeTotals(decoded(t, c.data, c.format))
		for value, n := range want {
			if got[value] != n {
				t.Errorf("%s: got %d %s, want %d", name, got[value], value, n)
			}
		}
		for _, cut := range []int{1, 7, len(c.data) / 2} {
			p, _, err := Read(t.Context(), bytes.NewReader(c.data[:len(c.data)-cut]), "cut")
			if err == nil && typeTotals(p)["samples"] != want["samples"] {
				t.Errorf("%s: without the last %d bytes, got %d samples of %d and no error", name, cut, typeTotals(p)["samples"], want["samples"])
			}
		}
	}

	p := encodetest.Typical()
	for name, one := range map[string][]byte{
		"Firefox": encoded(t, func(w io.Writer) error { return firefox.WriteProfile(w, p, firefox.Options{}) }),
		"a page":  encoded(t, func(w io.Writer) error { return flame.WriteHTML(w, p, flame.Options{}) }),
	} {
		_, _, err := Read(t.Context(), bytes.NewReader(slices.Concat(one, one)), "two")
		if err == nil || !strings.Contains(err.Error(), "split it") {
			t.Errorf("%s twice: got error %v, want that to split it", name, err)
		}
	}
}

// Go's legacy profiles name their functions in comments.
func TestLegacyNames(t *testing.T) {
	const text = "goroutine profile: total 3\n2 @ 0x1001 0x2001\n#\t0x1000\tmain.inner+0x10\t/a/b c.go:7\n#\t0x1000\tmain.(*T).outer[...]+0x10\t/a/b.go:9\n#\t0x2000\tmain.main+0x20\t/a/main.go:3\n\n1 @ 0x2001\n#\t0x2000\tmain.main+0x20\t/a/main.go:3\n"
	p := decoded(t, []byte(text), Pprof)
	const want = "main.main 1\nmain.main;main.(*T).outer[...];main.inner_[i] 2\n"
	if got := fold(t, p, 0); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
