package encodetest

import (
	"fulgur/internal/profile"

	"fulgur/internal/unwind/stackend"
)

// Compared returns a comparison of two small profiles: two functions share a caller, one
// function takes less, one is new and one is gone.
func Compared() *profile.Profile {
	return profile.Diff([]*profile.Profile{handling(map[string]int64{"parse": 40, "sort": 30, "log": 20})},
		[]*profile.Profile{handling(map[string]int64{"parse": 10, "sort": 30, "cache": 20})}, 1)
}

// handling returns a profile of a server whose handler calls functions, with the given
// samples in each and ten in itself.
func handling(callees map[string]int64) *profile.Profile {
	b := newBuilder()
	server := b.Mapping(profile.Mapping{Path: "/usr/bin/server", BuildID: "0123456789abcdef0123456789abcdef01234567"})
	handle := b.stack(b.user(server, "main", 0x1100), b.user(server, "handle", 0x1200))
	task := profile.Task{PID: 42, Comm: "server"}
	b.add(task, handle, stackend.FramePointer, 10)
	for i, name := range []string{"cache", "log", "parse", "sort"} {
		if n := callees[name]; n > 0 {
			b.add(task, b.Push(handle, b.user(server, name, 0x2000+0x100*uint64(i))), stackend.FramePointer, n)
		}
	}
	return b.Profile(meta, profile.Losses{})
}
