// Package twice makes the system's linker place C code next to Go's.
package twice

// #include <stdlib.h>
// static int twice(int n) { return abs(n) * 2; }
import "C"

// Twice returns 2 n.
func Twice(n int) int { return int(C.twice(C.int(n))) }
