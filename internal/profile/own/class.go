package own

import (
	"regexp"
	"strings"

	"fulgur/internal/profile"
)

// class is whose code a frame is, in the order of how much it says about a program.
type class uint8

const (
	note      class = iota // no function
	scheduler              // of the kernel, where all threads wait
	kernel
	library // the C library, or Go's runtime
	runtime // of a language, if the stack has functions in that language
	other   // of anything else
	script
)

// frameClass is the class of a frame.
type frameClass struct {
	class class
	// of is the language of a script function, or the languages of whose runtimes a function is.
	of languages
	// may is set for a function that may belong to a library in the same file as the runtime: it
	// does if that library calls it.
	may bool
	// bundled is set for a function of such a library.
	bundled bool
	// builtin is set for a function of the language itself that has a frame of its own. It belongs to
	// the runtime if a script function called it. Otherwise it is a script function.
	builtin bool
}

// classes are the classes of the frames of a profile.
type classes struct {
	*profile.Profile
	frames      []frameClass
	scripts     bool      // there are script functions
	in, sourced languages // see present
}

// walk calls visit for each stack except the empty one, after the stack of its caller, with the
// class of its leaf and whether a script function called it or is it.
func (c *classes) walk(visit func(id profile.StackID, is class, isScripted bool)) {
	type state struct {
		// in is the language of the script functions of the stack.
		in languages
		// library is the file in which a library was called that is in the runtime's file.
		library profile.MappingID
	}
	states := make([]state, len(c.Stacks))
	for id := 1; id < len(states); id++ {
		s := c.Stacks[id]
		at, f, mapping := states[s.Parent], c.frames[s.Frame], c.Frames[s.Frame].Mapping
		is := f.class
		if is == runtime && at.in&f.of == 0 {
			is = other // of the runtime of another language, or of none
		}
		if f.builtin && at.in&f.of == 0 {
			is = script
		}
		switch {
		case is == script:
			at = state{in: at.in | f.of}
		case f.bundled:
			at.library = mapping
		case is == runtime && f.may && at.library == mapping && mapping != 0:
			is = other
		case is >= runtime:
			at.library = 0
		}
		states[id] = at
		visit(profile.StackID(id), is, at.in != 0)
	}
}

// present returns the languages of the script functions of a profile, and those whose functions have
// files or lines. Builtin functions of JavaScript have none, but without sources nothing tells them
// from others.
func (c *classes) present(files []file) (all, sourced languages) {
	for _, f := range c.Frames {
		of := files[f.Mapping].script
		all |= of
		if isSourced(c.Functions[f.Function]) {
			sourced |= of
		}
	}
	return all, sourced
}

func isSourced(f profile.Function) bool { return f.File != "" || f.StartLine != 0 }

// classify returns the classes of all frames.
func classify(p *profile.Profile) *classes {
	c := &classes{Profile: p, frames: make([]frameClass, len(p.Frames))}
	files := make([]file, len(p.Mappings))
	for id, m := range p.Mappings {
		files[id] = fileOf(m.Path, p.ModuleName(profile.MappingID(id)))
	}
	for id := 1; id < len(p.Frames); id++ {
		// Files that contain CPython beside the code of a program have its evaluator.
		if f := p.Frames[id]; files[f.Mapping].isPlain() && f.Function != 0 && evaluator.MatchString(p.Functions[f.Function].Name) {
			files[f.Mapping].embeds = python
		}
	}
	type code struct { // all that the class depends on
		function profile.FunctionID
		mapping  profile.MappingID
		kind     profile.Kind
	}
	known := map[code]frameClass{}
	c.in, c.sourced = c.present(files)
	for id := 1; id < len(c.frames); id++ {
		f := p.Frames[id]
		key := code{f.Function, f.Mapping, f.Kind}
		is, ok := known[key]
		if !ok {
			is = c.classOf(profile.FrameID(id), &files[f.Mapping])
			known[key] = is
		}
		c.frames[id] = is
		c.scripts = c.scripts || is.class == script
	}
	return c
}

// Go's functions that say nothing about why a program waits, and the kernel's in which all threads
// wait.
var (
	goRuntime   = regexp.MustCompile(`^(runtime|syscall|internal/[\w/]+)\.`)
	inScheduler = regexp.MustCompile(`^(__|io_|preempt_)?schedule(_|$)`)
)

// classOf returns the class of a frame in a file.
func (c *classes) classOf(id profile.FrameID, of *file) frameClass {
	f := c.Frames[id]
	name := c.Functions[f.Function].Name
	switch {
	case f.Kind == profile.KindMarker:
		return frameClass{class: note}
	case f.Kind == profile.KindKernel && inScheduler.MatchString(c.GroupName(id)):
		return frameClass{class: scheduler}
	case f.Kind == profile.KindKernel:
		return frameClass{class: kernel}
	case of.script == java && f.Function != 0 && !isMethod(name):
		return frameClass{class: runtime, of: java}
	case of.script == javascript && f.Function != 0 && c.sourced&javascript != 0 && !isSourced(c.Functions[f.Function]),
		of.script == ruby && strings.HasPrefix(c.Functions[f.Function].File, rubyCore):
		return frameClass{class: runtime, of: of.script, builtin: true}
	case of.script != 0:
		return frameClass{class: script, of: of.script}
	case of.isLibrary, goRuntime.MatchString(name), strings.HasSuffix(name, "@plt"):
		return frameClass{class: library}
	case f.Kind == profile.KindJIT || of.isMap:
		if of := described(name); of != 0 {
			return frameClass{class: script, of: of}
		}
		return frameClass{class: other}
	case of.isSupport:
		return frameClass{class: runtime, of: every}
	case of.runtime != 0:
		return inRuntime(of.runtime, name, c.Named(id))
	case of.embeds == python && pythonFunction.MatchString(name):
		return frameClass{class: runtime, of: python}
	case c.in&javascript != 0 && v8Function.MatchString(name):
		return frameClass{class: runtime, of: javascript}
	}
	return frameClass{class: other}
}

// inRuntime returns the class of a function in a file that holds the runtime of a language, and
// perhaps libraries.
func inRuntime(of languages, name string, named bool) frameClass {
	is := frameClass{class: runtime, of: of}
	switch {
	case !named, neutral.MatchString(name):
		is.may = true
	case of == javascript && nodeFunction.MatchString(name):
	case of == javascript, libraryFunction.MatchString(name):
		return frameClass{class: other, bundled: true}
	case of == python && pythonFunction.MatchString(name), of == ruby && strings.HasPrefix(name, "rb_"):
	default:
		is.may = true
	}
	return is
}

// isMethod reports whether a name in Java's module is of a method, "pkg.Class.method", rather than
// of a stub that the JVM generates, "StubRoutines (1)".
func isMethod(name string) bool { return strings.Contains(name, ".") && !strings.Contains(name, " ") }

// rubyCore begins the names of files with methods that Ruby implements in Ruby. Which methods these are
// differs between versions, and newer ones leave them out of backtraces.
const rubyCore = "<internal:"
