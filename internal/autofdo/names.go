package autofdo

import "strings"

// CanonicalName returns the name under which clang looks up a function: without the
// suffixes of clones (FunctionSamples::getCanonicalFnName in LLVM).
func CanonicalName(name string) string {
	for _, suffix := range [...]string{".llvm.", ".part."} {
		i := strings.LastIndex(name, suffix)
		if i >= 0 && strings.LastIndexByte(name, '.') == i+len(suffix)-1 {
			name = name[:i]
		}
	}
	return name
}

// ambiguous reports whether many different functions have this name, so that their counts
// would mislead clang: initializers that the compiler generates.
func ambiguous(name string) bool {
	return strings.HasPrefix(name, "__cxx_global_var_init") || strings.HasPrefix(name, "__tls_init")
}
