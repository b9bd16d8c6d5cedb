package decode

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/encodetest"
	"fulgur/internal/profile/encode/firefox"
	"fulgur/internal/profile/encode/flame"
	"fulgur/internal/profile/encode/folded"
	"fulgur/internal/profile/encode/otlp"
	"fulgur/internal/profile/encode/pprof"
	"fulgur/internal/profile/runinfo"
	"fulgur/internal/profile/timeline/timelinetest"
	"fulgur/internal/testenv"
)

// page returns the page of p.
func page(t testing.TB, p *profile.Profile, o flame.Options) []byte {
	t.Helper()
	return encoded(t, func(w io.Writer) error { return flame.WriteHTML(w, p, o) })
}

// sortedLines returns value v of a profile as sorted folded stacks: a page has no order of
// samples, and combines equal stacks.
func sortedLines(t testing.TB, p *profile.Profile, v int) []string {
	t.Helper()
	return slices.Sorted(strings.Lines(fold(t, p, v)))
}

// A page is read back with its stacks, tasks and values.
func TestReadPage(t *testing.T) {
	for name, p := range map[string]*profile.Profile{
		"typical": encodetest.Typical(),
		"symbols": encodetest.Symbols(),
		"threads": encodetest.Threads(),
		"owners":  encodetest.Owners(),
		"large":   encodetest.Large(500),
	} {
		t.Run(name, func(t *testing.T) {
			got := decoded(t, page(t, p, flame.Options{Value: 1}), Page)
			for v := range p.ValueTypes {
				if diff := cmp.Diff(sortedLines(t, p, v), sortedLines(t, got, v)); diff != "" {
					t.Errorf("value %d (-want +got):\n%s", v, diff)
				}
			}
			if got.Meta.Value != p.ValueTypes[1].Type {
				t.Errorf("got value %q, want %q", got.Meta.Value, p.ValueTypes[1].Type)
			}
			for _, m := range got.Mappings[1:] {
				if !slices.ContainsFunc(p.Mappings, func(o profile.Mapping) bool { return o.Path == m.Path && o.BuildID == m.BuildID }) {
					t.Errorf("got mapping %s with build ID %q, want one of the profile's", m.Path, m.BuildID)
				}
			}
			for _, f := range got.Frames[1:] {
				if f.Function != 0 && f.AtFunction != (f.Address != 0) {
					t.Errorf("%s at %#x: got an exact address: %v, want none", got.Functions[f.Function].Name, f.Address, !f.AtFunction)
				}
			}
			// The page of the page is the same.
			if again := decoded(t, page(t, got, flame.Options{}), Page); !slices.Equal(sortedLines(t, got, 0), sortedLines(t, again, 0)) {
				t.Error("the page of the page has other stacks")
			}
		})
	}
}

// The page of a comparison has the new profile.
func TestReadComparison(t *testing.T) {
	p := encodetest.Typical()
	got := decoded(t, page(t, p, flame.Options{Base: encodetest.Typical()}), Page)
	for v := range p.ValueTypes {
		if got.Total(v) != p.Total(v) {
			t.Errorf("got a total of %d, want %d", got.Total(v), p.Total(v))
		}
	}
}

// Each format with room for it keeps where and how a profile was measured, its losses, and
// the files without symbols.
func TestKeepsRun(t *testing.T) {
	p := encodetest.Typical()
	p.Meta.CPUName, p.Meta.Memory = "CPU", 1<<34
	p.Meta.Stripped = profile.StrippedFiles{Omitted: 2, Files: []profile.Stripped{
		{Path: "/usr/lib/libc.so.6", BuildID: "c0ffee", Samples: 12, Remedy: "install libc6-dbg"},
	}}
	want := p.Meta
	want.Start = want.Start.Local()
	for format, write := range map[Format]func(io.Writer) error{
		Page:    func(w io.Writer) error { return flame.WriteHTML(w, p, flame.Options{}) },
		Pprof:   func(w io.Writer) error { return pprof.Write(w, p, pprof.Options{}) },
		OTLP:    func(w io.Writer) error { return otlp.Write(w, p, otlp.Options{}) },
		Firefox: func(w io.Writer) error { return firefox.WriteProfile(w, p, firefox.Options{}) },
	} {
		got := decoded(t, encoded(t, write), format)
		want.Value = got.Meta.Value // depends on the format
		if diff := cmp.Diff(want, got.Meta); diff != "" {
			t.Errorf("%s (-want +got):\n%s", format, diff)
		}
		if got.Losses != p.Losses {
			t.Errorf("%s: got losses %v, want %v", format, got.Losses, p.Losses)
		}
	}
	if got := decoded(t, encoded(t, func(w io.Writer) error { return folded.Write(w, p, folded.Options{}) }), Folded); !got.Meta.Converted {
		t.Error("folded stacks, which have no losses, are not marked as a conversion")
	}
}

// withData returns a page with the given header and columns.
func withData(t testing.TB, header string, columns ...byte) []byte {
	t.Helper()
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	z.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(header))))
	io.WriteString(z, header)
	z.Write(columns)
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return []byte("<!DOCTYPE html>\n" + pageScript + base64.StdEncoding.EncodeToString(packed.Bytes()) + "</script>")
}

// pageHead is the header of a page with a root and a function, a chain and a sample.
const pageHead = `{"values":[{"type":"samples","unit":"count"}],"kinds":["root","user"],"strings":["","f"],` +
	`"frames":{"name":[0,1],"module":[0,0],"file":[0,0],"line":[0,0],"kind":[0,1],"inlined":[0,0],"address":["0","0"]},` +
	`"tasks":{"comm":[1],"pid":[7],"tid":[0]},"nodes":2,"chains":1,"samples":1,"scales":[3]}`

// pageColumns belong to pageHead: the root calls the function, in a chain of two nodes with
// one sample of task 0 with the value -1.
var pageColumns = []byte{1, 0, 1, 2, 0, 1, 0, 0, 0, 1}

// Pages with other or inconsistent data are errors.
func TestReadPageErrors(t *testing.T) {
	p := decoded(t, withData(t, pageHead, pageColumns...), Page)
	if got := p.Total(0); got != -3 || p.Tasks[0].PID != 7 {
		t.Fatalf("got %d of PID %d, want -3 of 7", got, p.Tasks[0].PID)
	}
	pageOf := page(t, encodetest.Typical(), flame.Options{})
	change := func(from, to string) []byte {
		t.Helper()
		if !strings.Contains(pageHead, from) {
			t.Fatalf("%s is not in the header", from)
		}
		return withData(t, strings.Replace(pageHead, from, to, 1), pageColumns...)
	}
	column := func(at int, v byte) []byte {
		columns := slices.Clone(pageColumns)
		columns[at] = v
		return withData(t, pageHead, columns...)
	}
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"another page":      {[]byte("<html><body>hello</body></html>"), "not a flame graph page of fulgur"},
		"cut":               {pageOf[:bytes.Index(pageOf, []byte(pageScript))+100], "not a flame graph page"},
		"no gzip":           {[]byte("<p>" + pageScript + "aGVsbG8gd29ybGQ=</script>"), "gzip"},
		"many rows":         {change(`"samples":1`, `"samples":100000000`), "100000000 rows"},
		"negative rows":     {change(`"nodes":2`, `"nodes":-2`), "-2 rows"},
		"missing scale":     {change(`"scales":[3]`, `"scales":[]`), "0 columns"},
		"many columns":      {change(`"samples":1,"scales":[3]`, `"samples":16000000,"scales":[3,1,1,1,1,1,1]`), "7 columns"},
		"uneven frames":     {change(`"line":[0,0]`, `"line":[0]`), "columns of frames"},
		"missing string":    {change(`"name":[0,1]`, `"name":[0,4294967296]`), "row 2147483647 of strings"},
		"missing kind":      {change(`"kind":[0,1]`, `"kind":[0,-1]`), "row -1 of kinds"},
		"no address":        {change(`["0","0"]`, `["0","x"]`), "is not an address"},
		"uneven tasks":      {change(`"pid":[7]`, `"pid":[]`), "columns of tasks"},
		"overflow":          {withData(t, strings.Replace(pageHead, `"scales":[3]`, `"scales":[9223372036854775807]`, 1), append(slices.Clone(pageColumns[:9]), 3)...), "is -2 times"},
		"trailing text":     {withData(t, pageHead+"{}", pageColumns...), "after the end"},
		"no integer":        {change(`"line":[0,0]`, `"line":[0,0.5]`), "is not an integer"},
		"early end":         {withData(t, pageHead, pageColumns[:5]...), "unexpected EOF"},
		"missing callee":    {column(2, 2), "number 2 where the maximum is 1"},
		"long chain":        {column(3, 3), "number 3"},
		"misplaced chain":   {column(4, 1), "misplaced"},
		"samples elsewhere": {column(5, 0), "0 of 1 samples"},
		"missing call":      {column(7, 1), "row 1 of callees"},
		"missing task":      {column(8, 1), "number 1 where the maximum is 0"},
	} {
		_, format, err := Read(t.Context(), bytes.NewReader(c.data), "input")
		if format != Page {
			t.Errorf("%s: got format %s", name, format)
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got error %v, want %q", name, err, c.want)
		}
	}
}

// The description of a run is kept unless it is too long.
func TestReadPageRun(t *testing.T) {
	run := `{"host":"a\"]}b", "cpus":[1,2,-3.5e1,true,null,{"x":[ ]}]}`
	for _, c := range []struct{ value, want string }{
		{run, run}, {`7`, "7"}, {`[` + strings.Repeat("1,", runinfo.MaxText/2-2) + `1]`, "1"}, {`[` + strings.Repeat("1,", runinfo.MaxText/2) + `1]`, ""},
	} {
		var h pageHeader
		if err := h.read(strings.NewReader(`{"run":` + c.value + `,"value":1}`)); err != nil || h.Value != 1 {
			t.Errorf("%.60s: got value %d, error %v", c.value, h.Value, err)
		}
		if want := c.value; c.want == "" && h.Run != "" || c.want != "" && h.Run != want {
			t.Errorf("%.60s: got %.60q of %d bytes", c.value, h.Run, len(h.Run))
		}
	}
}

// endless is begin, followed by element without end.
type endless struct {
	begin, element string
	read           int
}

func (e *endless) Read(b []byte) (n int, err error) {
	n = copy(b, e.begin)
	e.begin = e.begin[n:]
	for n < len(b) && e.begin == "" {
		part := e.element[e.read%len(e.element):]
		k := copy(b[n:], part)
		n, e.read = n+k, e.read+k
	}
	return n, nil
}

// Each table of a header is refused at its limit, before the rest is read.
func TestReadPageTables(t *testing.T) {
	testenv.Slow(t)
	testenv.Limited(t, 512<<20, 30*time.Second, testReadPageTables)
}

func testReadPageTables(t *testing.T) {
	t.Helper()
	for begin, c := range map[string]struct {
		element string
		limit   int
	}{
		`{"values":[{}`:                    {",{}", profile.MaxValues},
		`{"kinds":[""`:                     {`,""`, maxPageKinds},
		`{"strings":[""`:                   {`,""`, maxPageNames},
		`{"frames":{"name":[0`:             {`,0`, maxPageNames},
		`{"frames":{"address":["0"`:        {`,"0"`, maxPageNames},
		`{"tasks":{"group":[0`:             {`,0`, maxPageNames},
		`{"scales":[1`:                     {`,1`, 2 * profile.MaxValues},
		`{"run":[[` + `"x"`:                {`,[`, maxNested},
		`{"title":` + `[[[`:                {`[`, maxNested},
		`{"nodes":1` + `,"builds":{"":"x"`: {"", maxPageNames / 4},
	} {
		r := &endless{begin: begin, element: c.element}
		var from io.Reader = r
		if c.element == "" { // keys must differ
			var b strings.Builder
			for i := range c.limit + sniffed {
				fmt.Fprintf(&b, `,"%08x":""`, i)
			}
			r.element = b.String()
		}
		var h pageHeader
		err := h.read(from)
		if err == nil || !strings.Contains(err.Error(), "more than") {
			t.Errorf("%s: got error %v", begin, err)
		}
		element := max(len(c.element), len(`,"00000000":""`)*(1-min(len(c.element), 1)))
		if limit := c.limit*element + 2*sniffed; r.read > limit {
			t.Errorf("%s: read %d bytes, want at most %d", begin, r.read, limit)
		}
	}
}

// A header of the maximum size that compresses to a few kilobytes takes little memory.
func TestBombPageHeader(t *testing.T) {
	testenv.Slow(t)
	for name, c := range map[string]struct{ begin, element, end string }{
		"values":  {`{"values":[{}`, `,{}`, `]}`},
		"strings": {`{"strings":[""`, `,""`, `]}`},
		"columns": {`{"frames":{"name":[0`, `,0`, `]}}`},
	} {
		t.Run(name, func(t *testing.T) {
			testenv.Limited(t, 512<<20, 30*time.Second, func(t *testing.T) {
				n := (maxPageHeader - 100) / len(c.element)
				data := withData(t, c.begin+strings.Repeat(c.element, n)+c.end)
				if len(data) > 128<<10 {
					t.Fatalf("got a page of %d bytes", len(data))
				}
				if _, _, err := Read(t.Context(), bytes.NewReader(data), "input"); err == nil || !strings.Contains(err.Error(), "more than") {
					t.Errorf("got error %v, want one about too many elements", err)
				}
			})
		})
	}
}

func FuzzPage(f *testing.F) {
	f.Add([]byte(pageHead), pageColumns)
	f.Add([]byte(strings.Replace(pageHead, `"user"`, `"cpu"`, 1)), pageColumns)
	random := rand.New(rand.NewPCG(1, 2))
	for _, line := range []*profile.Timeline{timelinetest.Recording(f), timelinetest.Busy(f, random)} {
		header, columns := dataOf(f, page(f, line.Profile, flame.Options{Times: line}))
		f.Add(header, columns)
	}
	f.Fuzz(func(t *testing.T, header, columns []byte) {
		readAs(t, withData(t, string(header), columns...), Page)
		d, err := ReadWith(t.Context(), bytes.NewReader(withData(t, string(header), columns...)), "page", Options{Times: true})
		if err != nil || d.Times == nil || d.Times.(*pageTimes).header.Entries > 1<<10 {
			return
		}
		for _, r := range d.Times.(*pageTimes).rows {
			if slices.ContainsFunc(r.values, func(v int64) bool { return v > 1<<10 || v < -1<<10 }) {
				return // so many events take long
			}
		}
		line := d.Times.Timeline(d.Profile, func(s profile.StackID) profile.StackID { return s })
		if err := flame.WriteHTML(io.Discard, d.Profile, flame.Options{Times: line}); err != nil {
			t.Fatal(err)
		}
	})
}
