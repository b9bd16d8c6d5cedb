package code_test

import (
	"bytes"
	"debug/elf"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/internal/profile"
	"fulgur/internal/profile/code"
	"fulgur/internal/symbols/debugfile"
	"fulgur/internal/symbols/symbolize"
	"fulgur/internal/testenv"
)

// text is a program in two files, with an inlined function and another one.
const (
	header = "static inline int twice(volatile int *p) { return *p * 2; }\n"
	text   = `#include "twice.h"
__attribute__((noinline)) int work(volatile int *p) {
	int sum = 0;
	for (int i = 0; i < 100; i++)
		sum += twice(p);
	return sum;
}
int main(void) { int n = 1; return work(&n) == 200 ? 0 : 1; }
`
)

// program is a compiled program.
type program struct {
	dir, path string
	work      elf.Symbol
}

func build(t *testing.T, flags ...string) program {
	t.Helper()
	cc := testenv.Tool(t, "gcc")
	dir := t.TempDir()
	for name, contents := range map[string]string{"work.c": text, "twice.h": header, "secret": "not source\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(contents), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	p := program{dir: dir, path: filepath.Join(dir, "work")}
	run(t, cc, append(flags, "-g", "-O2", "-Wl,--build-id", "-o", p.path, filepath.Join(dir, "work.c"))...)
	for _, s := range testenv.Symbols(t, p.path) {
		if s.Name == "work" {
			p.work = s
		}
	}
	return p
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
}

// finder returns a finder of debug files below the directory host.
func finder(t *testing.T, host string, env map[string]string) *debugfile.Finder {
	t.Helper()
	f, err := debugfile.New(debugfile.Config{Host: host, Release: "test", Getenv: func(key string) string { return env[key] }})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func open(t *testing.T, path, buildID string) *code.File {
	t.Helper()
	f, err := code.Open(t.Context(), finder(t, t.TempDir(), nil), path, buildID, symbolize.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestFunction(t *testing.T) {
	for name, flags := range map[string][]string{"pie": {"-pie"}, "fixed": {"-no-pie"}} {
		t.Run(name, func(t *testing.T) {
			p := build(t, flags...)
			f := open(t, p.path, "")
			want := code.Function{Name: "work", Start: p.work.Value, Size: p.work.Size}
			for _, at := range []uint64{want.Start, want.Start + 1, want.Start + want.Size - 1} {
				got, err := f.Function(at)
				if err != nil || got != want {
					t.Errorf("at %#x: got %+v, %v; want %+v", at, got, err, want)
				}
			}
			if fixed := f.Base() != 0; fixed != (name == "fixed") {
				t.Errorf("%s program: got base %#x", name, f.Base())
			}
			if _, err := f.Function(1); !errors.Is(err, code.ErrNoFunction) {
				t.Errorf("function at 1: got %v, want %v", err, code.ErrNoFunction)
			}
		})
	}
}

func TestDisassemble(t *testing.T) {
	p := build(t)
	f := open(t, p.path, "")
	list, err := f.Disassemble(t.Context(), p.work.Value, p.work.Size)
	if err != nil {
		t.Fatal(err)
	}
	at := p.work.Value
	var all strings.Builder
	for _, i := range list {
		if i.Address != at {
			t.Errorf("got an instruction at %#x, want %#x", i.Address, at)
		}
		at += uint64(i.Size)
		all.WriteString(i.Text + "\n")
	}
	if at != p.work.Value+p.work.Size {
		t.Errorf("got the end %#x, want %#x", at, p.work.Value+p.work.Size)
	}
	if !strings.Contains(all.String(), "<work+0x") || !strings.Contains(all.String(), "ret\n") {
		t.Errorf("got no branch within work, or no return, in\n%s", &all)
	}
	for _, at := range []uint64{0x10000000, ^uint64(0)} {
		if list, err := f.Disassemble(t.Context(), at, 16); err == nil {
			t.Errorf("at %#x: got %+v, want an error", at, list)
		}
	}
}

func TestExecutable(t *testing.T) {
	p := build(t)
	f := open(t, p.path, "")
	for _, test := range []struct{ start, end uint64 }{{p.work.Value, p.work.Value + 1}, {0, p.work.Value + 1}, {p.work.Value, ^uint64(0)}} {
		from, to := f.Executable(test.start, test.end)
		if from > p.work.Value || to <= p.work.Value || from < test.start || to > test.end {
			t.Errorf("executable part of %#x to %#x: got %#x to %#x, want it to contain work", test.start, test.end, from, to)
		}
	}
	for _, none := range []struct{ start, end uint64 }{{0, 1}, {^uint64(0) - 1, ^uint64(0)}, {p.work.Value, p.work.Value}, {p.work.Value, 0}} {
		if from, to := f.Executable(none.start, none.end); from != 0 || to != 0 {
			t.Errorf("executable part of %#x to %#x: got %#x to %#x, want none", none.start, none.end, from, to)
		}
	}
}

// inside returns the addresses of a function.
func (p program) inside() (list []uint64) {
	for at := p.work.Value; at < p.work.Value+p.work.Size; at++ {
		list = append(list, at)
	}
	return list
}

// Source reads only files that the debug info names at the given addresses.
func TestSource(t *testing.T) {
	p := build(t)
	f := open(t, p.path, "")
	for name, want := range map[string]string{"work.c": text, "twice.h": header} {
		s, err := f.Source(filepath.Join(p.dir, name), p.inside()...)
		if err != nil || s.Text != want || s.Modified.IsZero() {
			t.Errorf("%s: got %q, %v; want the source", name, s.Text, err)
		}
	}
	for _, file := range []string{
		"", "/etc/passwd", "../../../../etc/passwd", filepath.Join(p.dir, "secret"), "secret", "work.c",
		filepath.Join(p.dir, "work.c") + "/../secret", filepath.Join(p.dir, ".", "work.c") + "/", p.dir + "//work.c",
		filepath.Join(p.dir, "work.c") + "\x00", p.path,
	} {
		if s, err := f.Source(file, p.inside()...); !errors.Is(err, code.ErrNotNamed) || s.Text != "" {
			t.Errorf("%q: got %q, %v; want ErrNotNamed", file, s.Text, err)
		}
	}
	// The C library's start code was not compiled from this file.
	for _, at := range []uint64{0, 1, ^uint64(0)} {
		if _, err := f.Source(filepath.Join(p.dir, "work.c"), at); !errors.Is(err, code.ErrNotNamed) {
			t.Errorf("at %#x: got %v, want %v", at, err, code.ErrNotNamed)
		}
	}
}

// If a file that is not text replaces a source file, Source neither returns it nor blocks
// on it.
func TestSourceReplaced(t *testing.T) {
	p := build(t)
	f := open(t, p.path, "")
	name := filepath.Join(p.dir, "work.c")
	replace := map[string]func() error{
		"pipe":      func() error { return unix.Mkfifo(name, 0o600) },
		"directory": func() error { return os.Mkdir(name, 0o700) },
		"device":    func() error { return os.Symlink("/dev/zero", name) },
		"binary":    func() error { return os.WriteFile(name, []byte("a\x00b"), 0o600) },
		"nothing":   func() error { return nil },
	}
	for what, put := range replace {
		if err := os.RemoveAll(name); err != nil {
			t.Fatal(err)
		}
		if err := put(); err != nil {
			t.Fatal(err)
		}
		if s, err := f.Source(name, p.inside()...); err == nil || s.Text != "" {
			t.Errorf("%s: got %q, %v; want an error", what, s.Text, err)
		}
	}
}

func TestOtherBuild(t *testing.T) {
	p := build(t)
	id := open(t, p.path, "").BuildID()
	if len(id) != 40 {
		t.Fatalf("got build ID %q, want 40 digits", id)
	}
	open(t, p.path, id)
	open(t, p.path+" (deleted)", id)
	for _, other := range []struct{ path, id, want string }{
		{p.path, strings.Repeat("0", 39) + "1", "another build"},
		{p.path + " (deleted)", "", "was deleted"},
		{"work", id, "not a file"},
		{"[vdso]", "", "no build ID"},
		{"[vdso]", id, "another build"},
		{"[stack]", id, "not a file"},
		{p.dir, "", "not a regular file"},
		{filepath.Join(p.dir, "work.c"), "", "work.c"},
	} {
		f, err := code.Open(t.Context(), finder(t, t.TempDir(), nil), other.path, other.id, symbolize.Options{})
		if err == nil {
			f.Close()
			t.Errorf("got no error for %s, %s", other.path, other.id)
		} else if !strings.Contains(err.Error(), other.want) {
			t.Errorf("%s, %s: got %v, want %q", other.path, other.id, err, other.want)
		}
	}
}

// The vDSO of a profile is this machine's if the build ID is the same.
func TestVDSO(t *testing.T) {
	vdso, err := symbolize.OpenVDSO(symbolize.Options{})
	if err != nil {
		t.Fatal(err)
	}
	f := open(t, code.VDSO, vdso.BuildID())
	binary, ok := f.ELF()
	if !ok || binary.BuildID() != vdso.BuildID() {
		t.Fatalf("got ELF file %v, %v; want the vDSO", binary, ok)
	}
	at := binary.Entry()
	if offset, ok := binary.Offset(at); !ok {
		t.Errorf("got no offset of the entry %#x", at)
	} else if got, ok := f.Address(offset); !ok || got != at {
		t.Errorf("got address %#x (%v) of offset %#x, want %#x", got, ok, offset, at)
	}
}

// If the program is missing, names and sources come from its debug file, in
// /usr/lib/debug or from a server.
func TestDebugFileAlone(t *testing.T) {
	p := build(t, "-no-pie")
	id := open(t, p.path, "").BuildID()
	debug := filepath.Join(p.dir, "work.debug")
	run(t, testenv.Tool(t, "objcopy"), "--only-keep-debug", p.path, debug)
	contents, err := os.ReadFile(debug)
	if err != nil {
		t.Fatal(err)
	}
	host := t.TempDir()
	dir := filepath.Join(host, "usr", "lib", "debug", ".build-id", id[:2])
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, id[2:]+".debug"), contents, 0o644); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/buildid/"+id+"/debuginfo" {
			http.NotFound(w, r)
			return
		}
		http.ServeContent(w, r, "", p.modified(t), bytes.NewReader(contents))
	}))
	defer server.Close()
	for name, finder := range map[string]*debugfile.Finder{
		"installed":  finder(t, host, nil),
		"downloaded": finder(t, t.TempDir(), map[string]string{"DEBUGINFOD_URLS": server.URL, "DEBUGINFOD_CACHE_PATH": t.TempDir()}),
	} {
		t.Run(name, func(t *testing.T) {
			f, err := code.Open(t.Context(), finder, "/nowhere/work", id, symbolize.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			fn, err := f.Function(p.work.Value + 2)
			if want := (code.Function{Name: "work", Start: p.work.Value, Size: p.work.Size}); err != nil || fn != want {
				t.Errorf("got function %+v, %v; want %+v", fn, err, want)
			}
			if s, err := f.Source(filepath.Join(p.dir, "twice.h"), p.inside()...); err != nil || s.Text != header {
				t.Errorf("got source %q, %v; want %q", s.Text, err, header)
			}
			if _, err := f.Disassemble(t.Context(), fn.Start, fn.Size); err == nil || !strings.Contains(err.Error(), "not here") {
				t.Errorf("instructions without the program: got %v, want %q in it", err, "not here")
			}
		})
	}
	if _, err := code.Open(t.Context(), finder(t, host, nil), "/nowhere/work", "../"+id, symbolize.Options{}); err == nil {
		t.Error("got no error for a path as a build ID")
	}
}

func (p program) modified(t *testing.T) time.Time {
	t.Helper()
	info, err := os.Stat(p.path)
	if err != nil {
		t.Fatal(err)
	}
	return info.ModTime()
}

func TestSources(t *testing.T) {
	p := build(t)
	work, secret := filepath.Join(p.dir, "work.c"), filepath.Join(p.dir, "secret")
	b := profile.NewBuilder(profile.ValueType{Type: "samples", Unit: "count"})
	add := func(path, file string) {
		b.Add(profile.Sample{Stack: b.Push(0, b.Frame(profile.Frame{
			Mapping:  b.Mapping(profile.Mapping{Path: path}),
			Function: b.Function(profile.Function{Name: "f", File: file}),
			Address:  p.work.Value + p.work.Size, Return: true,
		})), CPU: -1, Values: []int64{1}, Task: b.Task(profile.Task{PID: 1, Comm: "work"})})
	}
	add(p.path, work)
	add(p.path, secret)
	add("/nowhere/work", "/etc/passwd")
	library := code.NewLibrary(t.Context(), finder(t, t.TempDir(), nil), symbolize.Options{})
	defer library.Close()
	texts, problems := library.Sources(b.Profile(profile.Meta{}, profile.Losses{}))
	if len(texts) != 1 || texts[work] != text {
		t.Errorf("got sources %q, want work.c alone", texts)
	}
	var messages []string
	for _, p := range problems {
		messages = append(messages, p.Error())
	}
	for _, want := range []string{secret, "/etc/passwd", "/nowhere/work"} {
		if !strings.Contains(strings.Join(messages, "\n"), want) {
			t.Errorf("got problems %q, want one about %s", messages, want)
		}
	}
}
