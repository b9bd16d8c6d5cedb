package decode

import (
	"bytes"
	"encoding/binary"
	"io"
	"slices"
	"strings"
	"testing"

	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/encodetest"
	"fulgur/internal/profile/encode/firefox"
	"fulgur/internal/profile/encode/flame"
	"fulgur/internal/profile/encode/otlp"
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
	prefixed := func(messages [][]byte, tool string) (data []byte) {
		for _, m := range messages {
			if tool != "" {
				m = pack(t, tool, m)
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
