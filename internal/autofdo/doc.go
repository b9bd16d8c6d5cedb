// Package autofdo makes sample profiles for clang from recorded branches, a file's machine
// code and its debug information.
//
// Every instruction between the target of a branch and the next branch was executed. So a
// trace counts for all source positions of the code it covers, each in the tree of calls
// that the compiler inlined there. Instructions at the same position count as often as the
// most frequent of them. A branch to the beginning of a function is a call, which counts
// for the position of the branch, and for the function.
//
// The rules follow LLVM's own tool, llvm-profgen
// (llvm/tools/llvm-profgen/ProfileGenerator.cpp). The profiles differ where it takes other
// records into account, see package bolt.
package autofdo
