// Pgoload spends its time in two calls that the compiler inlines only if a profile shows
// that they are hot: one of an interface's method, and one of a function that is otherwise
// too large. It imports nothing, because the go command compiles all imported packages again
// with the profile.
package main

// mixer is implemented twice, so only a profile shows which method is called.
type mixer interface{ mix(x uint64) uint64 }

type (
	adder  struct{ n uint64 }
	hasher struct{ n uint64 }
)

// The callees do little most of the time, so the call itself takes a large share. The arrays
// give them stack frames: a function without one hides its caller from a walk by frame
// pointers.

func (a *adder) mix(x uint64) uint64 {
	if x%4096 == 0 {
		var lanes [4]uint64
		lanes[x>>12&3] = a.n
		x += lanes[x>>13&3]
	}
	return x + a.n
}

func (h *hasher) mix(x uint64) uint64 { return scramble(x) ^ h.n }

func scramble(x uint64) uint64 {
	if x%4096 == 0 {
		var lanes [4]uint64
		lanes[x>>12&3] = x ^ x>>33
		lanes[x>>13&3] += lanes[x>>14&3] * 0xff51afd7ed558ccd
		lanes[x>>15&3] += lanes[x>>16&3] ^ lanes[x>>17&3]>>29
		lanes[x>>18&3] += lanes[x>>19&3] * 0xc4ceb9fe1a85ec53
		x += lanes[0] + lanes[3]
	}
	return x + 3
}

//go:noinline
func viaInterface(m mixer, n int) (x uint64) {
	for range n {
		x = m.mix(x)
	}
	return x
}

//go:noinline
func direct(n int) (x uint64) {
	for range n {
		x = scramble(x)
	}
	return x
}

// hash is a variable so that the compiler does not know what m is.
var hash = false

func main() {
	const calls = 300_000_000
	var m mixer = &adder{n: 3}
	if hash {
		m = &hasher{n: 3}
	}
	println(viaInterface(m, calls), direct(calls))
}
