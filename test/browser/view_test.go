package browser

import (
	"bufio"
	"debug/elf"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	model "fulgur/internal/profile"
	"fulgur/internal/profile/encode/encodetest"
	"fulgur/internal/profile/encode/firefox"
	"fulgur/internal/profile/encode/flame"
	"fulgur/internal/testenv"
)

// hotSource is a program that spends its time in a loop, with a function that is inlined
// into it.
const hotSource = `#include <stdio.h>
#include <time.h>

static inline unsigned mix(unsigned x)
{
	x ^= x << 13;
	x ^= x >> 17;
	x ^= x << 5;
	return x;
}

__attribute__((noinline)) unsigned churn(unsigned x)
{
	for (int i = 0; i < 100000; i++)
		x = mix(x);
	return x;
}

int main(void)
{
	unsigned x = 1;
	for (clock_t end = clock() + CLOCKS_PER_SEC; clock() < end;)
		x = churn(x);
	printf("%u\n", x);
	return 0;
}
`

// buildHot compiles the program in dir.
func buildHot(t *testing.T, dir string) (program string) {
	t.Helper()
	cc := testenv.Tool(t, "gcc")
	source, program := filepath.Join(dir, "hot.c"), filepath.Join(dir, "hot")
	if err := os.WriteFile(source, []byte(hotSource), 0o644); err != nil {
		t.Fatal(err)
	}
	command(t, cc, "-g", "-O2", "-Wl,--build-id", "-o", program, source)
	return program
}

func command(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
}

// recordHot profiles the program with fulgur. It also returns fulgur's path.
func recordHot(t *testing.T, dir string) (fulgur, profile string) {
	t.Helper()
	testenv.Root(t)
	fulgur = program(t)
	profile = filepath.Join(dir, "hot.json.gz")
	command(t, fulgur, "profile", "-q", "-F", "499", "-o", profile, "--", buildHot(t, dir))
	return fulgur, profile
}

// startView runs fulgur view until the test ends, and checks that it runs that long.
// It returns the addresses of its page and of the Firefox Profiler's.
func startView(t *testing.T, fulgur string, args ...string) (page, profiler string) {
	t.Helper()
	cmd := exec.Command(fulgur, append([]string{"view", "--no-open"}, args...)...)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cmd.Process.Signal(unix.SIGINT); err != nil {
			t.Error(err)
		}
		_, _ = io.Copy(io.Discard, stderr)
		if err := cmd.Wait(); err != nil {
			t.Errorf("fulgur view ended by Ctrl-C: %v", err)
		}
	})
	var output strings.Builder
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		output.WriteString(lines.Text() + "\n")
		if m := regexp.MustCompile(`^(Flame graph|Firefox Profiler).* (https?://\S+)$`).FindStringSubmatch(lines.Text()); m != nil {
			if m[1] == "Flame graph" {
				page = m[2]
			} else {
				profiler = m[2]
			}
		}
		if strings.Contains(lines.Text(), "Ctrl-C") {
			break
		}
	}
	if page == "" {
		t.Fatalf("fulgur view printed no address:\n%s", &output)
	}
	return page, profiler
}

// counted is a row of a listing.
type counted struct{ Self, Total, Number, Text string }

// listed returns the rows with samples on one side of the listing.
func listed(c *tab, side string) (rows []counted) {
	c.t.Helper()
	c.eval(fmt.Sprintf(`[...document.querySelectorAll("%s tr[data-total]")].map((row) => {
		const [Self, Total, Number, Text] = [...row.cells].map((cell) => cell.textContent);
		return { Self, Total, Number, Text };
	})`, side), &rows)
	return rows
}

// A click on a function shows its source with the samples at each line, and its
// instructions.
func TestView(t *testing.T) {
	c := newTab(t)
	fulgur, profile := recordHot(t, t.TempDir())
	page, _ := startView(t, fulgur, profile)
	c.open(page)
	c.until(`document.documentElement?.dataset.ready`)
	c.until(`!document.querySelector("#views [value=code]").hidden`)

	t.Run("click", func(t *testing.T) {
		// The function with the most self samples is the first in the list.
		expect(c, "#details li:nth-child(1) .name", "mix")
		c.clickOn("#details li:nth-child(1) button")
		expect(c, "#details h2", "mix")
		c.until(`[...document.querySelectorAll("#details .buttons button")].some((b) => b.textContent === "Source")`)
		c.clickOn("#details .buttons button:nth-child(2)")
		c.until(`document.querySelector("#code").dataset.state === "ready"`)
		expect(c, "#listed", "mix")
	})

	t.Run("source", func(t *testing.T) {
		expectContains(c, "#sources h2", "hot.c")
		rows := listed(c, "#sources")
		for _, r := range rows {
			if !strings.Contains(r.Text, "x ^= x") && !strings.Contains(r.Text, "return x") {
				t.Errorf("got samples at line %s: %q, want them in mix only", r.Number, r.Text)
			}
			if !strings.HasSuffix(r.Total, "%") {
				t.Errorf("total of line %s = %q, want a percentage", r.Number, r.Total)
			}
		}
		if len(rows) == 0 {
			t.Error("no line has samples")
		}
	})

	t.Run("instructions", func(t *testing.T) {
		expect(c, "#assembly h2", "churn") // mix is inlined into churn
		if rows := listed(c, "#assembly"); len(rows) == 0 {
			t.Error("no instruction has samples")
		}
		c.picture("page-source")
	})

	t.Run("link", func(t *testing.T) {
		c.clickOn("#sources tr[data-total]")
		var linked int
		c.eval(`document.querySelectorAll("#assembly tr.linked").length`, &linked)
		if linked == 0 {
			t.Error("a line has no instructions")
		}
	})

	t.Run("functions", func(t *testing.T) {
		c.press("t")
		c.clickOn(`#rows tr:nth-child(2) button`)
		c.press("c")
		c.until(`document.querySelector("#code").dataset.state === "ready" && document.querySelector("#listed").textContent !== "mix"`)
		c.press("f")
		c.until(`document.querySelector("#chart").offsetParent !== null`)
	})

	expectOwnRequests(c, page)
}

// The place of an instruction has only what the debug information says.
func TestPlaces(t *testing.T) {
	c := newTab(t)
	openFlame(c, encodetest.Typical(), flame.Options{})
	var got [][2]string
	c.eval(pageScript(c)(`load().then((data) => {
		const at = { address: "0x1130", text: "ret", self: 1, total: 1 };
		new Page(data).listing.fill([], [{ function: "main", module: "main", instructions: [
			{ ...at, file: "/src/main.rs", line: 7, inlined: "mix" }, { ...at, file: "/src/main.rs", inlined: "mix" }, { ...at, file: "main.rs" }, at,
		] }], "");
		return [...document.querySelectorAll("#assembly .place")].map((cell) => [cell.textContent, cell.title]);
	})`), &got)
	want := [][2]string{{"main.rs:7", "mix, /src/main.rs:7"}, {"main.rs", "mix, /src/main.rs"}, {"main.rs", "main.rs"}, {"", ""}}
	if !slices.Equal(got, want) {
		t.Errorf("places of instructions = %q, want %q", got, want)
	}
	expectClean(c)
}

// expectOwnRequests checks that nothing was logged or thrown, and that the page sent
// requests only below its own address.
func expectOwnRequests(c *tab, page string) {
	c.t.Helper()
	expectQuiet(c)
	for _, r := range c.requests() {
		if !strings.HasPrefix(r.url, page) {
			c.t.Errorf("the page requested %s", r.url)
		}
	}
}

// pprof's pages run as they are, below the token.
func TestViewPprof(t *testing.T) {
	c, chromium := newChromiumTab(t)
	fulgur, profile := recordHot(t, t.TempDir())
	page, _ := startView(t, fulgur, profile)
	for name, text := range map[string]string{"flamegraph": "churn", "top": "churn", "peek?f=churn": "main"} {
		c.open(page + "pprof/" + name)
		c.until(fmt.Sprintf(`document.readyState === "complete" && location.href.endsWith(%q) && document.body.textContent.includes(%q)`, name, text))
	}
	// Its script has drawn the boxes of the flame graph.
	c.open(page + "pprof/")
	c.until(`document.querySelectorAll("#stack-chart .boxbg").length > 2`)
	c.picture("pprof")
	for _, e := range chromium.seen("Runtime.exceptionThrown") {
		t.Errorf("exception: %s", e.Params)
	}
}

// annotation is the answer to "function annotate".
type annotation struct {
	SrcAnnotation *struct {
		Files []struct {
			Filename string
			Lines    []struct {
				LineNumber   int
				TotalSamples float64
			}
		}
	}
	AsmAnnotations []struct {
		SymbolName   string
		FetchError   any
		Instructions []struct {
			TotalSamples  float64
			DecodedString string
		}
	}
}

// The Firefox Profiler's own code opens the printed address, and gets sources and
// instructions from the server.
func TestViewFrontEnd(t *testing.T) {
	fulgur, profile := recordHot(t, t.TempDir())
	_, address := startView(t, fulgur, profile)
	f := openFrontEnd(t, address)
	var a annotation
	f.ask(&a, "function", "annotate", f.function("churn"), "--mode", "all")
	if a.SrcAnnotation == nil || len(a.AsmAnnotations) != 1 {
		t.Fatalf("annotation = %+v, want source and instructions", a)
	}
	asm, hot := a.AsmAnnotations[0], 0.0
	for _, i := range asm.Instructions {
		hot += i.TotalSamples
	}
	if asm.SymbolName != "churn" || asm.FetchError != nil || hot == 0 || asm.Instructions[len(asm.Instructions)-1].DecodedString != "ret" {
		t.Errorf("instructions = %+v, want some with samples", asm)
	}
}

// Names that a profile lacks come from the server.
func TestViewSymbolicates(t *testing.T) {
	dir := t.TempDir()
	hot, fulgur := buildHot(t, dir), program(t)
	file, err := elf.Open(hot)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	symbols, err := file.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	note, err := file.Section(".note.gnu.build-id").Data()
	if err != nil {
		t.Fatal(err)
	}
	b := model.NewBuilder(model.ValueType{Type: "cpu", Unit: "nanoseconds"})
	mapping := b.Mapping(model.Mapping{Path: hot, BuildID: hex.EncodeToString(note[16:])})
	for _, name := range []string{"churn", "main"} { // the front end omits the last element
		for _, s := range symbols {
			if s.Name != name {
				continue
			}
			frame := b.Frame(model.Frame{Mapping: mapping, Address: s.Value})
			b.Add(model.Sample{Stack: b.Push(0, frame), Task: b.Task(model.Task{PID: 1, Comm: "hot"}), CPU: -1, Values: []int64{1e6}})
		}
	}
	path := filepath.Join(dir, "unnamed.json.gz")
	out, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := firefox.WriteProfile(out, b.Profile(model.Meta{}, model.Losses{}), firefox.Options{}); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	_, address := startView(t, fulgur, path)
	openFrontEnd(t, address).function("churn")
}

// function returns the handle of a function, once its name is known.
func (f *frontEnd) function(name string) (handle string) {
	f.t.Helper()
	var list struct {
		Functions []struct{ FunctionHandle, Name string }
	}
	testenv.Await(f.t, func() bool {
		f.ask(&list, "thread", "functions", "--search", name)
		for _, fn := range list.Functions {
			if strings.HasSuffix(fn.Name, name) {
				handle = fn.FunctionHandle
			}
		}
		return handle != ""
	}, func() string { return fmt.Sprintf("no function %s in %+v", name, list) })
	return handle
}
