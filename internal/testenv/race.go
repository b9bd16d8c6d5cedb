//go:build race

package testenv

// raceEnabled reports whether the race detector is enabled. It multiplies memory and
// time, and takes terabytes of address space.
const raceEnabled = true
