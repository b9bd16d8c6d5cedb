package known

import (
	"path/filepath"
	"testing"
	"weak"

	"fulgur/internal/bpf"
	"fulgur/internal/process"
	"fulgur/internal/runtimes"
	"fulgur/internal/symbols/elffile"
	"fulgur/internal/testenv"
)

// Debian's builds of interpreters are recognized by what they export. Programs and libraries without
// one are not.
func TestInterpreterIn(t *testing.T) {
	beam, err := filepath.Glob("/usr/lib/erlang/erts-*/bin/beam.smp")
	if err != nil || len(beam) == 0 {
		beam = []string{"/usr/lib/erlang/erts/bin/beam.smp"}
	}
	for _, test := range []struct{ path, want string }{
		{"php", "PHP"},
		{"perl", "Perl"},
		{"luajit", "LuaJIT"},
		{"lua5.4", "Lua"},
		{testenv.Library("libpypy3.9-c.so"), "PyPy"},
		{testenv.Library("libguile-3.0.so.1"), "Guile"},
		{"ocamlrun", "OCaml bytecode"},
		{testenv.Library("libtcl8.6.so"), "Tcl"},
		{beam[0], "Erlang"},
		{"mono-sgen", "Mono"},
		{"gcc", ""},
		{"readelf", ""},
		{"node", ""},
	} {
		path := test.path
		if filepath.IsAbs(path) {
			testenv.File(t, path)
		} else {
			path = testenv.Tool(t, path)
		}
		f, err := elffile.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		switch i, err := interpreterIn(f); {
		case err != nil:
			t.Errorf("%s: %v", path, err)
		case i != nil:
			got = i.name
		}
		if got != test.want {
			t.Errorf("%s: got interpreter %q, want %q", path, got, test.want)
		}
		if test.want != "" && !IsForeign(got) {
			t.Errorf("%s is not among the languages whose functions are not shown", got)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}

// The language of generated code is known if the process has only one runtime that generates code.
func TestTrackerLanguage(t *testing.T) {
	java := map[runtimes.Kind]*runtimes.Build{bpf.RuntimeHotSpot: {Unknown: "java 99"}}
	python := map[runtimes.Kind]*runtimes.Build{bpf.RuntimePython: {Unknown: "python 99"}}
	var perl, lua *interpreter
	for i := range interpreters {
		switch interpreters[i].name {
		case "Perl":
			perl = &interpreters[i]
		case "LuaJIT":
			lua = &interpreters[i]
		}
	}
	libjvm, libpython, libperl, libluajit, other := file{builds: java}, file{builds: python}, file{interpreter: perl}, file{interpreter: lua}, file{}
	tracker := NewTracker(&programs{programs: map[uint64]bpf.RuntimeProgram{}})
	for _, test := range []struct {
		files []file
		want  string
	}{
		{[]file{other, libjvm, libperl}, "java"},
		{[]file{other, libluajit}, "LuaJIT"},
		{[]file{libpython, libluajit}, "LuaJIT"},
		{[]file{libjvm, libluajit}, ""},
		{[]file{other, libperl, libpython}, ""},
	} {
		var mappings []process.Mapping
		for _, f := range test.files {
			mapped := new(process.File)
			tracker.files[weak.Make(mapped)] = f
			mappings = append(mappings, process.Mapping{Kind: process.KindFile, File: mapped})
			want := ""
			if f.interpreter != nil {
				want = f.interpreter.name
			}
			if got := tracker.Language(5, mapped); got != want {
				t.Errorf("got language %q of a file, want %q", got, want)
			}
			for kind := range f.builds {
				want = Name(kind)
			}
			if got := tracker.Hosted(mapped); got != want {
				t.Errorf("got language %q hosted by a file, want %q", got, want)
			}
		}
		tracker.Mapped(5, 7, mappings)
		if got := tracker.Language(5, nil); got != test.want {
			t.Errorf("got language %q of generated code, want %q", got, test.want)
		}
		if got := tracker.Language(6, nil); got != "" {
			t.Errorf("got language %q of another process", got)
		}
		tracker.Forget(5)
		if got := tracker.Language(5, nil); got != "" {
			t.Errorf("got language %q of a process that has ended", got)
		}
	}
	if !IsJava("java") || IsForeign("java") || IsJava("") || IsForeign("") {
		t.Error("languages are confused")
	}
}
