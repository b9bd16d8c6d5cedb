package main

import (
	"fmt"
	"os"
	"sort"
)

// The functions below give the compiler something to inline: nested calls, generic functions,
// closures, and methods called through an interface.

type number interface{ ~int | ~float64 }

type pair[T number] struct{ a, b T }

func (p pair[T]) sum() T { return add(p.a, p.b) }

func add[T number](a, b T) T { return clamp(a) + clamp(b) }

func clamp[T number](v T) T {
	if v < 0 {
		return -v
	}
	return v
}

type sizer interface{ size() int }

type box struct{ n int }

func (b box) size() int { return add(b.n, len(os.Args)) }

type outer struct{ *box } // size is promoted by a wrapper

//go:noinline
func total(all ...sizer) (n int) {
	for _, s := range all {
		n += s.size()
	}
	return n
}

//go:noinline
func work[T any](v T) string { return fmt.Sprint(v) }

func each(n int, f func(int)) {
	for i := 0; i < n; i++ {
		f(i)
	}
}

//go:noinline
func exercise() {
	n := len(os.Args)
	sum := 0
	each(n, func(i int) { sum += add(i, pair[int]{i, n}.sum()) })
	each(n, func(i int) {
		defer func() { sum += clamp(i) }()
		sort.Slice([]int{i}, func(a, b int) bool { return add(a, b) > i })
	})
	f := pair[float64]{float64(n), 2}.sum()
	if sum+total(box{n}, &box{n}, outer{&box{n}})+int(f)+twice(n) == 0 {
		fmt.Fprintln(os.Stderr, work(n), work("n"), work(box{n}))
	}
}
