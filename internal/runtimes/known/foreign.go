package known

import (
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"

	"fulgur/internal/bpf"
	"fulgur/internal/files/safeopen"
	"fulgur/internal/linux/procfs"
	"fulgur/internal/process"
	"fulgur/internal/runtimes"
	"fulgur/internal/symbols/elffile"
)

// interpreter is a language runtime whose frames fulgur does not read.
type interpreter struct {
	name string
	// symbol is exported by files with the interpreter, and by no others: plug-ins and programs
	// that use it in a library have an undefined symbol.
	symbol string
	// generates is set if it can run code that it generates.
	generates bool
}

// interpreters are the runtimes that fulgur recognizes without reading their frames. Of two with the
// same symbol, the first one that matches counts.
var interpreters = []interpreter{
	{"PHP", "execute_ex", true},
	{"Perl", "Perl_runops_standard", false},
	{"LuaJIT", "luaJIT_setmode", true},
	{"Lua", "lua_newstate", false},
	{"PyPy", "pypy_execute_source", true},
	{"Guile", "scm_call_n", true},
	{"OCaml bytecode", "caml_interprete", false},
	{"Tcl", "Tcl_EvalObjEx", false},
	{"Erlang", "erts_alloc_enomem", true},
	{ofMono, "mono_jit_exec", true},
}

// ofMono is Mono's name in interpreters. Its code for x86-64 uses the register of the frame pointer for other
// values, unless this option is among those in the variable.
const (
	ofMono          = "Mono"
	monoVariable    = "MONO_DEBUG="
	monoKeepsFrames = "disable_omit_fp"
)

// maxEnvironment limits the size of the environment that is searched for an option.
const maxEnvironment = 1 << 20

// omitsFrames reports whether Mono in process pid generates code that may hide its callers.
func omitsFrames(pid int) bool {
	variables, _ := process.Read(safeopen.NewBudget(), procfs.Survivor(pid), func(t procfs.Task) ([]string, error) {
		return t.Environment(maxEnvironment)
	}) // none if it is gone
	return runtime.GOARCH == "amd64" && !slices.ContainsFunc(variables, func(v string) bool {
		options, found := strings.CutPrefix(v, monoVariable)
		return found && slices.Contains(strings.Split(options, ","), monoKeepsFrames)
	})
}

// Omits reports whether code that a runtime has generated in process pid may hide its callers, in the middle
// of stacks that seem complete.
func (t *Tracker) Omits(pid int) bool {
	return t != nil && t.omits[pid] != nil && t.omits[pid]()
}

// hasMono notes that process pid has mapped Mono. Its environment is read when it runs generated code: while
// it executes the program, it has none.
func (t *Tracker) hasMono(pid int) {
	if t.omits[pid] == nil {
		t.omits[pid] = sync.OnceValue(func() bool { return omitsFrames(pid) })
	}
}

// ofJava is the name of Java in [Tracker.Language].
var ofJava = Name(bpf.RuntimeHotSpot)

// IsJava reports whether a language that [Tracker.Language] returned is Java.
func IsJava(language string) bool { return language == ofJava }

// IsForeign reports whether a language that [Tracker.Language] returned is one whose frames
// fulgur does not read.
func IsForeign(language string) bool {
	for _, i := range interpreters {
		if i.name == language {
			return true
		}
	}
	return false
}

// interpreterIn returns the interpreter in a file, nil if it has none.
func interpreterIn(f *elffile.File) (*interpreter, error) {
	for i := range interpreters {
		switch _, has, err := f.DynamicSymbol(interpreters[i].symbol); {
		case err != nil:
			return nil, err
		case has:
			return &interpreters[i], nil
		}
	}
	return nil, nil //nolint:nilnil // most files have none
}

// generating holds the kinds of runtimes that can run code that they generate.
var generating = map[runtimes.Kind]bool{bpf.RuntimeV8: true, bpf.RuntimeHotSpot: true, bpf.RuntimeRuby: true}

// duringWalk holds the kinds of runtimes whose frames the kernel side can read only while it walks the
// stack of a thread.
var duringWalk = map[runtimes.Kind]bool{bpf.RuntimeV8: true, bpf.RuntimeHotSpot: true}

// NeedsTables reports whether one of the files has a runtime whose frames are lost in a sample that is
// taken before the unwind tables are made.
func (t *Tracker) NeedsTables(files []*process.File) bool {
	return t != nil && slices.ContainsFunc(files, func(f *process.File) bool {
		for kind := range t.file(f).builds {
			if duringWalk[kind] {
				return true
			}
		}
		return false
	})
}

// generators returns the languages whose runtimes in f can run code that they generate.
func (f *file) generators() (languages []string) {
	for kind := range f.builds {
		if generating[kind] {
			languages = append(languages, Name(kind))
		}
	}
	if f.interpreter != nil && f.interpreter.generates {
		languages = append(languages, f.interpreter.name)
	}
	return languages
}

// Hosted returns the language whose runtime is in f, "" if none is, whether or not fulgur reads its frames.
func (t *Tracker) Hosted(f *process.File) string {
	is := t.file(f)
	if is.interpreter != nil {
		return is.interpreter.name
	}
	for _, kind := range slices.Sorted(maps.Keys(is.builds)) {
		return Name(kind)
	}
	return ""
}

// Language returns the language that the code of f executes or, if f is nil, the one whose runtime
// has generated the code of process pid. It is "" if unknown, and for files with runtimes whose frames
// fulgur reads.
func (t *Tracker) Language(pid int, f *process.File) string {
	if t == nil {
		return ""
	}
	if f == nil {
		return t.generators[pid]
	}
	if i := t.file(f).interpreter; i != nil {
		// Frames of Mono itself are below those of its code, and may come before [Tracker.Mapped].
		if i.name == ofMono {
			t.hasMono(pid)
		}
		return i.name
	}
	return ""
}
