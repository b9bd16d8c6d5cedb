package autofdo

import "strings"

// CanonicalName returns the name without suffixes of clones. Clang looks functions up by this
// name (FunctionSamples::getCanonicalFnName in LLVM).
func CanonicalName(name string) string {
	for _, suffix := range [...]string{".llvm.", ".part."} {
		i := strings.LastIndex(name, suffix)
		if i >= 0 && strings.LastIndexByte(name, '.') == i+len(suffix)-1 {
			name = name[:i]
		}
	}
	return name
}

// ambiguous reports whether a program may have many functions of this name, so that their sum
// would mislead clang. The compiler generates such initializers.
func ambiguous(name string) bool {
	return strings.HasPrefix(name, "__cxx_global_var_init") || strings.HasPrefix(name, "__tls_init")
}
