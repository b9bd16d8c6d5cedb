//go:build !go1.20

package main

import "runtime"

func startLine(*runtime.Frame) int { return 0 }
