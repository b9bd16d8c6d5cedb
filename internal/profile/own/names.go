package own

import (
	"regexp"
	"strings"

	"fulgur/internal/profile"
)

// languages is a set of languages.
type languages uint8

const (
	python languages = 1 << iota
	javascript
	java
	ruby
	every = python | javascript | java | ruby
)

// scriptModules are the paths of the mappings of script functions.
var scriptModules = map[string]languages{"[python]": python, "[javascript]": javascript, "[java]": java, "[ruby]": ruby}

// file is what a mapping holds.
type file struct {
	script  languages // script functions
	runtime languages // a runtime or a part of it, and libraries that it uses
	embeds  languages // a runtime beside the code of a program
	// isLibrary is set for the C library, isSupport for libraries that replace parts of it or that
	// compilers use, and isMap for files that describe generated code.
	isLibrary, isSupport, isMap bool
}

// isPlain reports whether nothing is known about the file.
func (f *file) isPlain() bool { return *f == file{} }

// The names of files. cLibrary matches libraries whose functions say nothing about why a program
// waits.
var (
	cLibrary = regexp.MustCompile(`^(libc|libpthread|ld-linux|ld-musl|libstdc\+\+|vdso)([-.].*)?$`)
	support  = regexp.MustCompile(`^(libm|libmvec|libdl|librt|libgcc_s|libc\+\+|libc\+\+abi|libatomic|` +
		`libjemalloc|libtcmalloc(_minimal)?|libmimalloc)([-.].*)?$`)
	perfMaps = regexp.MustCompile(`^(perf-\d+\.map|jitted-\d+-\d+\.so)$`)
)

// runtimeFiles are the files that hold a runtime, or a part of the standard library in C. Their
// names are those in the interpreters' own builds and in distributions.
var runtimeFiles = []struct {
	of   languages
	path *regexp.Regexp
}{
	{python, regexp.MustCompile(`(^|/)(python(\d(\.\d+)?[dmt]*)?(-dbg)?|libpython\d[^/]*\.so[\d.]*)$|/lib-dynload/[^/]+\.so$`)},
	{javascript, regexp.MustCompile(`(^|/)(node|nodejs|lib(node|uv)\.so[\d.]*)$`)},
	{java, regexp.MustCompile(`(^|/)lib(jvm|java|nio|net|extnet|zip|jimage|verify|jsvml|management(_ext)?)\.so$`)},
	{ruby, regexp.MustCompile(`(^|/)(ruby[\d.]*|libruby[^/]*\.so[\d.]*)$|/ruby/\d+\.\d+\.\d+/.*\.so$`)},
}

// fileOf returns what a mapping holds, given its path and the name of its module.
func fileOf(path, module string) (f file) {
	path, module = strings.TrimSuffix(path, deleted), strings.TrimSuffix(module, deleted)
	f.script = scriptModules[path]
	f.isLibrary, f.isSupport, f.isMap = cLibrary.MatchString(module), support.MatchString(module), perfMaps.MatchString(module)
	if !profile.IsFile(path) {
		return f
	}
	for _, r := range runtimeFiles {
		if r.path.MatchString(path) {
			f.runtime |= r.of
		}
	}
	return f
}

// deleted is the kernel's mark of a file that has been deleted or replaced.
const deleted = " (deleted)"

// The names of functions of runtimes. Languages have reserved the prefixes and namespaces.
var (
	evaluator      = regexp.MustCompile(`^_PyEval_EvalFrame`)
	pythonFunction = regexp.MustCompile(`^_?_?Py[A-Z_]`)
	// Compilers may write the type of the result before the name.
	v8Function   = regexp.MustCompile(`^([\w:*& ]+ )?(v8|v8_inspector|v8_crdtp|cppgc)::|^Builtins_`)
	nodeFunction = regexp.MustCompile(v8Function.String() + `|^([\w:*& ]+ )?(node|heap::base|disasm|unibrow)::|^(uv_|uv__|uvwasi_|napi_|node_api_|node_module_)|^main$`)
	// neutral are functions that runtimes and libraries share.
	neutral = regexp.MustCompile(`^([\w:*& ]+ )?(std|__gnu_cxx|__cxxabiv1|absl)::|^operator (new|delete)|^__|^_GLOBAL_|^\(anonymous|^decltype|^construct`)
)

// libraryFunction matches the public functions of libraries that are linked into runtimes: zlib,
// bzip2, xz, Zstandard, expat, libffi, SQLite, OpenSSL, mpdecimal, Tcl. Their other functions are known by
// their callers.
var libraryFunction = regexp.MustCompile(`^((Cr_z_|zng_)?(deflate|inflate|compress|uncompress|crc32|adler32)(2|_z|_fast|_combine\w*)?|` +
	`(Cr_z_|zng_)?(deflate|inflate)[A-Z]\w*|` +
	`BZ2_\w+|lzma_\w+|ZSTD_\w+|HUF_\w+|XML_\w+|ffi_\w+|sqlite3_\w+|mpd_\w+|Tcl_\w+|Tk_\w+|` +
	`(EVP|SSL|CRYPTO|BIO|BN|EC|ECDSA|RSA|DSA|DH|X509|X509V3|X509_\w+|ASN1|PEM|RAND|HMAC|CMAC|ERR|OBJ|OSSL|OPENSSL|MD5|SHA1|SHA256|SHA512|AES|PKCS5|PKCS7|PKCS12|ENGINE|d2i|i2d)_\w+)$`)

// perfMapNames are the forms of names that runtimes give to functions in perf maps and jitdump files.
var perfMapNames = []struct {
	of   languages
	name *regexp.Regexp
}{
	{python, regexp.MustCompile(`^py::`)},
	{javascript, regexp.MustCompile(`^(JS|LazyCompile|InterpretedFunction|Function|Script|Eval):`)},
	{java, regexp.MustCompile(`^L[\w/$]+;::`)}, // perf-map-agent and perf's agent
}

// described returns the language of generated code with a name in a perf map or a jitdump file, 0 if
// the name is of no known form.
func described(name string) languages {
	for _, n := range perfMapNames {
		if n.name.MatchString(name) {
			return n.of
		}
	}
	return 0
}
