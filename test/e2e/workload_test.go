package e2e

import (
	"encoding/binary"
	"math/rand/v2"
	"os"
	"time"
	"unsafe"

	common "go.opentelemetry.io/proto/slim/otlp/common/v1"
	resource "go.opentelemetry.io/proto/slim/otlp/resource/v1"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

var sink uint64

// The loops are in the functions that the tests look for: a leaf without a frame would
// hide its caller from a walk by frame pointers, as the leaves of the race detector do.

//go:noinline
//go:norace
func long(n int) {
	for i := range 3 * n {
		sink = sink*31 + uint64(i)
	}
}

//go:noinline
//go:norace
func short(n int) {
	for i := range n {
		sink = sink*31 + uint64(i)
	}
}

// workload spends three quarters of its time in long, the rest in short: forever
// ("shares") or for a CPU time such as "20ms". "publishes" is "shares" with a process context.
// "memory" only leaves the kernel much memory to free.
func workload(mode string) {
	switch mode {
	case "allocate":
		serveAllocations()
		return
	case "arguments":
		goArguments()
		return
	case "waits":
		goroutineWaits()
		return
	case "calls":
		goCalls()
		return
	}
	more := func() bool { return true }
	if mode == "publishes" {
		if err := publish(); err != nil {
			panic(err)
		}
	} else if limit, err := time.ParseDuration(mode); err == nil {
		end := cpuTime() + limit
		more = func() bool { return cpuTime() < end }
	} else if mode == "memory" {
		var err error
		memory, err = unix.Mmap(-1, 0, 256<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
		if err == nil {
			err = unix.Madvise(memory, unix.MADV_NOHUGEPAGE) // so that there are many pages to free
		}
		if err != nil {
			panic(err)
		}
		for i := 0; i < len(memory); i += os.Getpagesize() {
			memory[i] = 1
		}
		return
	}
	for more() {
		n := 500_000 + rand.IntN(500_000) // a constant period could be in lockstep with the sampler's
		long(n)
		short(n)
	}
}

var memory []byte

// published is the payload of the process context.
var published []byte

// publish publishes a process context (OpenTelemetry's OTEP 4719) with attributes that a process
// may and may not set. It is complete when its mapping appears.
func publish() error {
	var all []*common.KeyValue
	for key, value := range map[string]string{"service.name": "checkout", "deployment.environment.name": "test", "host.name": "forged", "container.id": "forged"} {
		all = append(all, &common.KeyValue{Key: key, Value: &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: value}}})
	}
	r, err := proto.Marshal(&resource.Resource{Attributes: all})
	if err != nil {
		return err
	}
	published = protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), r) // in a ProcessContext
	header := binary.NativeEndian.AppendUint32([]byte("OTEL_CTX"), 2)
	header = binary.NativeEndian.AppendUint32(header, uint32(len(published)))
	header = binary.NativeEndian.AppendUint64(header, uint64(time.Now().UnixNano()))
	header = binary.NativeEndian.AppendUint64(header, uint64(uintptr(unsafe.Pointer(&published[0]))))
	fd, err := unix.MemfdCreate("OTEL_CTX", unix.MFD_CLOEXEC)
	if err != nil {
		return err
	}
	if _, err := unix.Pwrite(fd, header, 0); err != nil {
		return err
	}
	_, err = unix.Mmap(fd, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	return err
}

// cpuTime returns the CPU time that this process has used.
func cpuTime() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &ts) // every kernel supports it
	return time.Duration(ts.Nano())
}
