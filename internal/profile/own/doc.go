// Package own tells to which function of a stack the value of a sample belongs.
//
// In a native program, that is the leaf. In a program that is written in Python, JavaScript, Java
// or Ruby, the leaf is nearly always a function of the interpreter, of the C library or of the
// kernel, which says little to those who wrote the program. So if a stack has a function of such a
// language (a script function), the value belongs to the innermost function that is none of these:
// a script function, or a native function of another library, such as numpy or zlib. Stacks without
// script functions keep their leaf, even if they are of an interpreter's thread: a program in C spends
// its time in the kernel and the C library itself.
//
// The class of a frame follows from its names alone, which files keep, so that a profile has the
// same numbers when it is measured and when it is read.
package own
