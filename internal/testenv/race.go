//go:build race

package testenv

// raceEnabled tells that the race detector is part of the program: it takes a
// multiple of the memory and time, and terabytes of address space.
const raceEnabled = true
