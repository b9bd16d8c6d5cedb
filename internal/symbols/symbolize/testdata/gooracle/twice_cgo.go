//go:build cgo

package main

import ctwice "gooracle/twice"

func twice(n int) int { return ctwice.Twice(n) }
