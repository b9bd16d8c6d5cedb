// Package blockio measures requests to block devices by stack, with
// bpf/blockio.bpf.c.
package blockio

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"

	"fulgur/internal/bpf"
	"fulgur/internal/capture/distribution"
	"fulgur/internal/capture/probe"
	"fulgur/internal/capture/source"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/capture/target"
	"fulgur/internal/profile/encode/histogram"
)

// DefaultPendingEntries is the default limit of requests in flight to track.
const DefaultPendingEntries = 1 << 13

var _ interface {
	source.Source
	source.Recordable
	source.EventPlacer
} = (*Source)(nil)

// Source is the loaded kernel side.
type Source struct {
	source.Base
	programs []string // programs to attach
	options  probe.Options
	pending  uint64 // requests in flight at the end
	devices  map[stacks.Device]string
}

// Load loads the programs and their maps. It returns the kernel's errors as
// cilium/ebpf does.
func Load(o probe.Options, c Config) (*Source, error) {
	spec, err := bpf.LoadBlockIO()
	if err != nil {
		return nil, err
	}
	// Without these addresses, direct requests have no file.
	if err := probe.SetAddresses(spec, "iomap_dio_bio_end_io", "bio_chain_endio"); err != nil {
		return nil, err
	}
	kernel, err := probe.NewKernel(o.Types)
	if err != nil {
		return nil, err
	}
	birth, err := birth(kernel)
	if err != nil {
		return nil, err
	}
	for _, name := range births {
		if name != birth {
			delete(spec.Programs, name)
		}
	}
	spec.Maps[bpf.BlockIOMapRequests].MaxEntries = max(c.PendingEntries, 1)
	spec.Maps[bpf.BlockIOMapLatencies].MaxEntries = kinds()
	p, err := probe.Load(spec, o, map[string]any{bpf.BlockIOVarQueueInLatency: c.QueueInLatency}, counted)
	if err != nil {
		return nil, err
	}
	o.Types = nil // megabytes, which the probe keeps as long as it needs them
	return &Source{Base: source.Base{Probe: p}, options: o, programs: []string{
		bpf.BlockIOProgRequestComplete, bpf.BlockIOProgRequestIssue, bpf.BlockIOProgRequestMerge, bpf.BlockIOProgRequestInsert, birth,
	}}, nil
}

// kinds returns the number of kinds of requests for whose distributions there is room, 4 KiB each: most
// disks have reads, writes, flushes and discards. Disks may appear later.
func kinds() uint32 {
	const operations, spare, most = 4, 64, 4096
	disks, err := os.ReadDir("/sys/block")
	if err != nil {
		return spare * operations // without sysfs, as in some containers
	}
	return min(uint32(len(disks))*operations+spare, most)
}

// births are the programs that see new requests. Each is for different kernels.
var births = []string{bpf.BlockIOProgRequestStart, bpf.BlockIOProgBioStart, bpf.BlockIOProgBioStartQueue}

// birth returns the name of the program in births for a kernel.
func birth(kernel probe.Kernel) (string, error) {
	_, has, err := kernel.Tracepoint("block_io_start")
	if err != nil || has {
		return bpf.BlockIOProgRequestStart, err
	}
	arguments, has, err := kernel.Tracepoint("block_getrq")
	switch {
	case err != nil:
		return "", err
	case !has:
		return "", errors.New("the kernel has no tracepoint for new disk requests: neither block_io_start nor block_getrq")
	case len(arguments) == 1:
		return bpf.BlockIOProgBioStart, nil
	}
	return bpf.BlockIOProgBioStartQueue, nil
}

// counted converts an entry of a count map. The detail is a [Request].
func counted(k bpf.BlockIOCountKey, v bpf.BlockIOCountValue) (stacks.Key, stacks.Values) {
	return stacks.Key{
			ID: k.Id, File: k.File, Cgroup: k.Cgroup, TID: k.Tid, CPU: k.Cpu,
			Detail: Request{device(k.Device), Operation(k.Operation)}.detail(),
		},
		stacks.Values{Requests: v.Requests, Bytes: v.Bytes, Queued: v.Queued, InDevice: v.InDevice, Latency: v.Queued + v.InDevice}
}

// Attach implements [source.Source]. Requests that are in flight at the beginning are ignored.
func (s *Source) Attach(t target.Target) error {
	if err := s.FillTargets(t); err != nil {
		return err
	}
	return s.AttachTracing(s.programs...)
}

// End counts the requests that are then in a device, without the time that they spent there.
func (s *Source) End() error {
	var address uint64
	var state bpf.BlockIORequestState
	all := s.Maps[bpf.BlockIOMapRequests].Iterate()
	for all.Next(&address, &state) {
		key, value, given := unfinished(&state, &s.options)
		if !given {
			continue
		}
		s.pending++
		if !s.options.Timeline { // a timeline could not show their end
			key.Source = s.options.Source
			s.Counts().Add(key, value)
		}
	}
	if err := all.Err(); err != nil {
		return fmt.Errorf("read which requests are under way: %w", err)
	}
	return nil
}

// unfinished returns the key and values for a request in flight. It returns false
// for a request outside the target, or one that no device has yet.
func unfinished(state *bpf.BlockIORequestState, o *probe.Options) (key stacks.Key, value stacks.Values, given bool) {
	if state.Id == 0 || state.Issued == 0 {
		return key, value, false
	}
	k := bpf.BlockIOCountKey{
		Id: state.Id, File: state.File, Cgroup: state.Cgroup,
		Device: state.Device, Operation: state.Operation,
	}
	if o.ByThread {
		k.Tid = state.Tid
	}
	if o.ByCPU {
		k.Cpu = state.Cpu
	}
	key, value = counted(k, bpf.BlockIOCountValue{Requests: 1, Bytes: state.Bytes, Queued: state.Issued - state.Born})
	return key, value, true
}

// Distribution is how long requests of one kind took.
type Distribution struct {
	Device    stacks.Device
	Operation Operation // without flags
	Times     histogram.Times
}

// Distributions returns the distribution of each device and operation, in the order of
// their numbers.
func (s *Source) Distributions() ([]Distribution, error) {
	var list []Distribution
	var key bpf.BlockIOLatencyKey
	var value bpf.BlockIOHistogram
	all := s.Maps[bpf.BlockIOMapLatencies].Iterate()
	for all.Next(&key, &value) {
		list = append(list, Distribution{device(key.Device), Operation(key.Operation), distribution.Of(distribution.Kernel(value))})
	}
	if err := all.Err(); err != nil {
		return nil, fmt.Errorf("read how long requests took: %w", err)
	}
	slices.SortFunc(list, func(a, b Distribution) int {
		return cmp.Or(cmp.Compare(a.Device.Major, b.Device.Major), cmp.Compare(a.Device.Minor, b.Device.Minor), cmp.Compare(a.Operation, b.Operation))
	})
	return list, nil
}

// Unplaced returns the number of requests that are in no distribution, since there were too many
// devices and operations.
func (s *Source) Unplaced() (n uint64, err error) {
	if err := s.Variables[bpf.BlockIOVarUnplaced].Get(&n); err != nil {
		return 0, fmt.Errorf("read how many requests have no distribution: %w", err)
	}
	return n, nil
}

// Merged returns the number of requests merged into others, which include their
// bytes.
func (s *Source) Merged() (uint64, error) { return s.StatSum(bpf.StatMerged) }

// Unfinished returns the number of requests that a device had, but whose completion
// was not seen. They count without their time in the device.
func (s *Source) Unfinished() (uint64, error) {
	n, err := s.StatSum(bpf.StatUnfinished)
	return n + s.pending, err
}
