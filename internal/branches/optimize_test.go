package branches

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"fulgur/internal/bolt"
	"fulgur/internal/message/plain"
	"fulgur/internal/testenv"
)

const someHelp = `OPTIONS:
  --data=<string>            - <data file>
  --dyno-stats               - print execution info based on profile
  --dyno-stats-all           - print dyno stats after each stage
  --reorder-blocks=<value>   - change layout of basic blocks in a function
    =none                    -   do not reorder basic blocks
    =ext-tsp                 -   perform layout optimizing I-cache behavior
  --reorder-functions=<value> - reorder and cluster functions
    =hfsort                  -   use hfsort algorithm
  --split-functions          - split functions into fragments
  --split-strategy=<value>   - strategy
    =cdsplit                 -   split by cdsort
`

func TestKnownFlags(t *testing.T) {
	flags := []string{
		"-reorder-blocks=ext-tsp", "-reorder-functions=cdsort", "-reorder-functions=hfsort", "-split-functions",
		"-split", "-split-all-cold", "-dyno-stats", "-reorder-blocks=hfsort",
	}
	want := []string{"-reorder-blocks=ext-tsp", "-reorder-functions=hfsort", "-split-functions", "-dyno-stats"}
	if got := knownFlags(flags, []byte(someHelp)); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// All recommended flags exist in their versions.
func TestLayoutFlagsExist(t *testing.T) {
	for program, version := range map[string]int{
		"/usr/lib/llvm-16/bin/llvm-bolt": branchesLLVM, "/usr/lib/llvm-19/bin/llvm-bolt": branchesLLVM, "/usr/lib/llvm-22/bin/llvm-bolt": tracesLLVM,
	} {
		t.Run(program, func(t *testing.T) {
			help, err := exec.Command(testenv.Tool(t, program), "--help-hidden").Output()
			if err != nil {
				t.Fatal(err)
			}
			flags := llvm{version: version}.layoutFlags(true)
			if known := knownFlags(flags, help); !slices.Equal(known, flags) {
				t.Errorf("got only the flags %[2]q of %[1]q", flags, known)
			}
		})
	}
}

func TestFindings(t *testing.T) {
	const output = `PERF2BOLT: traces mismatching disassembled function contents: 0 (0.0%)
PERF2BOLT: out of range traces involving unknown regions: 12 (1.0%)
BOLT-INFO: 1 out of 10 functions in the binary (10.0%) have non-empty execution profile
BOLT-INFO: 1 out of 10 functions in the binary (10.0%) have non-empty execution profile
BOLT-INFO: 1 function with profile could not be optimized
BOLT-INFO: program-wide dynostats after all optimizations before SCTC and FOP:

               21590 : executed instructions
                3328 : taken branches

               21285 : executed instructions (-1.4%)
                1265 : taken backward branches (+243.8%)
                7772 : total branches (=)
                1328 : taken branches (-60.1%)
`
	want := []string{
		"out of range traces involving unknown regions: 12 (1.0%)",
		"1 out of 10 functions in the binary (10.0%) have non-empty execution profile",
		"1 function with profile could not be optimized",
		"executed instructions -1.4%, total branches =, taken branches -60.1%",
	}
	if got := findings([]byte(output)); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := findings([]byte("BOLT-INFO: program-wide dynostats after all optimizations before SCTC and FOP (no change):\n")); !slices.Equal(got, []string{"nothing changed"}) {
		t.Errorf("got %q", got)
	}
}

func TestComplaint(t *testing.T) {
	for output, want := range map[string]string{
		"a\nBOLT-ERROR: no\nb\n":  "BOLT-ERROR: no",
		"a\nb\n":                  "a\nb",
		"":                        "",
		strings.Repeat("x\n", 90): strings.TrimSuffix(strings.Repeat("x\n", 4), "\n"),
	} {
		if got := complaint([]byte(output)); got != want {
			t.Errorf("%q: got %q, want %q", output, got, want)
		}
	}
}

// The next commands fit the version, the kind of profile and the binary.
func TestNext(t *testing.T) {
	for _, test := range []struct {
		llvm        llvm
		relocations bool
		basic       bool
		want        string
	}{
		{llvm{version: 22}, true, false, "perf2bolt --pa -p p -o app.fdata /x/app\nllvm-bolt /x/app -o app.bolt -data=app.fdata -reorder-blocks=ext-tsp -reorder-functions=cdsort"},
		{llvm{version: 22}, false, false, "perf2bolt --pa -p p -o app.fdata /x/app\nllvm-bolt /x/app -o app.bolt -data=app.fdata -reorder-blocks=ext-tsp -split-functions"},
		{llvm{version: 16, dir: "/d"}, true, false, "/d/perf2bolt --pa -p p -o app.fdata /x/app\n/d/llvm-bolt /x/app -o app.bolt -data=app.fdata -reorder-blocks=ext-tsp -reorder-functions=hfsort"},
		{llvm{version: 22}, true, true, "perf2bolt --pa --basic-events -p p -o app.fdata /x/app\nllvm-bolt"},
	} {
		var got []string
		for _, argv := range test.llvm.next(&bolt.Binary{Name: "/x/app", Relocations: test.relocations}, "p", test.basic) {
			got = append(got, plain.Command(argv))
		}
		if !strings.HasPrefix(strings.Join(got, "\n"), test.want) {
			t.Errorf("%+v: got\n%s\nwant it to begin with\n%s", test, strings.Join(got, "\n"), test.want)
		}
	}
}

// An interrupt ends llvm-bolt.
func TestOptimizeInterrupted(t *testing.T) {
	testenv.Tool(t, "sh")
	fifo := filepath.Join(t.TempDir(), "started")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, interrupt := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := (&optimizer{output: "server.bolt"}).call(ctx, []string{"sh", "-c", `: > "$0"; exec sleep 1000`, fifo})
		ended <- err
	}()
	if _, err := os.ReadFile(fifo); err != nil { // once it runs
		t.Fatal(err)
	}
	interrupt()
	want := "interrupted: sh has not finished, so server.bolt was not written"
	if err := testenv.Receive(t, ended, "the program still runs"); err == nil || err.Error() != want {
		t.Errorf("got error %v, want %s", err, want)
	}
}
