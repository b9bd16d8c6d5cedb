package unwindmap

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"fulgur/bpf"
	"fulgur/internal/linux/ringbuf"
	"fulgur/internal/symbols/debugfile"
)

// DefaultMemory bounds the tables in kernel memory unless told otherwise, in
// bytes. A desktop's programs and libraries have less.
const DefaultMemory = 256 << 20

// Options are settings of a [Loader].
type Options struct {
	Mode Mode
	// Memory bounds the tables in kernel memory, in bytes. 0 is
	// [DefaultMemory].
	Memory int64
	// Few is whether few processes are measured, not the whole system: the
	// maps are smaller then.
	Few bool
	// Finder finds the separate debug files of programs that themselves do not
	// say how their functions are unwound, nil for none. What it downloads
	// would be waited for: see [debugfile.Finder.Local].
	Finder *debugfile.Finder
	// Types has the kernel's types, if they were decoded before, and will have
	// them then.
	Types *btf.Cache
}

// Limits of what a loader knows, and the number of mappings of one process.
// Tables that are not in kernel memory need pages, too.
var (
	systemSizes = sizes{pages: 1 << 14, rules: 1 << 16, mappings: 1 << 16, processes: 1 << 13}
	fewSizes    = sizes{pages: 1 << 14, rules: 1 << 14, mappings: 1 << 15, processes: 1 << 13}
)

const mappingsEach = 1 << 13

// New loads the maps, and follows the forks and ends of all processes. Errors are
// the kernel's, as cilium/ebpf returns them.
func New(o Options) (*Loader, error) {
	c := config{mode: o.Mode, memory: o.Memory, sizes: systemSizes, mappingsEach: mappingsEach, finder: o.Finder}
	if o.Few {
		c.sizes = fewSizes
	}
	if c.memory == 0 {
		c.memory = DefaultMemory
	}
	// As many again can wait on disk.
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

// Replacements returns the maps by the names that probes have for them, for
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
	}
}

// Requests returns the ring in which programs ask for what they lack. It wakes
// its reader at each request.
func (l *Loader) Requests() *ringbuf.Reader { return l.requests }

// Want is what a program asked for: the layout of process PID, which runs Image,
// or else a page.
type Want struct {
	PID   int
	Image uint64
	Page  uint32
}

// ParseRequest reads a record of [Loader.Requests].
func ParseRequest(record []byte) (Want, error) {
	if len(record) < int(unsafe.Sizeof(bpf.UnwindUnwindRequest{})) {
		return Want{}, fmt.Errorf("malformed request of %d bytes for unwind tables", len(record))
	}
	r := (*bpf.UnwindUnwindRequest)(unsafe.Pointer(unsafe.SliceData(record)))
	switch bpf.UnwindUnwindRequestType(r.Type) {
	case bpf.UnwindUnwindRequestTypeUNWIND_WANT_PROCESS:
		return Want{PID: int(r.Id), Image: r.Image}, nil
	case bpf.UnwindUnwindRequestTypeUNWIND_WANT_PAGE:
		return Want{Page: r.Id}, nil
	}
	return Want{}, fmt.Errorf("malformed request of type %d for unwind tables", r.Type)
}

// Tasks calls yield with every process of the machine that has user code, and
// the image that it runs.
func (l *Loader) Tasks(yield func(pid int, image uint64)) error { return l.maps.tasks(yield) }

// MapMemory returns the most memory that the maps took, in bytes, as the kernel
// accounts it.
func (l *Loader) MapMemory() uint64 {
	return l.maps.memory() + uint64(l.Stats().Pages.Most)*pageCost
}
