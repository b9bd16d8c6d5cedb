package bolt

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestReader reads lines in the formats of all versions.
func TestReader(t *testing.T) {
	const text = "E cycles:u\nS 1f 3\nT 1 2 3 4\n  T 1 2  3 4 2 \nT 1 2 ffffffffffffffff 7\nT 1 2 -1 7\nR 1 2 3 4\nB X:0 A 5 6\nB 0 a 5\nF 1 2 3\nf 1 2 3\nr 1 2 3\n"
	want := "E cycles:u\nS 1f 3\nT 1 2 3 4\nT 1 2 3 4\nB 1 2 0 2\nB 1 2 7 0\nB 1 2 7 0\nR 1 2 3 4\nB 0 a 5 6\nB 0 a 5 0\nF 1 2 3\nf 1 2 3\nr 1 2 3\n"
	var got []byte
	for r := NewReader(strings.NewReader(text), "in"); ; {
		l, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got = l.append(got)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestReaderErrors checks that errors contain the line and the reason.
func TestReaderErrors(t *testing.T) {
	for _, tc := range []struct{ text, want string }{
		{"B 1 2 3 4\n\n", `in:2 (offset 0xa): expected a line of a BOLT profile (E, S, T, R, B, F, f or r), found ""`},
		{"# comment\n", `in:1 (offset 0x0): expected a line of a BOLT profile (E, S, T, R, B, F, f or r), found "#"`},
		{"B 0x1 2 3 4\n", `in:1 (offset 0x0): expected a hexadecimal address, found "0x1"`},
		{"B 1\t2 3 4\n", `in:1 (offset 0x0): expected a hexadecimal address, found "1\t2"`},
		{"B 1 2 3 4\r\n", `in:1 (offset 0x0): expected a count, found "4\r"`},
		{"B 1 2 3 4 5\n", `in:1 (offset 0x0): expected the end of the line, found "5"`},
		{"B 1 2\n", `in:1 (offset 0x0): expected a count, found ""`},
		{"B 1 2 3 4", "in:1 (offset 0x0): no newline at the end: the file is truncated"},
		{"B 1 2 -3 4\n", `in:1 (offset 0x0): expected a count, found "-3"`},
		{"B 1 2 9223372036854775808 4\n", `in:1 (offset 0x0): expected a count, found "9223372036854775808"`},
		{"B 1 11111111111111111 3 4\n", `in:1 (offset 0x0): expected a hexadecimal address, found "11111111111111111"`},
		{"B 1 -4 3 4\n", `in:1 (offset 0x0): expected a hexadecimal address, found "-4"`},
		{"B X:1 2 3 4\n", `in:1 (offset 0x0): address of another file ("X:1"), which LLVM 22 and older misread as an address of this file: write it as 0`},
		{"E\n", "in:1 (offset 0x0): expected the name of an event"},
		{"E " + strings.Repeat("x", maxLine) + "\n", "in:1 (offset 0x0): line of more than 4096 bytes"},
	} {
		_, err := readAll(tc.text)
		var syntax *SyntaxError
		if !errors.As(err, &syntax) || err.Error() != tc.want {
			t.Errorf("%q: got error %v, want %s", tc.text, err, tc.want)
		}
	}
}

func readAll(text string) (lines []Line, err error) {
	for r := NewReader(strings.NewReader(text), "in"); ; {
		l, err := r.Next()
		if errors.Is(err, io.EOF) {
			return lines, nil
		}
		if err != nil {
			return lines, err
		}
		lines = append(lines, l)
	}
}

func input(name, text string) Input { return Input{Name: name, R: strings.NewReader(text)} }

// TestMerge merges sorted and unsorted inputs.
func TestMerge(t *testing.T) {
	const want = "E cycles\nT 1 2 3 7\nB 1 2 1 3\nB 1 3 2 0\nF 1 2 2\nf 1 2 3\n"
	for _, tc := range []struct {
		name   string
		inputs []Input
		want   string
	}{
		{"none", nil, ""},
		{"empty", []Input{input("a", "")}, ""},
		{"sorted", []Input{input("a", "E cycles\nT 1 2 3 4\nB 1 2 1 1\nf 1 2 3\n"), input("b", "E cycles\nT 1 2 3 3\nB 1 2 0 2\nB 1 3 2 0\nF 1 2 2\n")}, want},
		{"unsorted", []Input{input("a", "f 1 2 3\nF 1 2 2\nB 1 3 2 0\nT 1 2 3 4 3\nE cycles\n"), input("b", "B 1 2 1\nT 1 2 3 3\n")}, want},
		{"stream", []Input{{Name: "a", R: io.MultiReader(strings.NewReader(want))}}, want},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out bytes.Buffer
			if err := Merge(&out, tc.inputs, MergeOptions{}); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, out.String()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestMergeParts checks that merging the profiles of two halves gives the profile of the
// whole.
func TestMergeParts(t *testing.T) {
	stacks := randomStacks(200)
	profile := func(stacks [][]Entry) string {
		app, lib := testBinary("app"), testBinary("lib")
		c := NewCollector(Options{})
		defer c.Close()
		c.Register(app)
		for _, s := range stacks {
			if err := c.Add(testLayout(t, app, lib), s); err != nil {
				t.Fatal(err)
			}
		}
		return profiles(t, c)["app"]
	}
	var out bytes.Buffer
	if err := Merge(&out, []Input{input("a", profile(stacks[:100])), input("b", profile(stacks[100:]))}, MergeOptions{}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(profile(stacks), out.String()); diff != "" {
		t.Errorf("(-whole +merged):\n%s", diff)
	}
}

// TestMergeMany uses more temporary files than can be merged at once.
func TestMergeMany(t *testing.T) {
	var lines []Line
	rng := rand.New(rand.NewPCG(1, 1))
	for range 5000 {
		lines = append(lines, Line{Kind: KindTrace, Addr: [3]uint64{uint64(rng.IntN(20)), uint64(rng.IntN(20)), 7}, Count: uint64(rng.IntN(9))})
	}
	var text []byte
	for _, l := range lines {
		text = l.append(text)
	}
	var out, small bytes.Buffer
	if err := Merge(&out, []Input{input("a", string(text))}, MergeOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := Merge(&small, []Input{input("a", string(text))}, MergeOptions{Lines: 10}); err != nil {
		t.Fatal(err)
	}
	if out.String() != small.String() {
		t.Error("got another sum with little memory")
	}
	sums, err := readAll(out.String())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.IsSortedFunc(sums, compareLines) || len(sums) != 400 {
		t.Errorf("got %d lines, sorted: %t; want 400, true", len(sums), slices.IsSortedFunc(sums, compareLines))
	}
}

// TestMergeRefuses checks the errors for incompatible profiles.
func TestMergeRefuses(t *testing.T) {
	a := Input{Name: "a", BuildID: "11", R: strings.NewReader("B 1 2 3 4\n")}
	b := Input{Name: "b", BuildID: "22", R: strings.NewReader("B 1 2 3 4\n")}
	unknown := Input{Name: "u", R: strings.NewReader("")}
	var out bytes.Buffer
	err := Merge(&out, []Input{unknown, a, b}, MergeOptions{})
	var ids *BuildIDError
	if !errors.As(err, &ids) || ids.Name != "a" || ids.Other != "b" {
		t.Errorf("got error %v, want one about the build IDs of a and b", err)
	}
	if err := Merge(&out, []Input{unknown, a, b}, MergeOptions{Force: true}); err != nil || out.String() != "B 1 2 6 8\n" {
		t.Errorf("with Force: got %v, %q; want %q", err, out.String(), "B 1 2 6 8\n")
	}
	out.Reset()
	for _, tc := range []struct{ name, a, b, want string }{
		{"basic", "S 1 2\n", "B 1 2 3 4\n", "a has samples without branches, b has branches: perf2bolt reads one or the other"},
		{"syntax", "B 1 2 3 4\n", "B 1 2 3 4\nB\n", `b:2 (offset 0xa): expected a hexadecimal address, found ""`},
		{"overflow", "S 1 9223372036854775807\n", "S 1 1\n", `sum of counts does not fit into 63 bits in "S 1 9223372036854775807\n"`},
	} {
		if err := Merge(&out, []Input{input("a", tc.a), input("b", tc.b)}, MergeOptions{}); err == nil || err.Error() != tc.want {
			t.Errorf("%s: got error %v, want %s", tc.name, err, tc.want)
		}
	}
	if out.Len() > 0 {
		t.Errorf("got output %q, want none", out.String())
	}
}

func FuzzMerge(f *testing.F) {
	f.Add("E cycles\nT 1 2 3 4\nB 1 2 1 1\nf 1 2 3\n", "F 1 2 3\nT 1 2 -1 5 6\nR 0 1 2 3\n")
	f.Add("S 1 2\n", "S X:0 3\n")
	f.Fuzz(func(t *testing.T, a, b string) {
		var out bytes.Buffer
		if Merge(&out, []Input{input("a", a), input("b", b)}, MergeOptions{Lines: 3}) != nil {
			return
		}
		// The output is canonical: it can be read, and merging it alone does not change
		// it.
		var again bytes.Buffer
		if err := Merge(&again, []Input{{Name: "out", R: bytes.NewReader(out.Bytes())}}, MergeOptions{}); err != nil {
			t.Fatalf("%v in %q", err, out.String())
		}
		if out.String() != again.String() {
			t.Errorf("the merge of one output differs (-once +again):\n%s", cmp.Diff(out.String(), again.String()))
		}
	})
}

// BenchmarkMerge merges two sorted profiles of 100000 lines each.
func BenchmarkMerge(b *testing.B) {
	var text []byte
	for i := range uint64(100_000) {
		text = Line{Kind: KindTrace, Addr: [3]uint64{0x1000 + 16*i, 0x2000, 0x2010}, Count: 7}.append(text)
	}
	b.SetBytes(2 * int64(len(text)))
	for b.Loop() {
		inputs := []Input{{Name: "a", R: bytes.NewReader(text)}, {Name: "b", R: bytes.NewReader(text)}}
		if err := Merge(io.Discard, inputs, MergeOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(200_000*float64(b.N)/b.Elapsed().Seconds(), "lines/s")
}
