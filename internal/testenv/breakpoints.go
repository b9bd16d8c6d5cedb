package testenv

import (
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"sync"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Breakpoints skips the test on machines whose hardware breakpoints have no effect.
func Breakpoints(t testing.TB) {
	t.Helper()
	if !HasBreakpoints(t) {
		Unsupported(t, "hardware breakpoints have no effect on this machine: some hypervisors ignore them")
	}
}

// HasBreakpoints reports whether a hardware breakpoint counts the executions of an instruction. Under
// some hypervisors, it can be set but is never hit.
func HasBreakpoints(t testing.TB) bool {
	t.Helper()
	works, err := breakpointsWork()
	if err != nil {
		t.Fatal(err)
	}
	return works
}

// target is the function with the breakpoint.
//
//go:noinline
func target() {}

var breakpointsWork = sync.OnceValues(func() (bool, error) {
	runtime.LockOSThread() // the event is of this thread
	defer runtime.UnlockOSThread()
	attr := unix.PerfEventAttr{
		Type:    unix.PERF_TYPE_BREAKPOINT,
		Size:    uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
		Bp_type: 4, // HW_BREAKPOINT_X
		Ext1:    uint64(reflect.ValueOf(target).Pointer()),
		Ext2:    map[string]uint64{"amd64": 8, "arm64": 4}[runtime.GOARCH], // the size of a long, or of an instruction
		Bits:    unix.PerfBitExcludeKernel,
	}
	fd, err := unix.PerfEventOpen(&attr, 0, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENODEV), errors.Is(err, unix.EOPNOTSUPP):
		return false, nil // the machine has none
	case err != nil:
		return false, fmt.Errorf("open a hardware breakpoint: %w", err)
	}
	defer unix.Close(fd)
	target()
	count := make([]byte, 8)
	if _, err := unix.Read(fd, count); err != nil {
		return false, fmt.Errorf("read a hardware breakpoint: %w", err)
	}
	return binary.NativeEndian.Uint64(count) > 0, nil
})
