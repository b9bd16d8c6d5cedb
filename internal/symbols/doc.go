// Package symbols is the area of the packages that find functions and lines at addresses in
// files. elffile, callframe and dwarf parse files, debugfile finds separate debug files,
// symbolize and ksym look up names, disasm shows instructions, gocode finds entries and returns
// of Go functions, and pagecache caches parts of files. No package here knows stacks, processes
// or profiles; callers pass link-time addresses. All files are untrusted, so parsers bound depth,
// bytes and time. This package itself is empty.
//
// Start with symbolize, whose Table the rest of fulgur uses, then read elffile.
package symbols
