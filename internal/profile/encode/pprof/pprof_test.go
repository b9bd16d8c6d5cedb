package pprof

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	pb "github.com/google/pprof/profile"

	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/encodetest"
	"fulgur/internal/testenv"
)

// TestWrite compares the output, decoded and formatted by the pprof library, with golden
// files. Compressed bytes would depend on the Go release.
func TestWrite(t *testing.T) {
	for _, c := range []struct {
		golden string
		p      *profile.Profile
	}{
		{"typical.txt", encodetest.Typical()},
		{"threads.txt", encodetest.Threads()},
		{"owners.txt", encodetest.Owners()},
		{"symbols.txt", encodetest.Symbols()},
		{"hostile.txt", encodetest.Hostile()},
		{"empty.txt", encodetest.Empty()},
	} {
		t.Run(c.golden, func(t *testing.T) {
			got := roundTrip(t, c.p, Options{})
			encodetest.Golden(t, c.golden, []byte(got.String()))
			for i := range c.p.ValueTypes {
				var sum int64
				for _, s := range got.Sample {
					sum += s.Value[i]
				}
				if want := c.p.Total(i); sum != want {
					t.Errorf("value %d: got a sum of %d, want %d", i, sum, want)
				}
			}
		})
	}
}

// TestWriteStacks compares each stack's functions with the profile's.
func TestWriteStacks(t *testing.T) {
	p := encodetest.Typical()
	got := roundTrip(t, p, Options{})
	for i, s := range p.Samples {
		var want, have []string
		for _, f := range p.AppendFrames(nil, s.Stack) {
			if p.Frames[f].Function == 0 {
				want = append(want, "")
			} else {
				want = append(want, p.FrameName(f))
			}
		}
		for _, l := range got.Sample[i].Location {
			if len(l.Line) == 0 {
				have = append(have, "")
			}
			for _, line := range l.Line {
				have = append(have, line.Function.Name)
			}
		}
		if a, b := strings.Join(have, "\n"), strings.Join(want, "\n"); a != b {
			t.Errorf("sample %d: got stack\n%s\nwant\n%s", i, a, b)
		}
	}
}

// TestCallerAddresses checks that return addresses are written as addresses within the
// call, and that frames interrupted by the kernel or a signal keep theirs.
func TestCallerAddresses(t *testing.T) {
	b := profile.NewBuilder(profile.ValueType{Type: "samples", Unit: "count"})
	task := b.Task(profile.Task{PID: 1, Comm: "init"})
	var s profile.StackID
	for _, f := range []profile.Frame{
		{Address: 0x100, Return: true},
		{Address: 0x200}, // a signal
		{Address: 0x300, Return: true},
		{Address: 0x400}, // a system call
		{Address: 0x500, Return: true, Kind: profile.KindKernel},
		{Address: 0x600, Kind: profile.KindKernel},
	} {
		s = b.Push(s, b.Frame(f))
	}
	b.Add(profile.Sample{Stack: s, Task: task, CPU: -1, Values: []int64{1}})
	var got []uint64
	for _, l := range roundTrip(t, b.Profile(profile.Meta{}, profile.Losses{}), Options{}).Sample[0].Location {
		got = append(got, l.Address)
	}
	if want := []uint64{0x600, 0x4ff, 0x400, 0x2ff, 0x200, 0xff}; !slices.Equal(got, want) {
		t.Errorf("got addresses %#x, want %#x", got, want)
	}
}

func TestWriteIsDeterministic(t *testing.T) {
	var first, second bytes.Buffer
	for _, out := range []*bytes.Buffer{&first, &second} {
		if err := Write(out, encodetest.Large(500), Options{}); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("equal profiles are encoded differently")
	}
}

// TestGoToolPprof reads the file with go tool pprof, as users will.
func TestGoToolPprof(t *testing.T) {
	file := writeFile(t, encodetest.Typical())
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"-top", "-sample_index=samples"}, []string{
			`Duration: 10s, Total samples = 100`,
			`(?m)^ +30 30.00% .* 30 30.00%  peek \(inline\)$`,
			`(?m)^ +12 12.00% .* 51 51.00%  http::Server::handle`,
			`(?m)^ +9 +9.00% .* 9 +9.00%  walk$`,
		}},
		{[]string{"-top"}, []string{`Type: cpu`, `Total samples = 1010.10ms`}},
		{[]string{"-top", "-lines", "-sample_index=samples"}, []string{
			`(?m)^ +30 30.00% .* 30 30.00%  peek /src/server/parse.h:4 \(inline\)$`,
			`(?m)^ +12 12.00% .* 51 51.00%  http::Server::handle\(http::Request const&\) /src/server/http.cc:52$`,
		}},
		{[]string{"-top", "-files", "-sample_index=samples"}, []string{
			`(?m)^ +30 30.00% .* 30 30.00%  /src/server/parse.h`,
		}},
		{[]string{"-peek=^peek$", "-sample_index=samples"}, []string{
			`(?m)^ +30 +100% \| +std::vector<int, std::allocator<int>> parse<int>\(char const\*\) \(inline\)\n +30 30.00% .* \| peek`,
		}},
		{[]string{"-raw"}, []string{
			`PeriodType: cpu nanoseconds`,
			`Period: 10101010`,
			`stack_end:\[depth limit\]`,
			`/usr/bin/server 5f1c0de0a1b2c3d4e5f60718293a4b5c6d7e8f90`,
		}},
		{[]string{"-comments"}, []string{`fulgur profile -F 99 10`, `3 samples lost`}},
		{[]string{"-tags"}, []string{`(?s)comm:.*server.*pid:.*4242`}},
	} {
		text := goToolPprof(t, append(append([]string{"-symbolize=none"}, c.args...), file)...)
		for _, want := range c.want {
			if !regexp.MustCompile(want).MatchString(text) {
				t.Errorf("pprof %s: got no match for %q in\n%s", strings.Join(c.args, " "), want, text)
			}
		}
	}
}

// TestPprofLists annotates sources with pprof: samples count both in an inlined function
// and in its caller.
func TestPprofLists(t *testing.T) {
	dir := t.TempDir()
	source := filepath.Join(dir, "source.c")
	text := "static int square(int n)\n{\n\treturn n * n;\n}\n\nint hot(int n)\n{\n\treturn square(n);\n}\n"
	if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	b := profile.NewBuilder(profile.ValueType{Type: "samples", Unit: "count"})
	m := b.Mapping(profile.Mapping{Path: "/bin/hot"})
	frame := func(name string, start, line int, inlined bool) profile.FrameID {
		f := b.Function(profile.Function{Name: name, SystemName: name, File: source, StartLine: start})
		return b.Frame(profile.Frame{Function: f, Mapping: m, Address: 0x1234, Line: line, Inlined: inlined})
	}
	s := b.Push(b.Push(0, frame("hot", 6, 8, false)), frame("square", 1, 3, true))
	b.Add(profile.Sample{Stack: s, Task: b.Task(profile.Task{PID: 1, Comm: "hot"}), CPU: -1, Values: []int64{7}})
	file := writeFile(t, b.Profile(profile.Meta{}, profile.Losses{}))
	listed := goToolPprof(t, "-symbolize=none", "-list=.", file)
	for _, want := range []string{`(?m)^ +7 +7 +3:.*return n \* n;$`, `(?m)^ +\. +7 +8:.*return square\(n\);$`} {
		if !regexp.MustCompile(want).MatchString(listed) {
			t.Errorf("got no match for %q in\n%s", want, listed)
		}
	}
}

// TestPprofFindsAddresses checks that pprof names and disassembles a function that has no
// name in the profile. The addresses are the file's own and the mapping says so, although
// the file was loaded at another address.
func TestPprofFindsAddresses(t *testing.T) {
	gcc := testenv.Tool(t, "gcc")
	dir := t.TempDir()
	source, program := filepath.Join(dir, "source.c"), filepath.Join(dir, "program")
	code := "__attribute__((noinline)) int hot(int n) { return n * n; }\nint main(int n) { return hot(n); }\n"
	if err := os.WriteFile(source, []byte(code), 0o600); err != nil {
		t.Fatal(err)
	}
	if text, err := exec.Command(gcc, "-g", "-pie", "-fPIE", "-o", program, source).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, text)
	}
	address := symbol(t, program, "hot")

	b := profile.NewBuilder(profile.ValueType{Type: "samples", Unit: "count"})
	m := b.Mapping(profile.Mapping{Path: program, Start: 0x555555555000, Limit: 0x555555556000, Offset: 0x1000})
	b.Add(profile.Sample{
		Stack: b.Push(0, b.Frame(profile.Frame{Mapping: m, Address: address})),
		Task:  b.Task(profile.Task{PID: 1, Comm: "hot"}), CPU: -1, Values: []int64{7},
	})
	file := writeFile(t, b.Profile(profile.Meta{}, profile.Losses{}))
	text := goToolPprof(t, "-symbolize=local", "-disasm=hot", file)
	if want := fmt.Sprintf(`(?m)^ +7 +7 +%x: `, address); !regexp.MustCompile(want).MatchString(text) {
		t.Errorf("got no match for %q in\n%s", want, text)
	}
}

// symbol returns the address of a function in an ELF file.
func symbol(t *testing.T, file, name string) uint64 {
	t.Helper()
	f, err := elf.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	symbols, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range symbols {
		if s.Name == name {
			return s.Value
		}
	}
	t.Fatalf("%s has no symbol %s", file, name)
	return 0
}

func TestErrors(t *testing.T) {
	if err := Write(encodetest.FullDisk{}, encodetest.Typical(), Options{}); !errors.Is(err, encodetest.ErrFullDisk) {
		t.Errorf("got error %v, want the writer's", err)
	}
}

// roundTrip writes p and decodes it with the pprof library.
func roundTrip(t testing.TB, p *profile.Profile, o Options) *pb.Profile {
	t.Helper()
	var out bytes.Buffer
	if err := Write(&out, p, o); err != nil {
		t.Fatal(err)
	}
	got, err := pb.Parse(&out)
	if err != nil {
		t.Fatal(err)
	}
	if err := got.CheckValid(); err != nil {
		t.Error(err)
	}
	return got
}

// writeFile writes p to a file and returns its path.
func writeFile(t *testing.T, p *profile.Profile) string {
	t.Helper()
	var out bytes.Buffer
	if err := Write(&out, p, Options{}); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "profile.pb.gz")
	if err := os.WriteFile(file, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// goToolPprof returns the output of go tool pprof.
func goToolPprof(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command(testenv.Tool(t, "go"), append([]string{"tool", "pprof"}, args...)...)
	cmd.Env = append(os.Environ(), "PPROF_TMPDIR="+t.TempDir())
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	text, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, &stderr)
	}
	return string(text)
}

func BenchmarkWrite(b *testing.B) {
	p := encodetest.Large(20_000)
	b.ReportAllocs()
	for b.Loop() {
		if err := Write(io.Discard, p, Options{}); err != nil {
			b.Fatal(err)
		}
	}
}

func TestWriteIsLinear(t *testing.T) {
	encodetest.Linear(t, func(w io.Writer, p *profile.Profile) error { return Write(w, p, Options{}) })
}

// The start of a named function is not written as the address of an instruction.
func TestWriteFunctions(t *testing.T) {
	b := profile.NewBuilder(profile.ValueType{Type: "samples", Unit: "count"})
	f := b.Frame(profile.Frame{
		Function: b.Function(profile.Function{Name: "work"}), Mapping: b.Mapping(profile.Mapping{Path: "/bin/work"}),
		Address: 0x100, AtFunction: true,
	})
	b.Add(profile.Sample{Stack: b.Push(0, f), Task: b.Task(profile.Task{PID: 1, Comm: "work"}), CPU: -1, Values: []int64{1}})
	var out bytes.Buffer
	if err := Write(&out, b.Profile(profile.Meta{}, profile.Losses{}), Options{}); err != nil {
		t.Fatal(err)
	}
	p, err := pb.Parse(&out)
	if err != nil {
		t.Fatal(err)
	}
	if l := p.Location[0]; l.Address != 0 || l.Line[0].Function.Name != "work" {
		t.Errorf("got address %#x of %s, want none of work", l.Address, l.Line[0].Function.Name)
	}
}
