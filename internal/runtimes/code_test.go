package runtimes

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
	"unsafe"

	"fulgur/internal/bpf"
	"fulgur/internal/linux/ringbuf"
)

// record returns a code record with lines as its line table.
func record(fill func(r *bpf.CodeHead), lines []byte) []byte {
	r := new(bpf.CodeHead)
	fill(r)
	return slices.Concat(unsafe.Slice((*byte)(unsafe.Pointer(r)), codeHead), lines)
}

func TestParseCode(t *testing.T) {
	b := record(func(r *bpf.CodeHead) {
		r.Epoch, r.Address, r.Check, r.Kind, r.Version, r.FirstLine = 1, 2, 3, 4, 5, 6
		r.Name.Length, r.Name.Width = 5, 2
		copy(r.NameText[:], "f\x00\xfc\x00n\x00\x00\xd8\x51\x20")
		r.File.Length, r.File.Width = 300, 1
		copy(r.FileText[:], strings.Repeat("\xe9", 256))
		r.Lines = 3
	}, []byte("abc"))
	id, code, err := ParseCode(b)
	if err != nil {
		t.Fatal(err)
	}
	want := Code{Kind: 4, Name: "fün\ufffd\u2051", File: strings.Repeat("é", 256) + "…", FirstLine: 6, Version: 5, Lines: "abc"}
	if (id != Identity{1, 2, 3}) || code != want {
		t.Errorf("got %+v, %+v, want %+v", id, code, want)
	}
	for _, b := range [][]byte{nil, b[:codeHead-1], b[:len(b)-1]} {
		if _, _, err := ParseCode(b); !errors.Is(err, ringbuf.ErrRecord) {
			t.Errorf("%d bytes: got error %v, want %v", len(b), err, ringbuf.ErrRecord)
		}
	}
}

// A text in UTF-8 is cut between characters.
func TestTextUTF8(t *testing.T) {
	for _, test := range []struct {
		text   string
		length uint32
		want   string
	}{
		{"fünf関数", 11, "fünf関数"},
		{"fünf関数", 5, "fünf"},
		{"f\xff", 2, "f\ufffd"},
		{"fü", 300, "fü…"},
		{"f\xc3", 300, "f…"},
		{"関\xe6\x95", 300, "関…"},
		{"", 300, "…"},
		{"f\x00\x00", 3, "f…"},
		{"f\x00g", 1, "f"},
		{"\x80\x80\x80\x80\x80", 300, "\ufffd…"},
	} {
		if got := Text([]byte(test.text), test.length, 0); got != test.want {
			t.Errorf("%q, %d bytes: got %q, want %q", test.text, test.length, got, test.want)
		}
	}
}

func FuzzParseCode(f *testing.F) {
	f.Add(uint32(300), uint32(0), uint32(9), []byte("fünf関数"))
	f.Add(uint32(3), uint32(1), uint32(9), []byte("name"))
	f.Add(uint32(1<<31), uint32(1<<31), uint32(1<<31), []byte{0xff, 0xd8, 0, 0})
	f.Fuzz(func(t *testing.T, length, width, lines uint32, text []byte) {
		b := record(func(r *bpf.CodeHead) {
			r.Name.Length, r.Name.Width, r.File.Length, r.File.Width = length, width, width, length
			copy(r.NameText[:], text)
			copy(r.FileText[:], text)
			r.Lines = lines
		}, text[:len(text)%100])
		_, code, err := ParseCode(b)
		if (err == nil) != (int(lines) <= len(text)%100) {
			t.Errorf("got error %v, want one if the record is too short for the lines", err)
		}
		if !utf8.ValidString(code.Name) || len(code.Name) > 4*len(bpf.CodeHead{}.NameText) {
			t.Errorf("got name %q, want bounded UTF-8", code.Name)
		}
	})
}
