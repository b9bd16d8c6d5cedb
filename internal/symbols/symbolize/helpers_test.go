package symbolize

import (
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"testing"

	"fulgur/internal/testenv"
)

// openFile opens the ELF file at path and closes it when the test ends.
func openFile(t testing.TB, path string, opts Options) *ELF {
	t.Helper()
	f, err := os.Open(testenv.File(t, path))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	e, err := OpenELF(f, info.Size(), path, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// run runs a tool and returns its standard output. The test is skipped if the tool is not
// installed.
func run(t testing.TB, stdin, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(testenv.Tool(t, name), args...)
	cmd.Stdin = strings.NewReader(stdin)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", cmd, err)
	}
	return string(out)
}

// compile writes source to a file with the given name and runs the tool on it,
// with the output path and the source path for OUT and IN in args.
func compile(t testing.TB, name, source, tool string, args ...string) string {
	t.Helper()
	dir := t.TempDir()
	in, out := filepath.Join(dir, name), filepath.Join(dir, "out")
	if err := os.WriteFile(in, []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	for i, a := range args {
		args[i] = strings.NewReplacer("OUT", out, "IN", in).Replace(a)
	}
	run(t, "", tool, args...)
	return out
}

// nmSymbol is a line of nm -S.
type nmSymbol struct {
	addr, size uint64
	typ        byte
	name       string
}

// nm returns the functions with a size in nm's output, sorted by address.
func nm(t testing.TB, args ...string) []nmSymbol {
	t.Helper()
	var syms []nmSymbol
	for line := range strings.Lines(run(t, "", "nm", append([]string{"-S"}, args...)...)) {
		f := strings.Fields(line)
		if len(f) != 4 || !strings.Contains("tTwWi", f[2]) {
			continue
		}
		addr, _ := strconv.ParseUint(f[0], 16, 64)
		size, _ := strconv.ParseUint(f[1], 16, 64)
		name, _, _ := strings.Cut(f[3], "@")
		syms = append(syms, nmSymbol{addr, size, f[2][0], name})
	}
	sort.SliceStable(syms, func(i, j int) bool { return syms[i].addr < syms[j].addr })
	if len(syms) == 0 {
		t.Fatalf("nm %s: got no functions", args)
	}
	return syms
}

// checkNM looks up the middle of each function in syms and expects one of nm's names for
// its start.
func checkNM(t *testing.T, e *ELF, syms []nmSymbol) {
	t.Helper()
	addrs := make([]uint64, len(syms))
	for i, s := range syms {
		addrs[i] = s.addr + s.size/2
	}
	sort.Slice(addrs, func(i, j int) bool { return addrs[i] < addrs[j] })
	frames, err := e.LookupBatch(addrs)
	if err != nil {
		t.Fatal(err)
	}
	names := map[uint64][]string{}
	for _, s := range syms {
		names[s.addr] = append(names[s.addr], s.name)
	}
	wrong := 0
	for i, addr := range addrs {
		if len(frames[i]) == 0 {
			t.Errorf("%#x: got no frames", addr)
			continue
		}
		f := frames[i][len(frames[i])-1]
		found := false
		for _, n := range names[addr-f.Offset] {
			found = found || n == f.SystemName
		}
		if !found {
			if wrong++; wrong <= 10 {
				t.Errorf("%#x: got %s+%#x, want one of nm's %v", addr, f.SystemName, f.Offset, names[addr-f.Offset])
			}
		}
	}
	t.Logf("%d functions, %d wrong", len(addrs), wrong)
}

// lookup returns the outermost frame at addr.
func lookup(t testing.TB, table Table, addr uint64) Frame {
	t.Helper()
	frames, err := table.LookupBatch([]uint64{addr})
	if err != nil {
		t.Fatal(err)
	}
	if len(frames) != 1 || len(frames[0]) == 0 {
		t.Fatalf("%#x: got no frames", addr)
	}
	return frames[0][len(frames[0])-1]
}
