//go:build !cgo

package main

func twice(n int) int { return 2 * n }
