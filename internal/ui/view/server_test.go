package view

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fulgur/internal/profile"
	"fulgur/internal/profile/code"
	"fulgur/internal/profile/decode"
	"fulgur/internal/profile/encode/firefox"
	"fulgur/internal/profile/encode/flame"
	"fulgur/internal/profile/encode/pprof"
	"fulgur/internal/profile/timeline/timelinetest"
	"fulgur/internal/symbols/debugfile"
	"fulgur/internal/symbols/elffile"
	"fulgur/internal/symbols/symbolize"
	"fulgur/internal/testenv"
)

// text is the source of the profiled program.
const text = `static inline int twice(volatile int *p) { return *p * 2; }
__attribute__((noinline)) int work(volatile int *p) {
	int sum = 0;
	for (int i = 0; i < 100; i++)
		sum += twice(p);
	return sum;
}
int main(void) { int n = 1; return work(&n) == 200 ? 0 : 1; }
`

// program is a compiled program with a profile of it.
type program struct {
	dir, path, source string
	profile           *profile.Profile
	base, work, size  uint64 // the file's lowest address, and the address and size of function work
}

// build compiles the program and returns it with a profile: 7 samples at the first
// instruction of work, called from main, and 1 sample in main.
func build(t *testing.T) *program {
	t.Helper()
	cc := testenv.Tool(t, "gcc")
	dir := t.TempDir()
	p := &program{dir: dir, path: filepath.Join(dir, "work"), source: filepath.Join(dir, "work.c")}
	if err := os.WriteFile(p.source, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(cc, "-g", "-O2", "-no-pie", "-Wl,--build-id", "-o", p.path, p.source).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	library := code.NewLibrary(t.Context(), nil, symbolize.Options{})
	defer library.Close()
	file, err := library.File(p.path, "")
	if err != nil {
		t.Fatal(err)
	}
	p.base = file.Base()
	b := profile.NewBuilder(profile.ValueType{Type: "samples", Unit: "count"}, profile.ValueType{Type: "cpu", Unit: "nanoseconds"})
	mapping := b.Mapping(profile.Mapping{Path: p.path, BuildID: file.BuildID(), Base: p.base})
	frame := func(name string, into uint64, line int) profile.FrameID {
		at := p.symbol(t, name)
		if name == "work" {
			p.work, p.size = at.Value, at.Size
		}
		return b.Frame(profile.Frame{
			Function: b.Function(profile.Function{Name: name, SystemName: name, File: p.source, StartLine: line}),
			Mapping:  mapping, Address: at.Value + into, Offset: into, Line: line,
		})
	}
	task := b.Task(profile.Task{PID: 42, Comm: "work"})
	main := b.Push(0, frame("main", 5, 8))
	b.Add(profile.Sample{Stack: b.Push(main, frame("work", 0, 2)), Task: task, CPU: -1, Values: []int64{7, 70}})
	b.Add(profile.Sample{Stack: main, Task: task, CPU: -1, Values: []int64{1, 10}})
	p.profile = b.Profile(profile.Meta{Command: "work", Arch: "x86_64"}, profile.Losses{})
	return p
}

func (p *program) symbol(t *testing.T, name string) elffile.Symbol {
	t.Helper()
	f, err := elffile.Open(p.path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	table := f.Section(".symtab")
	names := f.SymbolNames(table)
	var found elffile.Symbol
	if err := f.EachSymbol(table, func(s elffile.Symbol) bool {
		if string(names.At(uint64(s.Name))) == name {
			found = s
		}
		return true
	}); err != nil {
		t.Fatal(err)
	}
	return found
}

// moduleID returns the Firefox Profiler's ID of the program.
func (p *program) moduleID() string { return firefox.BreakpadID(p.profile.Mappings[1].BuildID) }

// serve serves a profile in a format, or without content if format is empty.
func (p *program) serve(t *testing.T, format decode.Format) *site {
	t.Helper()
	return serve(t, Options{Input: p.input(t, format), Stderr: io.Discard})
}

func (p *program) input(t *testing.T, format decode.Format) Input {
	t.Helper()
	in := Input{Name: "work", Profile: p.profile, Format: format}
	var b bytes.Buffer
	var err error
	switch format {
	case decode.Firefox:
		err = firefox.WriteProfile(&b, p.profile, firefox.Options{})
	case decode.Pprof:
		err = pprof.Write(&b, p.profile, pprof.Options{})
	default:
		return in
	}
	if err != nil {
		t.Fatal(err)
	}
	in.Content = io.NewSectionReader(bytes.NewReader(b.Bytes()), 0, int64(b.Len()))
	return in
}

func serve(t *testing.T, o Options) *site {
	t.Helper()
	finder, err := debugfile.New(debugfile.Config{Host: t.TempDir(), Release: "test", Getenv: func(string) string { return "" }})
	if err != nil {
		t.Fatal(err)
	}
	library := code.NewLibrary(t.Context(), finder, symbolize.Options{})
	server, err := listen(t.Context(), o, library)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(testenv.Receive(t, served, "the server does not end"), library.Close()); err != nil {
			t.Error(err)
		}
	})
	at, err := url.Parse(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	return &site{origin: "http://" + at.Host, below: strings.TrimSuffix(at.Path, "/")}
}

// site is a server: its origin, and the path with the token, which precedes all paths.
type site struct{ origin, below string }

// request is a request and its expected result.
type request struct {
	method, path string
	header       http.Header
	host         string
	body         string
}

// do makes a request, without following redirects.
func (r request) do(t *testing.T, server *site) (*http.Response, string) {
	t.Helper()
	if r.method == "" {
		r.method = http.MethodGet
	}
	asked, err := http.NewRequestWithContext(t.Context(), r.method, server.origin, strings.NewReader(r.body))
	if err != nil {
		t.Fatal(err)
	}
	asked.URL.RawPath, asked.URL.RawQuery, _ = strings.Cut(server.below+r.path, "?") // without normalization
	if asked.URL.Path, err = url.PathUnescape(asked.URL.RawPath); err != nil {
		t.Fatal(err)
	}
	for key, values := range r.header {
		asked.Header[key] = values
	}
	if r.host != "" {
		asked.Host = r.host
	}
	response, err := http.DefaultTransport.RoundTrip(asked)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, string(body)
}

// Only requests with the token and the server's address are answered. Among other
// origins, only the Firefox Profiler's is allowed, and only for its resources.
func TestGuarded(t *testing.T) {
	p := build(t)
	for _, format := range []decode.Format{decode.Firefox, decode.Pprof, decode.Folded} {
		server := p.serve(t, format)
		profiler := map[bool]int{true: http.StatusOK, false: http.StatusForbidden}[format == decode.Firefox]
		for _, test := range []struct {
			request
			want int
		}{
			{request{path: "/"}, http.StatusOK},
			{request{path: "/../code"}, http.StatusNotFound},
			{request{path: "/pprof/../../etc/passwd"}, http.StatusNotFound},
			{request{path: "/pprof/%2e%2e/x"}, http.StatusNotFound},
			{request{path: "/pprof/top"}, http.StatusOK},
			{request{path: "/pprof/other"}, http.StatusNotFound},
			{request{path: "/", host: "evil.example"}, http.StatusForbidden},
			{request{path: "/", header: http.Header{"Origin": {"https://evil.example"}}}, http.StatusForbidden},
			{request{path: "/", header: http.Header{"Origin": {profilerOrigin}}}, profiler},
		} {
			if r, _ := test.do(t, server); r.StatusCode != test.want {
				t.Errorf("%s, %+v: got %s, want %d", format, test.request, r.Status, test.want)
			}
		}
		server.below = "/" + strings.Repeat("a", len(server.below)-1)
		if r, _ := (request{path: "/"}).do(t, server); r.StatusCode != http.StatusNotFound {
			t.Errorf("%s, another token: got %s, want %d", format, r.Status, http.StatusNotFound)
		}
	}
}

func TestTooLarge(t *testing.T) {
	server := build(t).serve(t, decode.Firefox)
	r, _ := request{method: http.MethodPost, path: "/source/v1", body: `{"file":"` + strings.Repeat("x", maxRequest) + `"}`}.do(t, server)
	if r.StatusCode != http.StatusRequestEntityTooLarge {
		t.Error(r.Status)
	}
}

// ask sends a request to a resource of the symbol server and returns the response.
func ask(t *testing.T, server *site, resource, body string) any {
	t.Helper()
	r, text := request{method: http.MethodPost, path: resource, body: body}.do(t, server)
	if r.StatusCode != http.StatusOK || r.Header.Get("Content-Type") != "application/json" {
		t.Fatalf("%s %s: got %s %s; want JSON", resource, body, r.Status, text)
	}
	var answer any
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		t.Fatal(err)
	}
	return answer
}

func parse(t *testing.T, text string) (v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("got %[2]s: %[1]v", err, text)
	}
	return v
}

func TestSymbolicate(t *testing.T) {
	p := build(t)
	server := p.serve(t, decode.Firefox)
	offset := p.work - p.base
	// The line of an address shows that twice is inlined there.
	inlined := uint64(0)
	library := code.NewLibrary(t.Context(), nil, symbolize.Options{})
	defer library.Close()
	file, err := library.File(p.path, "")
	if err != nil {
		t.Fatal(err)
	}
	for at := p.work; at < p.work+p.size; at++ {
		if found, _ := file.LookupBatch([]uint64{at}); len(found[0]) == 2 {
			inlined = at - p.base
		}
	}
	if inlined == 0 {
		t.Fatal("got no inlined function")
	}
	job := fmt.Sprintf(`{"memoryMap":[["work",%q],["libnowhere.so","0000"]],"stacks":[[[0,%d],[1,16]],[[0,%d]]]}`, p.moduleID(), offset, inlined)
	found := fmt.Sprintf(`"found_modules":{"work/%s":true,"libnowhere.so/0000":false}`, p.moduleID())
	lines, err := file.LookupBatch([]uint64{p.base + inlined})
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf(`{"results":[{%s,"stacks":[
		[{"frame":0,"module":"work","module_offset":"%#x","function":"work","function_offset":"0x0","file":%q,"line":2},
		 {"frame":1,"module":"libnowhere.so","module_offset":"0x10"}],
		[{"frame":0,"module":"work","module_offset":"%#x","function":"work","function_offset":"%#x","file":%q,"line":5,
		  "inlines":[{"function":"twice","file":%q,"line":%d}]}]]}]}`,
		found, offset, p.source, inlined, inlined-offset, p.source, p.source, lines[0][0].Line)
	for form, body := range map[string]string{"jobs": `{"jobs":[` + job + `]}`, "one": job} {
		if d := cmp.Diff(parse(t, want), ask(t, server, "/symbolicate/v5", body)); d != "" {
			t.Errorf("%s (-want +got):\n%s", form, d)
		}
	}
	if got := ask(t, server, "/symbolicate/v5", `{"jobs":[{"memoryMap":[],"stacks":[[[0,1]]]}]}`); !strings.Contains(fmt.Sprint(got), "module 0 of 0") {
		t.Errorf("missing module: got %v, want an error", got)
	}
	for _, body := range []string{"", "[]", `{"jobs":[{"stacks":[[[-1,0]]]}]}`, `{"jobs":3}`} {
		if r, _ := (request{method: http.MethodPost, path: "/symbolicate/v5", body: body}).do(t, server); r.StatusCode != http.StatusBadRequest {
			t.Errorf("%q: got %s, want %d", body, r.Status, http.StatusBadRequest)
		}
	}
}

func TestSource(t *testing.T) {
	p := build(t)
	server := p.serve(t, decode.Firefox)
	question := func(name, id string, offset uint64, file string) string {
		return fmt.Sprintf(`{"debugName":%q,"debugId":%q,"moduleOffset":"%#x","file":%q}`, name, id, offset, file)
	}
	offset := p.work - p.base
	want := map[string]any{"symbolsLastModified": nil, "sourceLastModified": nil, "file": p.source, "source": text}
	if d := cmp.Diff(any(want), ask(t, server, "/source/v1", question("work", p.moduleID(), offset, p.source))); d != "" {
		t.Error("(-want +got):\n" + d)
	}
	for _, body := range []string{
		question("work", p.moduleID(), offset, "/etc/passwd"),
		question("work", p.moduleID(), offset, p.source+"/../../../../../../etc/passwd"),
		question("work", p.moduleID(), offset, "../../../../../../../../etc/passwd"),
		question("work", p.moduleID(), offset, p.path),
		question("work", p.moduleID(), 0, p.source),          // the module has no code there
		question("work", p.moduleID(), 1<<40, p.source),      // outside all code
		question("work", "1"+p.moduleID(), offset, p.source), // another build
		question("other", p.moduleID(), offset, p.source),
		question("../work", p.moduleID(), offset, p.source),
		question(p.path, p.moduleID(), offset, p.source),
	} {
		got, _ := ask(t, server, "/source/v1", body).(map[string]any)
		if len(got) != 1 || got["error"] == "" {
			t.Errorf("%s: got %v, want an error", body, got)
		}
	}
}

func TestAssembly(t *testing.T) {
	p := build(t)
	server := p.serve(t, decode.Firefox)
	offset := p.work - p.base
	question := func(size uint64, whole bool) string {
		return fmt.Sprintf(`{"name":"work","codeId":null,"debugName":"work","debugId":%q,"startAddress":"%#x","size":"%#x","continueUntilFunctionEnd":%v}`,
			p.moduleID(), offset, size, whole)
	}
	for _, test := range []struct {
		size  uint64
		whole bool
		want  uint64
	}{{p.size, false, p.size}, {1, true, p.size}} {
		body := question(test.size, test.whole)
		got, _ := ask(t, server, "/asm/v1", body).(map[string]any)
		list, _ := got["instructions"].([]any)
		if got["startAddress"] != fmt.Sprintf("%#x", offset) || got["size"] != fmt.Sprintf("%#x", test.want) || len(list) < 5 {
			t.Fatalf("%s: got %v, want the instructions of work", body, got)
		}
		last, _ := list[len(list)-1].([]any)
		if at, _ := last[0].(float64); len(last) != 2 || uint64(at) >= p.size || uint64(at) < p.size-16 {
			t.Errorf("%s: got last instruction %v, want one at the end", body, last)
		}
		if syntax, _ := got["syntax"].([]any); len(syntax) != 1 {
			t.Errorf("got syntax %v, want one", got["syntax"])
		}
	}
	if got, _ := ask(t, server, "/asm/v1", strings.Replace(question(1, false), "startAddress\":\"0x", "startAddress\":\"0xff00000", 1)).(map[string]any); len(got) != 1 {
		t.Errorf("outside all code: got %v", got)
	}
}

func TestListing(t *testing.T) {
	p := build(t)
	server := p.serve(t, decode.Folded)
	get := func(query url.Values) (l listing) {
		t.Helper()
		r, body := request{path: "/code?" + query.Encode()}.do(t, server)
		if r.StatusCode != http.StatusOK {
			t.Fatalf("%v: got %s %s, want %d", query, r.Status, body, http.StatusOK)
		}
		if err := json.Unmarshal([]byte(body), &l); err != nil {
			t.Fatal(err)
		}
		return l
	}
	query := url.Values{"function": {"work"}, "module": {p.path}, "value": {"1"}, "task": {"p.42"}}
	l := get(query)
	if l.Self != 70 || l.Total != 70 || len(l.Sources) != 1 || len(l.Assembly) != 1 {
		t.Fatalf("got %+v, want 70 samples, one source and one disassembly", l)
	}
	s, a := l.Sources[0], l.Assembly[0]
	if d := cmp.Diff(source{File: p.source, First: 1, Lines: strings.Split(strings.TrimSuffix(text, "\n"), "\n"), Counts: [][3]int64{{2, 70, 70}}},
		s, cmp.AllowUnexported(source{})); d != "" {
		t.Error("source (-want +got):\n" + d)
	}
	if first := a.Instructions[0]; a.Function != "work" || uint64(first.Address) != p.work || first.Self != 70 || first.Total != 70 || first.Line != 2 || first.File != p.source {
		t.Errorf("%s: got first instruction %+v", a.Function, first)
	}
	inlined := 0
	for _, i := range a.Instructions[1:] {
		if i.Total != 0 {
			t.Errorf("got samples in %+v, want none", i)
		}
		if i.Inlined == "twice" {
			inlined++
		}
	}
	if inlined == 0 {
		t.Error("got no instruction of the inlined function")
	}
	main := get(url.Values{"function": {"main"}, "module": {p.path}, "value": {"0"}})
	if main.Self != 1 || main.Total != 8 || len(main.Assembly) != 1 || main.Assembly[0].Function != "main" {
		t.Errorf("main: got %+v, want 1 of 8 samples", main)
	}
	query.Set("task", "p.43")
	if other := get(query); other.Total != 0 || len(other.Sources) != 0 || len(other.Assembly) != 0 {
		t.Errorf("other process: got %+v, want nothing", other)
	}
	for _, value := range []string{"", "2", "-1", "x"} {
		query.Set("value", value)
		if r, _ := (request{path: "/code?" + query.Encode()}).do(t, server); r.StatusCode != http.StatusBadRequest {
			t.Errorf("value %q: got %s, want %d", value, r.Status, http.StatusBadRequest)
		}
	}
}

// A profile can contain any file names. Source files are shown only if the debug info
// names them.
func TestListingOfForeignSource(t *testing.T) {
	p := build(t)
	for i := range p.profile.Functions {
		p.profile.Functions[i].File = "/etc/passwd"
	}
	r, body := request{path: "/code?" + url.Values{"function": {"work"}, "module": {p.path}, "value": {"0"}}.Encode()}.do(t, p.serve(t, decode.Folded))
	if r.StatusCode != http.StatusOK || strings.Contains(body, "root:x:") || !strings.Contains(body, "does not name it") {
		t.Errorf("got %s %s, want a page that refuses the source", r.Status, body)
	}
}

func TestPprof(t *testing.T) {
	p := build(t)
	for _, format := range []decode.Format{decode.Pprof, decode.Folded} {
		server := p.serve(t, format)
		if r, _ := (request{path: "/pprof/"}).do(t, server); r.Header.Get("Location") != "flamegraph" && r.Header.Get("Location") != server.below+"/pprof/flamegraph" {
			t.Errorf("%s: got location %q, want the flame graph", format, r.Header.Get("Location"))
		}
		for page, want := range map[string]string{
			"flamegraph": "work", "top": "work", "peek?f=work": "work",
			"disasm?f=work": "ROUTINE ======================== work", "source?f=%5Ework%24": "twice(p);",
		} {
			r, body := request{path: "/pprof/" + page}.do(t, server)
			if r.StatusCode != http.StatusOK || !strings.Contains(body, want) || r.Header.Get("Content-Security-Policy") == "" {
				t.Errorf("%s, %s: got %s, want a page with %q", format, page, r.Status, want)
			}
		}
		// Disassembly is built in. It does not need objdump.
		_, body := request{path: "/pprof/disasm?f=work"}.do(t, server)
		if !strings.Contains(body, "ret") || !strings.Contains(body, fmt.Sprintf("%x", p.work)) {
			t.Errorf("%s: got no instructions in %s", format, body)
		}
	}
	for value, of := range p.profile.ValueTypes {
		o := Options{Input: p.input(t, decode.Pprof), Value: value, Stderr: io.Discard}
		if _, body := (request{path: "/pprof/top"}).do(t, serve(t, o)); !strings.Contains(body, "Type: "+of.Type) {
			t.Errorf("got no table of %s", of.Type)
		}
	}
	base := p.input(t, decode.Pprof)
	o := Options{Input: p.input(t, decode.Pprof), Base: &base, Stderr: io.Discard}
	if r, body := (request{path: "/pprof/top"}).do(t, serve(t, o)); r.StatusCode != http.StatusOK || !strings.Contains(body, "work") {
		t.Errorf("with a base: got %s, want a page with work", r.Status)
	}
}

// pprof's source page does not read files that only the profile names.
func TestPprofOfForeignSource(t *testing.T) {
	p := build(t)
	secret := filepath.Join(p.dir, "secret")
	if err := os.WriteFile(secret, []byte("confidential\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	up := strings.Repeat("../", 30)
	p.profile.Mappings[1].Path, p.profile.Mappings[1].BuildID = "/nowhere/work", ""
	for _, name := range []string{secret, up + secret, strings.TrimPrefix(secret, "/"), p.source + "/../secret"} {
		for i := range p.profile.Functions {
			p.profile.Functions[i].File, p.profile.Functions[i].StartLine = name, 1
		}
		for i := range p.profile.Frames {
			p.profile.Frames[i].Line = 1
		}
		base := p.input(t, decode.Pprof)
		p.profile.Samples[0].Values[0] += 50 // frames without a difference are hidden
		for kind, o := range map[string]Options{
			"alone": {Input: p.input(t, decode.Pprof)}, "with a base": {Input: p.input(t, decode.Pprof), Base: &base},
		} {
			o.Stderr = io.Discard
			server := serve(t, o)
			if r, body := (request{path: "/pprof/source?f=work"}).do(t, server); strings.Contains(body, "confidential") {
				t.Errorf("%s, %s: got %s with the file's text", name, kind, r.Status)
			}
			if _, body := (request{path: "/pprof/top?g=files"}).do(t, server); !strings.Contains(body, "secret") {
				t.Errorf("%s, %s: got no file name from the profile", name, kind)
			}
		}
	}
}

// buffer can be written and read concurrently.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// The flame graph initially shows the chosen value.
func TestFlameOfValue(t *testing.T) {
	p := build(t)
	for value := range p.profile.ValueTypes {
		var want bytes.Buffer
		if err := flame.WriteHTML(&want, p.profile, flame.Options{Title: "work", Listings: "code", Value: value}); err != nil {
			t.Fatal(err)
		}
		got := &flamePage{options: Options{Input: p.input(t, decode.Folded), Value: value}}
		if err := got.create(); err != nil || got.text != want.String() {
			t.Errorf("value %d: got another page, %v", value, err)
		}
	}
}

// The flame graph of a profile with times has them.
func TestFlameTimes(t *testing.T) {
	line := timelinetest.Recording(t)
	var want bytes.Buffer
	if err := flame.WriteHTML(&want, line.Profile, flame.Options{Title: "work", Listings: "code", Times: line}); err != nil {
		t.Fatal(err)
	}
	o := Options{Input: Input{Name: "work", Profile: line.Profile, Times: line}}
	got := &flamePage{options: o}
	if err := got.create(); err != nil || got.text != want.String() {
		t.Errorf("got another page, %v", err)
	}
	// Each value of the page has listings.
	handler := pages(t.Context(), o, code.NewLibrary(t.Context(), nil, symbolize.Options{}))
	for value, valueType := range got.shown.ValueTypes {
		r := httptest.NewRecorder()
		handler.ServeHTTP(r, httptest.NewRequest(http.MethodGet, fmt.Sprintf("/code?function=work&value=%d", value), nil))
		if r.Code != http.StatusOK {
			t.Errorf("%s: got code %d: %s", valueType.Type, r.Code, r.Body)
		}
	}
}

func TestServe(t *testing.T) {
	p := build(t)
	ctx, cancel := context.WithCancel(t.Context())
	var stderr buffer
	ended := make(chan error, 1)
	go func() {
		ended <- Serve(ctx, Options{Input: p.input(t, decode.Firefox), NoOpen: true, Stderr: &stderr})
	}()
	testenv.Await(t, func() bool { return strings.Contains(stderr.String(), "Ctrl-C") },
		func() string { return "got no page: " + stderr.String() })
	link := regexp.MustCompile(`https://profiler\.firefox\.com/from-url/(\S+)/\?symbolServer=(\S+)`).FindStringSubmatch(stderr.String())
	if link == nil {
		t.Fatalf("got no link in %s", stderr.String())
	}
	address, err := url.QueryUnescape(link[1])
	if err != nil {
		t.Fatal(err)
	}
	symbols, err := url.QueryUnescape(link[2])
	if err != nil {
		t.Fatal(err)
	}
	at, err := url.Parse(address)
	if err != nil || !strings.HasPrefix(at.Host, "127.0.0.1:") || address != symbols+"/profile.json.gz" || len(strings.Split(at.Path, "/")[1]) < 26 {
		t.Errorf("got profile at %s, symbols at %s; want both on this machine, with the token", address, symbols)
	}
	// Only this machine can connect.
	host, _, err := net.SplitHostPort(at.Host)
	if ip := net.ParseIP(host); err != nil || !ip.IsLoopback() {
		t.Errorf("got address %s, want a loopback address", at.Host)
	}
	response, err := http.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	read, _, err := decode.Read(t.Context(), response.Body, "served")
	response.Body.Close()
	if err != nil || read.Total(0) == 0 {
		t.Errorf("reading the profile: %v", err)
	}
	cancel()
	if err := testenv.Receive(t, ended, "the server does not end"); err != nil {
		t.Errorf("got error %v", err)
	}
	if _, err := http.Get(address); err == nil {
		t.Error("the server still responds")
	}
}

func TestPortInUse(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	address, _ := listener.Addr().(*net.TCPAddr)
	if err := Serve(t.Context(), Options{Port: address.Port, Stderr: io.Discard}); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("port in use: got error %v, want %q in it", err, "in use")
	}
}
