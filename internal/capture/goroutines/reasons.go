package goroutines

import (
	"fmt"
	"go/version"
	"slices"
	"strings"
)

// The oldest and the newest version of Go whose runtime is known.
const (
	oldest = "go1.21"
	newest = "go1.26"
)

// release has what differs between versions of Go's runtime.
type release struct {
	since string // the first version
	// schedlink is the offset of that field in runtime.g.
	schedlink int
	// reasons are the texts of the reasons of waits, by their number: type waitReason in runtime2.go.
	reasons []string
}

// releases are the known versions, the oldest first.
var releases = []release{
	{"go1.21", 160, reasons21},
	{"go1.22", 160, slices.Concat(reasons21, added22)},
	{"go1.23", 168, slices.Concat(reasons21, added22, added23)},
	{"go1.24", 168, slices.Concat(withGroups, added22, added23, synctest24)},
	{"go1.25", 160, slices.Concat(withUpdater, added22, added23, synctest25)},
	{"go1.26", 160, slices.Concat(reasons26, added22, added23, synctest25)},
}

var (
	reasons21 = []string{
		"", "GC assist marking", "IO wait", "chan receive (nil chan)", "chan send (nil chan)", "dumping heap",
		"garbage collection", "garbage collection scan", "panicwait", "select", "select (no cases)", "GC assist wait",
		"GC sweep wait", "GC scavenge wait", "chan receive", "chan send", "finalizer wait", "force gc (idle)",
		"semacquire", "sleep", "sync.Cond.Wait", "sync.Mutex.Lock", "sync.RWMutex.RLock", "sync.RWMutex.Lock",
		"trace reader (blocked)", "wait for GC cycle", "GC worker (idle)", "GC worker (active)", "preempted",
		"debug call", "GC mark termination", "stopping the world",
	}
	added22 = []string{
		"flushing proc caches", "trace goroutine status", "trace proc status", "page trace flush", "coroutine",
	}
	added23     = []string{"GC weak to strong wait"}
	withGroups  = after("sync.RWMutex.Lock", "sync.WaitGroup.Wait", reasons21)
	withUpdater = after("force gc (idle)", "GOMAXPROCS updater (idle)", withGroups)
	reasons26   = []string{ // in another order
		"", "GC assist marking", "IO wait", "dumping heap", "garbage collection", "garbage collection scan", "panicwait",
		"GC assist wait", "GC sweep wait", "GC scavenge wait", "finalizer wait", "force gc (idle)",
		"GOMAXPROCS updater (idle)", "semacquire", "sleep", "chan receive (nil chan)", "chan send (nil chan)",
		"select (no cases)", "select", "chan receive", "chan send", "sync.Cond.Wait", "sync.Mutex.Lock",
		"sync.RWMutex.RLock", "sync.RWMutex.Lock", "sync.WaitGroup.Wait", "trace reader (blocked)", "wait for GC cycle",
		"GC worker (idle)", "GC worker (active)", "preempted", "debug call", "GC mark termination", "stopping the world",
	}
	synctest24 = []string{
		"synctest.Run", "synctest.Wait", "chan receive (synctest)", "chan send (synctest)", "select (synctest)",
	}
	synctest25 = []string{
		"synctest.Run", "synctest.Wait", "chan receive (durable)", "chan send (durable)", "select (durable)",
		"sync.WaitGroup.Wait (durable)", "cleanup wait",
	}
)

// after returns list with an additional text after another one.
func after(at, added string, list []string) []string {
	return slices.Insert(slices.Clone(list), slices.Index(list, at)+1, added)
}

// releaseOf returns the release of a version of Go as in [debug/buildinfo.BuildInfo.GoVersion].
func releaseOf(built string) (*release, error) {
	name, _, _ := strings.Cut(built, " ") // "go1.24.1 X:nocoverageredesign"
	language := version.Lang(name)
	switch {
	case language == "":
		return nil, fmt.Errorf("it was built with %q, whose runtime is unknown: fulgur knows %s to %s", built, oldest, newest)
	case version.Compare(language, oldest) < 0:
		return nil, fmt.Errorf("it was built with %s, older than %s", built, oldest)
	case version.Compare(language, newest) > 0:
		return nil, fmt.Errorf("it was built with %s, whose runtime is unknown: fulgur knows %s to %s", built, oldest, newest)
	}
	found := &releases[0]
	for i := range releases {
		if version.Compare(language, releases[i].since) >= 0 {
			found = &releases[i]
		}
	}
	return found, nil
}

// reason returns the text of a reason.
func (r *release) reason(n uint64) string {
	if r == nil || n >= uint64(len(r.reasons)) || r.reasons[n] == "" {
		return "waiting"
	}
	return r.reasons[n]
}
