package unwindmap

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"fulgur/internal/process"
	"fulgur/internal/symbols/elffile"
	"fulgur/internal/testenv"
	"fulgur/internal/unwind"
)

// TestLoaderPart has a program with so much code without unwind information that its analysis comes later.
// Until then, only that code is pending.
func TestLoaderPart(t *testing.T) {
	dir := t.TempDir()
	source, program := filepath.Join(dir, "program.c"), filepath.Join(dir, "program")
	if err := os.WriteFile(source, []byte(`
__asm__(".globl bare\n.type bare, @function\nbare: .rept 40000\npush %rbx\npush %rcx\npop %rcx\npop %rbx\n.endr\nret");
extern int getchar(void), putchar(int), fflush(void *);
void bare(void);
int main(int argc, char **argv)
{
	bare();
	for (int c; (c = getchar()) >= 0; fflush(0))
		putchar(c);
}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(testenv.Tool(t, "gcc"), "-O2", "-o", program, source).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	open, err := elffile.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = open.Close() }()
	whole, err := unwind.Compile(open, unwind.Options{})
	if err != nil {
		t.Fatal(err)
	}
	quick, err := unwind.Compile(open, unwind.Options{Quick: true})
	if err != nil {
		t.Fatal(err)
	}
	if len(quick.Unanalyzed) == 0 || len(whole.Unanalyzed) > 0 {
		t.Fatalf("got unanalyzed ranges %v and %v, want some and none", quick.Unanalyzed, whole.Unanalyzed)
	}

	f := newFixture(t, testConfig)
	f.mu.Lock()
	f.analyzing = true // the worker for such code is busy
	f.mu.Unlock()
	table := process.NewTable(process.Options{})
	defer func() { _ = table.Close() }()
	maps := table.Mappings(started(t, program))
	f.Request(1, 10, maps)
	f.wait(t)
	i := slices.IndexFunc(maps, func(m process.Mapping) bool { return m.Kind == process.KindFile && m.File.Path == program })
	if i < 0 {
		t.Fatalf("got no mapping of the program in %+v", maps)
	}
	m := maps[i]
	check := func(pending bool) {
		t.Helper()
		seen := 0
		for off := m.Offset; off < m.Offset+m.Limit-m.Start; off++ {
			link, ok := whole.Address(off)
			if !ok {
				continue
			}
			got, err := f.kernel.find(1, m.Start+off-m.Offset)
			if pending && slices.ContainsFunc(quick.Unanalyzed, func(r unwind.Range) bool { return r.Start <= link && link < r.End }) {
				if seen++; !errors.Is(err, errPending) {
					t.Fatalf("%#x: got rule %d, %v for code that is not analyzed, want %v", link, got, err, errPending)
				}
				continue
			}
			want := whole.Lookup(link)
			same := f.kernel.rules[got] == want
			if want.Kind == unwind.KindChain {
				same = got == ruleChain
			}
			if err != nil || !same {
				t.Fatalf("%#x: got rule %v, %v, want %v", link, f.kernel.rules[got], err, want)
			}
		}
		if pending != (seen > 0) {
			t.Errorf("got %d addresses of code that is not analyzed", seen)
		}
	}
	check(true)
	// The kernel's requests for that code change nothing.
	before := f.kernel.processes[1]
	f.Request(1, 10, maps)
	if got := f.kernel.processes[1]; got != before {
		t.Errorf("got another layout %+v after a request, want %+v", got, before)
	}
	past := f.Past(maps)
	defer past.Close()
	using := func(late bool) bool {
		t.Helper()
		ok, err := past.Using(late, func(uint64) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		return ok
	}
	if using(false) || !using(true) {
		t.Error("a copied stack does not wait for the code's rules, or not even if they are late")
	}

	words := f.part(t, program).words
	f.mu.Lock()
	f.analyzing = false
	f.hire(1)
	f.mu.Unlock()
	f.working.Wait()
	check(false)
	if !using(false) {
		t.Error("a copied stack still waits")
	}
	// The part's words are free once no layout has them.
	f.settleAll(t)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pages.mu.Lock()
	defer f.pages.mu.Unlock()
	if !slices.ContainsFunc(f.pages.words.free, func(r run) bool { return r.start <= words.start && words.start+words.n <= r.start+r.n }) {
		t.Errorf("got free words %v, want also %v", f.pages.words.free, words)
	}
}

// part returns the part of a file's table.
func (f *fixture) part(t *testing.T, path string) *file {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for key, file := range f.files {
		if key.kind == process.KindFile && key.file.Path == path {
			return file.part
		}
	}
	t.Fatalf("got no file %s", path)
	return nil
}
