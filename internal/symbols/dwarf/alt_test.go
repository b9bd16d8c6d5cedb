package dwarf

import (
	"bufio"
	"bytes"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fulgur/internal/testenv"
)

// addr2line returns addr2line's output for each address: alternating functions and places.
func addr2line(t *testing.T, path string, addrs []uint64) [][]string {
	t.Helper()
	cmd := exec.Command(testenv.Tool(t, "addr2line"), "-a", "-i", "-f", "-e", path)
	cmd.Stdin = hexLines(addrs)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var all [][]string
	sc := bufio.NewScanner(bytes.NewReader(out))
	for sc.Scan() {
		if line := sc.Text(); strings.HasPrefix(line, "0x") {
			all = append(all, nil)
		} else {
			all[len(all)-1] = append(all[len(all)-1], line)
		}
	}
	return all
}

// place formats a frame's file and line like addr2line.
func (f Frame) place() string {
	line := "?"
	if f.Line > 0 {
		line = strconv.Itoa(int(f.Line))
	}
	if f.File == "" {
		return "??:" + line
	}
	return f.File + ":" + line
}

// compareAddr2line compares places at addresses with a function. It does not compare
// names, for which addr2line may use the symbol table.
func compareAddr2line(t *testing.T, path string, d *Data, addrs []uint64) {
	t.Helper()
	got, err := d.LookupBatch(addrs)
	if err != nil {
		t.Error(err)
	}
	compared, chains := 0, 0
	for i, want := range addr2line(t, path, addrs) {
		if len(got[i]) == 0 || got[i][0].Function == nil {
			continue
		}
		compared++
		var places, wantPlaces []string
		for _, f := range got[i] {
			places = append(places, f.place())
		}
		for j := 1; j < len(want); j += 2 {
			p, _, _ := strings.Cut(want[j], " (discriminator")
			wantPlaces = append(wantPlaces, p)
		}
		if places[0] != wantPlaces[0] {
			t.Fatalf("%s: %#x:\n got %q\nwant %q", filepath.Base(path), addrs[i], places, wantPlaces)
		}
		if !slices.Equal(places, wantPlaces) {
			chains++
			t.Logf("%#x:\n got %q\nwant %q", addrs[i], places, wantPlaces)
		}
	}
	if compared == 0 {
		t.Errorf("%s: got no function", filepath.Base(path))
	}
	// All addresses of the program are compared, so this depends only on the compiler and on addr2line.
	if chains > compared/20 {
		t.Errorf("%d of %d inline chains differ", chains, compared)
	}
}

// TestAddr2line compares with addr2line at every address of small programs from GCC.
// Version 2.40 finds no inline chains in Clang's output.
func TestAddr2line(t *testing.T) {
	for _, b := range builds {
		if b.name != "gcc 4 O2" && b.name != "gcc 5 O3" {
			continue
		}
		program := compile(t, b)
		d, err := Open(openSections(t, program, ""), Options{})
		if err != nil {
			t.Fatal(err)
		}
		compareAddr2line(t, program, d, textAddresses(t, program, 1))
	}
}

// TestAlternateFile moves entries and strings of two programs to a shared file with dwz, and
// expects the same results. (llvm-symbolizer cannot read such a file.)
func TestAlternateFile(t *testing.T) {
	tool := testenv.Tool(t, "dwz")
	for _, version := range []string{"4", "5"} {
		one := compile(t, build{cc: "gcc", flags: "-O2 -gdwarf-" + version})
		two := compile(t, build{cc: "gcc", flags: "-O1 -gdwarf-" + version})
		dir := filepath.Dir(one)
		addrs := textAddresses(t, one, 1)
		lookup := func(alt string) ([][]Frame, error) {
			s := openSections(t, one, "")
			if alt != "" {
				s.Alt = openSections(t, alt, "")
			}
			d, err := Open(s, Options{})
			if err != nil {
				return nil, err
			}
			return d.LookupBatch(addrs)
		}
		want, err := lookup("")
		if err != nil {
			t.Fatal(err)
		}
		command(t, dir, tool, "-m", "shared.debug", one, two)
		got, err := lookup(filepath.Join(dir, "shared.debug"))
		if err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("DWARF %s: (-without +with dwz):\n%s", version, diff)
		}
		if _, err := lookup(""); err == nil {
			t.Errorf("DWARF %s: got no error without the shared file", version)
		}
	}
}
