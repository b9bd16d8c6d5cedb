// Package symbols is the area that leads from a file and an address to functions and
// lines: elffile, callframe and dwarf parse, debugfile finds separate debug files, symbolize and
// ksym look up names, and disasm shows instructions. No package here knows stacks,
// processes or profiles; callers pass link-time addresses. All files are untrusted: bound
// depth, bytes and time. This package itself is empty.
//
// Start with symbolize, whose Table is what the rest of fulgur uses, then elffile.
package symbols
