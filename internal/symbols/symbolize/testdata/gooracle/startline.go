//go:build go1.20

package main

import (
	"runtime"
	_ "unsafe" // for linkname
)

//go:linkname startLine runtime/pprof.runtime_FrameStartLine
func startLine(f *runtime.Frame) int
