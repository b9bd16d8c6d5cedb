package symbolize

import (
	"debug/elf"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"fulgur/internal/testenv"
)

// filtered returns what c++filt makes of linker names.
func filtered(t *testing.T, style string, names []string) []string {
	t.Helper()
	cmd := testenv.Command(t, testenv.Tool(t, "c++filt"), "-s", style)
	cmd.Stdin = strings.NewReader(strings.Join(names, "\n") + "\n")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	if len(got) != len(names) {
		t.Fatalf("c++filt: got %d names, want %d", len(got), len(names))
	}
	return got
}

// All names of D's standard library are those of c++filt, which does not know some newer forms.
func TestDemangleDLibrary(t *testing.T) {
	var linkage []string
	library, err := elf.Open(testenv.File(t, testenv.Library("libgphobos.so.3")))
	if err != nil {
		t.Fatal(err)
	}
	defer library.Close()
	symbols, err := library.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range symbols {
		if strings.HasPrefix(s.Name, "_D") {
			linkage = append(linkage, s.Name)
		}
	}
	unknown := 0
	for i, want := range filtered(t, "dlang", linkage) {
		got, ok := demangleD(linkage[i], true)
		switch {
		case want == linkage[i]:
			unknown++
		case !ok || got != want:
			t.Errorf("%s: got %q, want %q", linkage[i], got, want)
		}
	}
	if len(linkage) < 10000 || unknown > len(linkage)/10 {
		t.Errorf("c++filt does not know %d of %d names, so they are not checked", unknown, len(linkage))
	}
}

// Profiles show D's functions without the types of parameters.
func TestNamesD(t *testing.T) {
	for linkage, want := range map[string]string{
		"_Dmain":                     "D main",
		"_D2d15Shape4areaMFiZl":      "d1.Shape.area",
		"_D3app5Shape4areaMxFiZl":    "app.Shape.area",
		"_D3app3runFiZ4stepMFZv":     "app.run.step",
		"_D3app1S6__ctorMFiZS3app1S": "app.S.this",
		"_D3std5array__T8AppenderTAyaZQo4Data11__xopEqualsMxFKxSQCbQCa__TQBxTQBrZQCfQBsZb": "std.array.Appender!(immutable(char)[]).Appender.Data.__xopEquals",
		"_D3std10functional__T8unaryFunVAyaa5_61203d2062Z8unaryFunFiZi":                    `std.functional.unaryFun!("a = b").unaryFun`,
		"_D3app1fFNaNbNiNkMPvkZQe": "app.f", // c++filt 2.40 does not know "NkM"
		"_D3appQeFZv":              "app.app",
		"_D":                       "", "_D3app": "", "_Data": "", "_D3appQaZ": "", "_D3appQzZ": "", "_DT3app": "", "_D9999999999999999999app": "", "_D1aFQb": "",
	} {
		if want == "" {
			want = linkage
		}
		if got := newNames(linkage, Options{}); got != (names{want, linkage}) {
			t.Errorf("%s: got %+v, want %q", linkage, got, want)
		}
	}
}

// Names that refer to themselves, or are nested deeply, take little time and memory.
func TestDemangleDHostile(t *testing.T) {
	for _, linkage := range []string{
		"_D1f" + strings.Repeat("F", maxName), "_D1f" + strings.Repeat("A", maxName), "_D1fF" + strings.Repeat("DF", maxName/2),
		"_D1fF" + "H1aB9" + strings.Repeat("B9Qb", maxName/4) + "Zv",
		"_D" + strings.Repeat("__T", maxName/3), "_D" + strings.Repeat("1a", maxName/2), "_D" + strings.Repeat("0", maxName) + "1aZ",
		"_D1f__T1aV" + "aA99999999" + strings.Repeat("A99999999", maxName/10), "_D1fFB99999999Zv",
		"_D4f__S" + strings.Repeat("4__S1", maxName/5),
	} {
		if name, ok := demangleD(linkage, true); ok && len(name) > maxDWork {
			t.Errorf("%.20s: got %d bytes", linkage, len(name))
		}
	}
}

func FuzzDemangle(f *testing.F) {
	for _, s := range []string{"_D3app5Shape4areaMxFiZl", "_D3std5array__T8AppenderTAyaZQo4Data11__xopEqualsMxFKxSQCbQCa__TQBxTQBrZQCfQBsZb", "_ZN1r4main28_$u7b$$u7b$closure$u7d$$u7d$17h20ec027d87d40478E"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, linkage string) {
		n := newNames(linkage, Options{})
		if len(n.shown) > 4*maxName || valid(n.shown) != n.shown {
			t.Errorf("%q: got %d bytes: %q", linkage, len(n.shown), n.shown)
		}
	})
}

var legacyHash = regexp.MustCompile(`::h[0-9a-f]{16}$`)

// Names of a Rust program with legacy linker names are those of c++filt, but without the hash.
func TestDemangleLegacyRustProgram(t *testing.T) {
	const source = `use std::collections::HashMap;
trait Go { fn go(&self) -> usize; }
struct Pair<T>(T, T);
impl<T: std::fmt::Display> Go for Pair<T> { fn go(&self) -> usize { format!("{}{}", self.0, self.1).len() } }
impl Go for [u8] { fn go(&self) -> usize { self.len() } }
impl Go for &str { fn go(&self) -> usize { self.len() } }
fn __apply<F: Fn(usize) -> usize>(f: F) -> usize { (0..9).map(|x| f(x)).sum() }
fn main() {
    let mut m: HashMap<String, Vec<u8>> = HashMap::new();
    m.entry("x".into()).or_default().push(1);
    println!("{}", __apply(|x| x + m.len()) + Pair(1, 2).go() + "ab".go() + [1u8, 2][..].go());
}`
	program := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program+".rs", []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := testenv.Command(t, testenv.Tool(t, "rustc"), "-Zunstable-options", "-Csymbol-mangling-version=legacy", "-o", program, program+".rs")
	cmd.Env = append(os.Environ(), "RUSTC_BOOTSTRAP=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("rustc: %v\n%s", err, out)
	}
	var linkage []string
	for _, s := range testenv.Symbols(t, program) {
		if strings.HasPrefix(s.Name, "_ZN") {
			linkage = append(linkage, s.Name)
		}
	}
	if len(linkage) < 100 {
		t.Fatalf("got %d symbols: %q", len(linkage), linkage)
	}
	closures := 0
	for i, want := range filtered(t, "rust", linkage) {
		want = legacyHash.ReplaceAllString(want, "")
		for _, suffix := range []string{"", ".llvm.1234567890", ".cold"} {
			if got := newNames(linkage[i]+suffix, Options{}).shown; got != want {
				t.Errorf("%s: got %q, want %q", linkage[i]+suffix, got, want)
			}
		}
		if strings.Contains(want, "__apply::{{closure}}") {
			closures++
		}
	}
	if closures == 0 {
		t.Error("no closure among the names")
	}
}

// C++ has the same form of names.
func TestDemangleLegacyRustForms(t *testing.T) {
	for linkage, want := range map[string]string{
		"_ZN3std6vector4pushEv":                       "std::vector::push",
		"_ZN1a17h0000000000000000E":                   "a::h0000000000000000",
		"_ZN1a17h0123456789abcdefE":                   "a",
		"_ZN17h0123456789abcdefE":                     "h0123456789abcdef",
		"_ZN5a$zz$17h0123456789abcdefE":               "a$zz$",
		"_ZN8a$u0a$bc17h0123456789abcdefE":            "a$u0a$bc",
		"_ZN9_$u7b$..b17h0123456789abcdefE.llvm.1234": "{::b",
		"_ZN9a17h0123456789abcdefE":                   "_ZN9a17h0123456789abcdefE",
	} {
		if got := newNames(linkage, Options{}).shown; got != want {
			t.Errorf("%s: got %q, want %q", linkage, got, want)
		}
	}
}
