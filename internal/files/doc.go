// Package files is the area of file access: safeopen opens and reads files at untrusted
// paths within time limits, ctxfile reads until a context is done, atomicfile writes output
// that appears complete or not at all, unpack decompresses, and tempfile creates unnamed temporary
// files. Package helper runs the processes that open files in place of this one, and budget limits
// the time spent on others. No package here knows what a file contains. This package itself is empty.
//
// Start with safeopen: everything that opens a path chosen by another process or by a
// binary goes through it.
package files
