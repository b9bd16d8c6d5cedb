// Package autofdo makes sample profiles for clang from recorded branches, a file's machine
// code and its debug information.
//
// Every instruction between the target of a branch and the next branch was executed. So a
// trace counts for all source positions of the code that it covers, each within the calls
// that the compiler inlined there. The count of a position is the highest count among its
// instructions. A branch to the start of a function is a call, which counts both for the
// position of the branch and for the function.
//
// The rules follow LLVM's own tool, llvm-profgen
// (llvm/tools/llvm-profgen/ProfileGenerator.cpp). The profiles differ where llvm-profgen uses
// other branch records, see package bolt.
package autofdo
