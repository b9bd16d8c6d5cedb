package unwindmap

import (
	"errors"
	"fmt"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"fulgur/internal/bpf"
	"fulgur/internal/linux/procfs"
	"fulgur/internal/linux/ringbuf"
	"fulgur/internal/symbols/debugfile"
)

// DefaultMemory is the default limit of tables in kernel memory, in bytes. The programs
// and libraries of a desktop need less.
const DefaultMemory = 256 << 20

// Options configures a [Loader].
type Options struct {
	Mode Mode
	// Memory bounds the tables in kernel memory, in bytes. 0 means [DefaultMemory].
	Memory int64
	// Few selects smaller maps, for measuring a few processes rather than the whole system.
	Few bool
	// Finder finds the separate debug files of programs that lack unwind information; nil
	// means none. Compiling would wait for its downloads, so use a finder without them, see
	// [debugfile.Finder.Local].
	Finder *debugfile.Finder
	// Types caches the kernel's types between users.
	Types *btf.Cache
}

// Limits of a loader, and of the mappings of a process. Tables that are evicted from kernel
// memory also count as pages.
var (
	systemSizes = sizes{pages: 1 << 14, rules: 1 << 16, mappings: 1 << 16, processes: 1 << 13, runtimes: 1 << 13}
	fewSizes    = sizes{pages: 1 << 14, rules: 1 << 14, mappings: 1 << 15, processes: 1 << 13, runtimes: 1 << 11}
)

const mappingsEach = 1 << 13

// maxProcesses limits the number of processes with layouts. Each entry takes about 90 bytes of the
// kernel's memory, used or not.
const maxProcesses = 1 << 17

// sizesFor returns the sizes for the whole system: there is room for at least twice the running
// processes.
func sizesFor(running int) sizes {
	s := systemSizes
	for s.processes < uint32(min(2*running, maxProcesses)) {
		s.processes *= 2
	}
	return s
}

// settleInterval is the time between two releases of space. Short-lived processes leave a few
// hundred mappings in that time.
const settleInterval = time.Second

// New loads the maps, and follows forks and exits of all processes. Errors come from the
// kernel, as returned by cilium/ebpf.
func New(o Options) (*Loader, error) {
	c := config{mode: o.Mode, settleInterval: settleInterval, memory: o.Memory, sizes: fewSizes, mappingsEach: mappingsEach, finder: o.Finder}
	if !o.Few {
		running, _ := procfs.Processes() // if this fails, the usual sizes do
		c.sizes = sizesFor(len(running))
	}
	if c.memory == 0 {
		c.memory = DefaultMemory
	}
	// As many pages again can be on disk.
	c.pages = max(c.pages, uint32(min(2*c.memory/pageBytes, 1<<16)))
	maps, err := loadMaps(c.sizes, o.Types)
	if err != nil {
		return nil, err
	}
	requests, err := ringbuf.NewReader(maps.objects.UnwindRequests)
	if err != nil {
		return nil, errors.Join(err, maps.close())
	}
	l := newLoader(maps, c)
	l.maps, l.requests = maps, requests
	return l, nil
}

// Replacements returns the maps under the names that probes use, for
// [ebpf.CollectionOptions].
func (l *Loader) Replacements() map[string]*ebpf.Map {
	o := &l.maps.objects.UnwindMaps
	return map[string]*ebpf.Map{
		bpf.UnwindMapUnwindPages:      o.UnwindPages,
		bpf.UnwindMapUnwindPageStates: o.UnwindPageStates,
		bpf.UnwindMapUnwindRules:      o.UnwindRules,
		bpf.UnwindMapUnwindMappings:   o.UnwindMappings,
		bpf.UnwindMapUnwindProcesses:  o.UnwindProcesses,
		bpf.UnwindMapUnwindAsked:      o.UnwindAsked,
		bpf.UnwindMapUnwindRequests:   o.UnwindRequests,
		bpf.UnwindMapUnwindCache:      o.UnwindCache,
		bpf.UnwindMapRuntimeProcesses: o.RuntimeProcesses,
		bpf.UnwindMapRuntimePrograms:  o.RuntimePrograms,
		bpf.UnwindMapRuntimeAny:       o.RuntimeAny,
		bpf.UnwindMapPythonStates:     o.PythonStates,
		bpf.UnwindMapLabelProcesses:   o.LabelProcesses,
		bpf.UnwindMapLabelAny:         o.LabelAny,
	}
}

// Requests returns the ring in which programs request missing layouts and pages. It wakes
// its reader at each request.
func (l *Loader) Requests() *ringbuf.Reader { return l.requests }

// Want is a request for the layout of process PID, which runs Image, or, if Address is not 0, for
// its table there. If PID is 0, it is for a page.
type Want struct {
	PID     int
	Image   uint64
	Address uint64
	Page    uint32
}

// ParseRequest parses a record of [Loader.Requests].
func ParseRequest(record []byte) (Want, error) {
	r, err := ringbuf.As[bpf.UnwindUnwindRequest](record, unsafe.Sizeof(bpf.UnwindUnwindRequest{}))
	if err != nil {
		return Want{}, fmt.Errorf("request for unwind tables: %w", err)
	}
	switch bpf.UnwindUnwindRequestType(r.Type) {
	case bpf.UnwindUnwindRequestTypeUNWIND_WANT_PROCESS:
		return Want{PID: int(r.Id), Image: r.Image}, nil
	case bpf.UnwindUnwindRequestTypeUNWIND_WANT_TABLE:
		return Want{PID: int(r.Id), Image: r.Image, Address: r.Address}, nil
	case bpf.UnwindUnwindRequestTypeUNWIND_WANT_PAGE:
		return Want{Page: r.Id}, nil
	}
	return Want{}, fmt.Errorf("%w: request of type %d for unwind tables", ringbuf.ErrRecord, r.Type)
}

// Tasks calls yield with every process of the machine that runs user code, and its image.
func (l *Loader) Tasks(yield func(pid int, image uint64)) error { return l.maps.tasks(yield) }

// MapMemory returns the maximum memory of the maps so far in bytes, as accounted by the
// kernel.
func (l *Loader) MapMemory() uint64 {
	return l.maps.memory() + uint64(l.Stats().Pages.Peak)*pageCost
}
