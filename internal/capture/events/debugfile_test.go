package events

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"fulgur/internal/testenv"
)

// A debug file can have wrong symbols: those within a function of the file get no breakpoint.
func TestForgedDebugFile(t *testing.T) {
	dir := t.TempDir()
	program, debug := filepath.Join(dir, "program"), filepath.Join(dir, "program.debug")
	source := filepath.Join(dir, "program.c")
	if err := os.WriteFile(source, []byte("__attribute__((noinline)) int right(int n) { return n * 0x12345; }\nint main(int n, char **a) { (void)a; return right(n); }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(name string, args ...string) {
		t.Helper()
		if out, err := exec.Command(testenv.Tool(t, name), args...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", name, err, out)
		}
	}
	run("gcc", "-O1", "-no-pie", "-Wl,--build-id=none", "-o", program, source)
	var text, right uint64
	for _, s := range testenv.Symbols(t, program) {
		switch s.Name {
		case "_start":
			text = s.Value // the start of .text
		case "right":
			right = s.Value
		}
	}
	run("objcopy", fmt.Sprintf("--add-symbol=wrong=.text:%#x,function,global", right+3-text), program, debug)
	run("objcopy", "--strip-all", "--add-gnu-debuglink="+debug, program)
	for name, want := range map[string]string{"right": "", "wrong": errWithin.Error()} {
		event, err := Parse("uprobe:" + program + ":" + name)
		if err != nil {
			t.Fatal(err)
		}
		p, err := (&Resolver{MaxProbes: DefaultMaxProbes}).Resolve(event, Query{})
		if err == nil {
			if want != "" || len(p.Points) != 1 {
				t.Errorf("%s: got places %v, want an error: %q", name, p.Points, want)
			}
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		} else if want == "" || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want %q", name, err, want)
		}
	}
}

// If a function has no symbol because the file is stripped, the error says so, and names the file's USDT
// probes.
func TestStripped(t *testing.T) {
	const probe = `__asm__ volatile ("990: nop\n.pushsection .note.stapsdt,\"?\",\"note\"\n.balign 4\n.4byte 992f-991f, 994f-993f, 3\n991: .asciz \"stapsdt\"\n992: .balign 4\n993: .8byte 990b, 0, 0\n.asciz \"shop\"\n.asciz \"%s\"\n.asciz \"\"\n994: .balign 4\n.popsection");`
	program := func(body string, flags ...string) string {
		t.Helper()
		path := filepath.Join(t.TempDir(), "program")
		if err := os.WriteFile(path+".c", []byte("int main(void) { "+body+" return 0; }\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		args := append([]string{"-Wl,--build-id=none", "-o", path, path + ".c"}, flags...)
		if out, err := exec.Command(testenv.Tool(t, "gcc"), args...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return path
	}
	two := fmt.Sprintf(probe, "sale") + fmt.Sprintf(probe, "open") + fmt.Sprintf(probe, "sale")
	many := ""
	for i := range shownUSDT + 2 {
		many += fmt.Sprintf(probe, fmt.Sprint("p", i))
	}
	for _, c := range []struct{ path, want string }{
		{program(two), "no such function with a symbol in the file"},
		{program("", "-s"), "in the file, which is stripped"},
		{program(two, "-s"), "in the file, which is stripped; it has USDT probes shop:open, shop:sale"},
		{program(many, "-s"), "it has USDT probes shop:p0, shop:p1, shop:p2, shop:p3, shop:p4 and 2 more"},
	} {
		event, err := Parse("uprobe:" + c.path + ":absent_function_xyz")
		if err != nil {
			t.Fatal(err)
		}
		p, err := (&Resolver{MaxProbes: DefaultMaxProbes}).Resolve(event, Query{})
		if err == nil || !strings.HasSuffix(err.Error(), c.want) {
			t.Errorf("got %v, %v, want an error that ends in %q", p, err, c.want)
		}
	}
}
