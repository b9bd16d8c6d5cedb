package symbolize

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fulgur/internal/symbols/debugfile/debugfiletest"
)

// splitProgram compiles a program of n sources besides main. Each has a function f0, f1,
// … with an inlined one. The split debug info is next to the program.
func splitProgram(t *testing.T, n int) string {
	t.Helper()
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	args := []string{"-o", program}
	for i := range n {
		source := fmt.Sprintf("extern volatile int v; static inline void in%[1]d(void) { v = %[1]d; v++; } void f%[1]d(void) { in%[1]d(); }\n", i)
		if i == 0 {
			source += "volatile int v; int main(void) { return v; }\n"
		}
		name := filepath.Join(dir, fmt.Sprintf("f%d.c", i))
		if err := os.WriteFile(name, []byte(source), 0o644); err != nil {
			t.Fatal(err)
		}
		object := strings.TrimSuffix(name, ".c") + ".o"
		run(t, "", "gcc", "-O2", "-g", "-gsplit-dwarf", "-c", "-o", object, name)
		args = append(args, object)
	}
	run(t, "", "gcc", args...)
	return program
}

// Without split debug files, functions keep their names but inlined functions are
// missing. One line reports all missing files.
func TestMissingSplit(t *testing.T) {
	const units = 12
	program := splitProgram(t, units)
	dir := filepath.Dir(program)
	var addrs []uint64
	for _, s := range nm(t, program) {
		if strings.HasPrefix(s.name, "f") && len(s.name) < 4 {
			addrs = append(addrs, s.addr)
		}
	}
	lookup := func() (inlined int, err error) {
		e := openFile(t, program, Options{})
		e.Search(t.Context(), debugfiletest.NewFinder(t), "/", program)
		frames, err := e.LookupBatch(addrs)
		for i, f := range frames {
			if len(f) == 0 || f[len(f)-1].Name == "" {
				t.Errorf("%#x: got no name", addrs[i])
			}
			if len(f) > 1 {
				inlined++
			}
		}
		return inlined, err
	}
	if n, err := lookup(); n != units || err != nil {
		t.Errorf("got inlined functions in %d of %d functions, %v; want all", n, units, err)
	}
	remove := func(i int) {
		if err := os.Remove(filepath.Join(dir, fmt.Sprintf("f%d.dwo", i))); err != nil {
			t.Fatal(err)
		}
	}
	text := "%s: %d of 12 split debug files missing (first: %s); no inlined functions there; keep the .dwo files or make a .dwp"
	remove(11)
	n, err := lookup()
	if want := fmt.Sprintf(text, program, 1, dir+"/f11.dwo"); n != 11 || err == nil || err.Error() != want {
		t.Errorf("got inlined functions in %d functions, %v; want 11, %s", n, err, want)
	}
	for i := range 11 {
		remove(i)
	}
	n, err = lookup()
	if want := fmt.Sprintf(text, program, 12, dir+"/f0.dwo"); n != 0 || err == nil || err.Error() != want {
		t.Errorf("got inlined functions in %d functions, %v; want 0, %s", n, err, want)
	}
	// A malformed file is also reported.
	if err := os.WriteFile(program+".dwp", []byte("nonsense"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err = lookup()
	if err == nil || !strings.Contains(err.Error(), program+".dwp") || strings.Count(err.Error(), "\n") != 1 {
		t.Errorf("malformed .dwp file: got %v, want one more line about it", err)
	}
	// So are malformed .dwo files, up to a limit.
	for i := range units {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("f%d.dwo", i)), []byte("nonsense"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	_, err = lookup()
	if err == nil || strings.Count(err.Error(), "\n") != maxSplitProblems {
		t.Errorf("malformed .dwo files: got %v, want a limited number of lines", err)
	}
}
