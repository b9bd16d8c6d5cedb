package symbolize

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// variableSources are files with variables of the same names.
var variableSources = map[string]string{
	"a.c": `
static int lock[8];
struct { int first, second[31]; } pool = {1};
extern int alias __attribute__((alias("sized")));
int sized[4] = {1};
static __thread int local = 3;
const int table[64] = {1};
int *a(int i) { static int lock[2]; lock[0] += local; return i ? &lock[1] : (int *)&pool + table[i]; }
int *a2(void) { lock[1]++; return lock; }
`,
	"b.c": `
static int lock[8];
int weak __attribute__((weak));
int *a(int), *a2(void);
int main(void) { lock[2]++; return *a(1) + *a2() + lock[0]; }
`,
}

// buildVariables returns a program of variableSources.
func buildVariables(t *testing.T, flags ...string) string {
	t.Helper()
	dir := t.TempDir()
	args := append([]string{"-O1", "-o", filepath.Join(dir, "program")}, flags...)
	for name, source := range variableSources {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(source), 0o644); err != nil {
			t.Fatal(err)
		}
		args = append(args, path)
	}
	run(t, "", "gcc", args...)
	return filepath.Join(dir, "program")
}

// Every byte of a variable has the name of the variable, by nm, and the distance from its beginning. Variables
// of single files have the names of the files.
func TestVariables(t *testing.T) {
	for name, flags := range map[string][]string{
		"PIE": nil, "fixed address": {"-no-pie"}, "static": {"-static"}, "lld": {"-fuse-ld=lld"},
	} {
		t.Run(name, func(t *testing.T) {
			path := buildVariables(t, flags...)
			e := openFile(t, path, Options{NoDemangle: true})
			names := map[string]nmSymbol{} // by name and address
			var addrs []uint64
			for _, s := range nmVariables(t, path) {
				names[fmt.Sprint(s.name, s.addr)] = s
				addrs = append(addrs, s.addr, s.addr+s.size/2, s.addr+s.size-1)
			}
			got, err := e.Variables(addrs)
			if err != nil {
				t.Fatal(err)
			}
			found := map[string]int{}
			for i, addr := range addrs {
				variable, offset := got[i], uint64(0)
				if at := regexp.MustCompile(`^(.*)\+(0x[0-9a-f]+)$`).FindStringSubmatch(variable); at != nil {
					variable = at[1]
					_, _ = fmt.Sscan(at[2], &offset)
				}
				found[variable]++
				if _, after, local := strings.Cut(variable, ":"); local {
					variable = after
				}
				if s, ok := names[fmt.Sprint(variable, addr-offset)]; !ok || offset >= s.size {
					t.Errorf("%#x: got %q, which nm does not have there", addr, got[i])
				}
			}
			for _, want := range []string{"a.c:lock", "b.c:lock", "pool", "table", "weak"} {
				if found[want] < 3 {
					t.Errorf("got %d addresses in %s, want 3", found[want], want)
				}
			}
			if found["local"] > 0 {
				t.Error("a variable of threads has an address")
			}
		})
	}
}

// nmVariables returns the variables with a size in a program. Those of threads have offsets instead of addresses.
func nmVariables(t *testing.T, path string) (all []nmSymbol) {
	t.Helper()
	threads := map[string]bool{}
	for line := range strings.Lines(run(t, "", "readelf", "-sW", path)) {
		if f := strings.Fields(line); len(f) == 8 && f[3] == "TLS" {
			threads[f[7]] = true
		}
	}
	for line := range strings.Lines(run(t, "", "nm", "-S", "--defined-only", path)) {
		var s nmSymbol
		if n, _ := fmt.Sscanf(line, "%x %x %c %s", &s.addr, &s.size, &s.typ, &s.name); n == 4 &&
			strings.ContainsRune("bBdDrRVu", rune(s.typ)) && s.size > 0 && !threads[s.name] {
			all = append(all, s)
		}
	}
	if len(all) < 5 {
		t.Fatalf("nm has %d variables", len(all))
	}
	return all
}

// Code, and addresses beside all variables, have no variable. Without symbols, none has.
func TestNoVariables(t *testing.T) {
	path := buildVariables(t)
	e := openFile(t, path, Options{})
	var end uint64
	for _, s := range nmVariables(t, path) {
		end = max(end, s.addr+s.size)
	}
	var code uint64
	for _, s := range nm(t, path) {
		code = s.addr
	}
	got, err := e.Variables([]uint64{end + 64, code, 0, 1 << 63})
	if want := make([]string, 4); err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v; want no variables", got, err)
	}
	stripped := filepath.Join(t.TempDir(), "stripped")
	run(t, "", "strip", "-o", stripped, path)
	pool := nmVariables(t, path)[0].addr
	if got, err := openFile(t, stripped, Options{}).Variables([]uint64{pool}); err != nil || got[0] != "" {
		t.Errorf("without symbols: got %q, %v", got, err)
	}
}
