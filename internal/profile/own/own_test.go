package own

import (
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/encodetest"
)

// maker makes profiles of stacks, written root first as "name@path name@path". Modules in brackets
// are script functions with a source unless the name ends in "!", "kernel" is the kernel, "·" a space, and a name
// in brackets without a path is a note. A file may follow the brackets of a module.
type maker struct{ *profile.Builder }

func newMaker() maker {
	return maker{profile.NewBuilder(profile.ValueType{Type: "samples", Unit: "count"})}
}

func (m maker) frame(text string) profile.FrameID {
	text = strings.ReplaceAll(text, "·", " ")
	at := strings.LastIndexByte(text, '@')
	isCode := at >= 0
	name, path := text, ""
	if isCode {
		name, path = text[:at], text[at+1:]
	}
	name, isBare := strings.CutSuffix(name, "!")
	fn := profile.Function{Name: name, SystemName: name}
	f := profile.Frame{Address: 16}
	switch {
	case !isCode:
		f.Kind = profile.KindMarker
	case path == "kernel":
		f.Kind, path = profile.KindKernel, profile.KernelPath
	case path[0] == '[':
		f.Kind = profile.KindJIT
		if !isBare {
			fn.File, fn.StartLine = "/app", 1
		}
		if module, file, ok := strings.Cut(path, "]"); ok && file != "" {
			path, fn.File = module+"]", file
		}
	}
	if isCode {
		f.Mapping = m.Mapping(profile.Mapping{Path: path})
	}
	if name != "" {
		f.Function = m.Function(fn)
	}
	return m.Frame(f)
}

func (m maker) add(stack string) (leaf profile.StackID) {
	for _, f := range strings.Fields(stack) {
		leaf = m.Push(leaf, m.frame(f))
	}
	m.Add(profile.Sample{Stack: leaf, CPU: -1, Values: []int64{1}})
	return leaf
}

const (
	inPython = "main@/usr/bin/python3.11 _PyEval_EvalFrameDefault@/usr/bin/python3.11 f@[python] "
	inNode   = "main@/usr/bin/node v8::internal::Execution::Call@/usr/bin/node f@[javascript] "
	inJava   = "JavaCalls::call_helper@/jdk/lib/server/libjvm.so Call·Stub!@[java] A.f@[java] "
	inRuby   = "main@/usr/bin/ruby rb_vm_exec@/usr/lib/libruby-3.1.so.3.1.2 f@[ruby] "
)

// From the leaf inwards, functions of the kernel, the C library and the runtime of the language are
// skipped; the first other one owns the sample. Stacks without script functions belong to their leaf.
func TestOf(t *testing.T) {
	for _, test := range []struct{ name, stack, want string }{
		{"a C program in the kernel", "main@/bin/app write@/lib/libc.so.6 vfs_write@kernel", "vfs_write"},
		{"a C program in the C library", "main@/bin/app memcpy@/lib/libc.so.6", "memcpy"},
		{"a thread of V8", "start_thread@/lib/libc.so.6 v8::internal::Sweeper::Sweep@/usr/bin/node madvise@kernel", "madvise"},
		{"a program with symbols of a runtime", "main@/bin/app v8::internal::Heap::CollectGarbage@/bin/app", "v8::internal::Heap::CollectGarbage"},

		{"the interpreter", inPython + "_PyEval_EvalFrameDefault@/usr/bin/python3.11", "f"},
		{"a builtin", inPython + "_PyEval_EvalFrameDefault@/usr/bin/python3.11 builtin_sorted@/usr/bin/python3.11 list_sort.lto_priv.0@/usr/bin/python3.11", "f"},
		{"without a name", inPython + "python3.11+0x1200@/usr/bin/python3.11", "f"},
		{"a replaced interpreter", inPython + "@/usr/bin/python3.11·(deleted)", "f"},
		{"a page fault", inPython + "PyList_New@/usr/lib/libpython3.12.so.1.0 malloc@/lib/x86_64-linux-gnu/libc.so.6 clear_page@kernel", "f"},
		{"another allocator", inPython + "PyList_New@/usr/lib/libpython3.12.so.1.0 malloc@/usr/lib/libjemalloc.so.2", "f"},
		{"the standard library in C", inPython + "scan_once@/usr/lib/python3.11/lib-dynload/_json.cpython-311-x86_64-linux-gnu.so", "f"},
		{"an extension", inPython + "DOUBLE_add@/usr/lib/python3/dist-packages/numpy/core/_multiarray_umath.cpython-311-x86_64-linux-gnu.so", "DOUBLE_add"},
		{"an extension in the C library", inPython + "DOUBLE_copy@/x/numpy/core/_multiarray_umath.so memcpy@/lib/libc.so.6 clear_page@kernel", "DOUBLE_copy"},
		{"an extension that calls Python", inPython + "apply@/x/ext.so PyObject_Call@/usr/bin/python3.11 _PyEval_EvalFrameDefault@/usr/bin/python3.11 g@[python] _PyEval_EvalFrameDefault@/usr/bin/python3.11", "g"},
		{"an extension in the API", inPython + "apply@/x/ext.so PyList_Append@/usr/bin/python3.11", "apply"},
		{"a library", inPython + "zlib_compress@/usr/bin/python3.11 deflate@/lib/libz.so.1 deflate_slow@/lib/libz.so.1", "deflate_slow"},
		{"a library in the file", inPython + "zlib_compress@/opt/bin/python3.12 deflate@/opt/bin/python3.12 deflate_slow@/opt/bin/python3.12", "deflate_slow"},
		{"that calls the C library", inPython + "zlib_compress@/opt/bin/python3.12 deflate@/opt/bin/python3.12 fill_window@/opt/bin/python3.12 memcpy@/lib/libc.so.6", "fill_window"},
		{"that calls the runtime", inPython + "pysqlite_step@/opt/bin/python3.12 sqlite3_step@/opt/bin/python3.12 sqlite3VdbeExec@/opt/bin/python3.12 PyObject_Call@/opt/bin/python3.12 dict_lookup@/opt/bin/python3.12", "sqlite3VdbeExec"},
		{"that an extension has", inPython + "crc32@/x/ext.so", "crc32"},
		{"CPython in a program", "main@/usr/bin/blender _PyEval_EvalFrameDefault@/usr/bin/blender f@[python] _PyEval_EvalFrameDefault@/usr/bin/blender PyDict_New@/usr/bin/blender", "f"},
		{"code of that program", "main@/usr/bin/blender _PyEval_EvalFrameDefault@/usr/bin/blender f@[python] _PyEval_EvalFrameDefault@/usr/bin/blender BKE_mesh_new@/usr/bin/blender", "BKE_mesh_new"},
		{"a note", inPython + "_PyEval_EvalFrameDefault@/usr/bin/python3.11 sleep@/lib/libc.so.6 schedule@kernel [sleep]", "[sleep]"},
		{"a function without a name", "main@/usr/bin/python3.11 @[python] _PyEval_EvalFrameDefault@/usr/bin/python3.11", "[python+0x10]"},
		{"another language's runtime", inPython + "uv_run@/usr/lib/libuv.so.1", "uv_run"},

		{"a builtin", inNode + "map!@[javascript] Builtins_ArrayMap@/usr/bin/node v8::internal::Heap::Scavenge@/usr/bin/node", "f"},
		{"its argument", inNode + "map!@[javascript] g@[javascript] Builtins_Add@/usr/bin/node", "g"},
		{"a regular expression", inNode + "replace!@[javascript] (RegExp)!@[javascript]", "f"},
		{"a file", inNode + "node::fs::Read@/usr/bin/node uv_fs_read@/usr/bin/node read@/lib/libc.so.6 vfs_read@kernel", "f"},
		{"with the type of its result", inNode + "bool·v8::internal::Foo<int>@/usr/bin/node", "f"},
		{"zlib in node", inNode + "node::zlib::Write@/usr/bin/node Cr_z_deflate@/usr/bin/node deflate_slow@/usr/bin/node", "deflate_slow"},
		{"OpenSSL in node", inNode + "node::crypto::Hash@/usr/bin/node EVP_DigestUpdate@/usr/bin/node sha256_block_data_order_shaext@/usr/bin/node", "sha256_block_data_order_shaext"},
		{"std in V8", inNode + "v8::internal::Foo@/usr/bin/node std::sort<int>@/usr/bin/node", "f"},
		{"std in ICU", inNode + "v8::internal::Intl@/usr/bin/node icu_73::Collator::compare@/usr/bin/node std::sort<int>@/usr/bin/node", "std::sort<int>"},
		{"V8 in a program", "main@/usr/bin/app f@[javascript] v8::internal::Foo@/usr/bin/app", "f"},
		{"an addon", inNode + "Napi::Wrap@/x/addon.node", "Napi::Wrap"},

		{"the JVM", inJava + "MemAllocator::allocate@/jdk/lib/server/libjvm.so memset@/lib/libc.so.6 clear_page@kernel", "A.f"},
		{"a stub", inJava + "new_type_array·Runtime1·stub!@[java] Runtime1::new_type_array@/jdk/lib/server/libjvm.so", "A.f"},
		{"the JDK's native methods", inJava + "java.io.FileInputStream.readBytes@[java] readBytes@/jdk/lib/libjava.so read@/lib/libc.so.6", "java.io.FileInputStream.readBytes"},
		{"a call of the linker's", inPython + "memcpy@plt@/x/ext.so", "f"},
		{"a JNI library", inJava + "Java_A_g@/x/liba.so memcpy@/lib/libc.so.6", "Java_A_g"},
		{"zlib in the JDK", inJava + "Java_java_util_zip_Deflater_deflateBytesBytes@/jdk/lib/libzip.so deflate@/jdk/lib/libzip.so longest_match@/jdk/lib/libzip.so", "longest_match"},
		{"a hidden class", inJava + "App$$Lambda.run!@[java] libjvm.so+0x10@/jdk/lib/server/libjvm.so", "App$$Lambda.run"},

		{"a method in C", inRuby + "rb_ary_sort@/usr/lib/libruby-3.1.so.3.1.2 qsort_r@/lib/libc.so.6 libruby-3.1.so.3.1.2+0xa0280@/usr/lib/libruby-3.1.so.3.1.2", "f"},
		{"a method of Ruby in Ruby", inRuby + "pack@[ruby]<internal:pack> rb_pack@/usr/lib/libruby-3.1.so.3.1.2", "f"},
		{"that nothing calls", "main@/usr/bin/ruby prelude@[ruby]<internal:gem_prelude> rb_ary_new@/usr/lib/libruby-3.1.so.3.1.2", "prelude"},
		{"the standard library of Ruby", inRuby + "JSON_parse@/usr/lib/x86_64-linux-gnu/ruby/3.1.0/json/ext/parser.so", "f"},
		{"a gem", inRuby + "parse@/var/lib/gems/3.1.0/extensions/x86_64-linux/3.1.0/oj/oj.so", "parse"},

		{"a perf map of V8", "main@/usr/bin/node LazyCompile:*f·/a.js:1@[jit] Builtins_Add@/usr/bin/node", "LazyCompile:*f /a.js:1"},
		{"other generated code", "main@/bin/db expression_1@[jit] evaluate@/bin/db memcpy@/lib/libc.so.6", "memcpy"},
	} {
		m := newMaker()
		stack := m.add(test.stack)
		p := m.Profile(profile.Meta{}, profile.Losses{})
		o := Of(p)
		if got := p.FrameName(o.Frames[stack]); got != test.want {
			t.Errorf("%s: %s owns %q, want %s", test.name, got, test.stack, test.want)
		}
		if got := p.FrameName(Leaves(p).Frames[stack]); got != p.FrameName(p.Stacks[stack].Frame) {
			t.Errorf("%s: got %s as the leaf", test.name, got)
		}
	}
}

// Without sources, nothing tells builtin functions of JavaScript from others.
func TestOfWithoutSources(t *testing.T) {
	m := newMaker()
	stack := m.add("main@/usr/bin/node f!@[javascript] Builtins_Add@/usr/bin/node")
	p := m.Profile(profile.Meta{}, profile.Losses{})
	if got := p.FrameName(Of(p).Frames[stack]); got != "f" {
		t.Errorf("got %s", got)
	}
}

// The innermost function of a program in a script is an owner, and notes do not hide it.
func TestInnermost(t *testing.T) {
	for stack, want := range map[string]string{
		inPython + "_PyEval_EvalFrameDefault@/usr/bin/python3.11 poll@/lib/libc.so.6 schedule@kernel [poll]": "f",
		inPython + "wait@/x/ext.so poll@/lib/libc.so.6 schedule@kernel [poll]":                               "wait",
		"main@/usr/bin/node uv__io_poll@/usr/bin/node epoll_wait@/lib/libc.so.6 schedule@kernel [epoll]":     "uv__io_poll",
		"main@/bin/app poll@/lib/libc.so.6 schedule@kernel [poll]":                                           "main",
		"worker_thread@kernel schedule@kernel":                                                               "worker_thread",
	} {
		m := newMaker()
		id := m.add(stack)
		p := m.Profile(profile.Meta{}, profile.Losses{})
		if got := p.FrameName(Innermost(p).Frames[id]); got != want {
			t.Errorf("got %s in %q, want %s", got, stack, want)
		}
	}
}

// Stacks at random belong to the frame that a search from the leaf inwards finds.
func TestOfRandom(t *testing.T) {
	parts := strings.Fields("_PyEval_EvalFrameDefault@/usr/bin/python3.11 list_sort@/usr/bin/python3.11 f@[python] v8::internal::Heap@/usr/bin/node " +
		"g@[javascript] map!@[javascript] JavaCalls::call@/jdk/lib/libjvm.so A.h@[java] Call·Stub!@[java] rb_vm_exec@/usr/lib/libruby-3.1.so.3.1.2 k@[ruby] " +
		"memcpy@/lib/libc.so.6 sin@/lib/libm.so.6 clear_page@kernel schedule@kernel [futex] app@/bin/app x@[jit]")
	r := rand.New(rand.NewPCG(1, 2))
	m := newMaker()
	var stacks []profile.StackID
	for range 5000 {
		var text []string
		for range 1 + r.IntN(9) {
			text = append(text, parts[r.IntN(len(parts))])
		}
		stacks = append(stacks, m.add(strings.Join(text, " ")))
	}
	p := m.Profile(profile.Meta{}, profile.Losses{})
	owners := Of(p)
	for _, id := range stacks {
		path := p.AppendFrames(nil, id)
		if got, want := owners.Frames[id], searched(p, path); got != want {
			var names []string
			for _, f := range slices.Backward(path) {
				names = append(names, p.FrameName(f))
			}
			t.Fatalf("%s owns %s, want %s", p.FrameName(got), names, p.FrameName(want))
		}
	}
}

// searched returns the owner of a stack, given leaf first, with the frames of TestOfRandom.
func searched(p *profile.Profile, path []profile.FrameID) profile.FrameID {
	module := func(f profile.FrameID) string { return p.ModuleName(p.Frames[f].Mapping) }
	scripts := map[string]string{"f": "python", "g": "javascript", "A.h": "java", "k": "ruby"}
	runtimes := map[string]string{"python3.11": "python", "node": "javascript", "libjvm.so": "java", "libruby-3.1.so.3.1.2": "ruby", "javascript": "javascript", "java": "java"}
	if p.Frames[path[0]].Kind == profile.KindMarker {
		return path[0]
	}
	called := map[string]bool{} // the languages of callers
	owner := profile.FrameID(0)
	for _, f := range slices.Backward(path) { // callers first: the last one that is not skipped owns
		name := p.FrameName(f)
		skipped := len(called) > 0 && (p.Frames[f].Kind == profile.KindKernel || p.Frames[f].Kind == profile.KindMarker ||
			slices.Contains([]string{"libc.so.6", "libm.so.6"}, module(f)) || called[runtimes[module(f)]])
		language := scripts[name]
		if name == "map" && !called["javascript"] {
			language = "javascript"
		}
		if language != "" {
			called[language] = true
		}
		if language != "" || !skipped {
			owner = f
		}
	}
	return owner
}

// Prefixes of libraries' functions are none of the runtimes' own: the names are of CPython 3.12, of
// libruby 3.1 and of the JDK's libraries.
func TestLibraryFunctions(t *testing.T) {
	for name, want := range map[string]bool{
		"deflate": true, "deflateInit2_": true, "inflate": true, "inflate_fast": true, "crc32_z": true, "Cr_z_deflate": true, "compress2": true,
		"BZ2_bzCompress": true, "lzma_code": true, "XML_Parse": true, "sqlite3_step": true, "EVP_DigestUpdate": true, "SSL_read": true, "mpd_qmul": true,
		"zlib_compress": false, "zlib_Compress_compress": false, "PyExpat_XML_Parse": false, "_PyEval_EvalFrameDefault": false, "rb_str_new": false,
		"compress_block": false, "Java_java_util_zip_CRC32_update": false, "binascii_crc32": false, "ERR_": false, "deflateSuffix@": false,
	} {
		if got := libraryFunction.MatchString(name); got != want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

// A stack's owner takes time in proportion to the size of a profile.
func TestOfIsLinear(t *testing.T) {
	encodetest.Linear(t, func(_ io.Writer, p *profile.Profile) error {
		Of(p)
		return nil
	})
}
