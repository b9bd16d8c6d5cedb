package encodetest

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"fulgur/internal/profile"
	"fulgur/internal/unwind/stackend"
)

// Random returns a random valid profile: with inlined functions, frames without function
// or mapping, all kinds, and values of any size.
func Random(r *rand.Rand) *profile.Profile {
	number := func() uint64 { return r.Uint64() >> r.IntN(64) }
	b := profile.NewBuilder(profile.ValueType{Type: "samples", Unit: "count"}, profile.ValueType{Type: "cpu", Unit: "nanoseconds"})
	for range r.IntN(50) {
		var s profile.StackID
		for range r.IntN(12) {
			f := profile.Frame{Address: number(), Return: r.IntN(2) > 0, Offset: number(), Kind: profile.Kind(r.IntN(4))}
			if m := r.IntN(4); m > 0 {
				f.Mapping = b.Mapping(profile.Mapping{Path: fmt.Sprintf("/lib/%d", m), BuildID: fmt.Sprint(m)})
			}
			for inlined := range 1 + r.IntN(4) {
				f.Function, f.Line, f.Inlined = 0, 0, inlined > 0
				if n := r.IntN(10); n > 0 {
					f.Function = b.Function(profile.Function{
						Name: fmt.Sprintf("f%d", n), SystemName: fmt.Sprintf("_f%d", n),
						File: strings.Repeat("x", r.IntN(2)*200), StartLine: r.IntN(1000),
					})
					f.Line = r.IntN(2) * r.IntN(1<<20)
				}
				if f.Function != 0 || !f.Inlined {
					s = b.Push(s, b.Frame(f))
				}
			}
		}
		b.Add(profile.Sample{
			Stack: s, Task: b.Task(profile.Task{PID: r.IntN(3), TID: r.IntN(1 << 17), Comm: strings.Repeat("c", r.IntN(3))}),
			CPU: r.IntN(4) - 1, End: stackend.End(r.IntN(5)), Values: []int64{int64(number()), int64(number())},
		})
	}
	return b.Profile(profile.Meta{}, profile.Losses{})
}
