// Package message is the area of text for users: plain makes untrusted names safe to
// print, and usage has the error for options that cannot work. No package here prints
// anything or knows a command or its flags. This package itself is empty.
//
// Start with plain: all text from a process, a file or a symbol goes through it.
package message
