package symbolize

import "testing"

// Names of OCaml's compilers 4.13 (with "__") and 5.2 (with "."). OCaml itself (Printexc.Slot.name) has the
// same ones, except that it joins the modules of files by "__".
func TestDemangleOCaml(t *testing.T) {
	for linkage, want := range map[string]string{
		"camlO1__fib_96":                  "O1.fib",
		"camlO1.fib_268":                  "O1.fib",
		"camlStdlib__List__fold_left_521": "Stdlib.List.fold_left",
		"camlStdlib__List.fold_left_521":  "Stdlib.List.fold_left",
		"camlStdlib__Bytes__$2b$2b_127":   "Stdlib.Bytes.(++)",
		"camlNames__$3e$3e$3d_156":        "Names.(>>=)",
		"camlNames__area$27_87":           "Names.area'",
		"camlStdlib__Printf__k$27_197":    "Stdlib.Printf.k'",
		"camlNames__fun_210":              "Names.fun_210",
		"camlNames__entry":                "Names.entry",
		"camlNames__a__b_12":              "Names.a__b",
		"camlNames__a_1$c3$a9_12":         "Names.a_1é",
		// Names of the runtime in C, of data, and damaged ones.
		"caml_alloc_small": "", "caml": "", "camlO1": "", "camlO1__": "", "camlO1__f$2": "", "camlO1__f$zz_1": "", "camlO1__f$0a_1": "",
		"camelCase__f_1": "", "main": "",
	} {
		got, ok := demangleOCaml(linkage)
		if got != want || ok != (want != "") {
			t.Errorf("%s: got %q, want %q", linkage, got, want)
		}
	}
}

// The linker name remains known, and demangling is optional, as for other languages.
func TestNamesOCaml(t *testing.T) {
	const linkage = "camlStdlib__Bytes__$3c$3c_127"
	for _, opts := range []Options{{}, {ShortNames: true}} {
		if got, want := newNames(linkage, opts), (names{"Stdlib.Bytes.(<<)", linkage}); got != want {
			t.Errorf("%+v: got %+v, want %+v", opts, got, want)
		}
	}
	if got, want := newNames(linkage, Options{NoDemangle: true}), (names{linkage, linkage}); got != want {
		t.Errorf("without demangling: got %+v, want %+v", got, want)
	}
}
