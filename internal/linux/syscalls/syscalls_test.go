package syscalls

import (
	"bufio"
	"bytes"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"fulgur/internal/linux/tracefs"
	"fulgur/internal/testenv"
)

// renamed are the calls whose functions in the kernel have other names than <sys/syscall.h>.
var renamed = map[string]string{
	"stat": "newstat", "fstat": "newfstat", "lstat": "newlstat", "uname": "newuname",
	"umount2": "umount", "sendfile": "sendfile64", "_sysctl": "sysctl",
	"fadvise64": "fadvise64_64", "personality": "arm64_personality", // on arm64
}

// TestNumbers compares the numbers with those in the C library's headers.
func TestNumbers(t *testing.T) {
	gcc := exec.Command(testenv.Tool(t, "gcc"), "-E", "-dM", "-include", "sys/syscall.h", "-x", "c", "/dev/null")
	macros, err := gcc.Output()
	if err != nil {
		t.Fatal(err)
	}
	compared := 0
	for lines := bufio.NewScanner(bytes.NewReader(macros)); lines.Scan(); {
		f := strings.Fields(lines.Text())
		if len(f) != 3 || f[0] != "#define" {
			continue
		}
		name, ok := strings.CutPrefix(f[1], "__NR_")
		want, err := strconv.ParseUint(strings.Trim(f[2], "()"), 10, 32)
		if !ok || err != nil {
			continue
		}
		have, known := Number(name)
		if other := renamed[name]; !known && other != "" {
			have, known = Number(other)
		}
		switch {
		case !known:
			t.Logf("%s (%d) is unknown", name, want) // the headers are newer
		case uint64(have) != want:
			t.Errorf("%s is %d, and in sys/syscall.h it is %d", name, have, want)
		default:
			compared++
		}
	}
	if compared < 300 {
		t.Errorf("compared %d calls", compared)
	}
}

// TestTracepoints checks that the numbers have the names of the kernel's tracepoints.
func TestTracepoints(t *testing.T) {
	testenv.Root(t)
	testenv.EveryKernel(t)
	tracing, err := tracefs.Open()
	if err != nil {
		testenv.Unsupported(t, "%v", err)
	}
	defer tracing.Close()
	all, err := tracing.Tracepoints()
	if err != nil {
		t.Fatal(err)
	}
	calls, unknown := 0, []string(nil)
	for _, tracepoint := range all {
		name, ok := strings.CutPrefix(tracepoint, "syscalls:sys_enter_")
		if !ok {
			continue
		}
		calls++
		if _, ok := Number(name); !ok {
			unknown = append(unknown, name)
		}
	}
	t.Logf("%d calls, unknown: %q", calls, unknown)
	if calls == 0 {
		testenv.Unsupported(t, "the kernel has no tracepoints of system calls")
	}
	// This depends only on the kernel, which may be newer, or have names of its own.
	if len(unknown) > calls/10 {
		t.Errorf("most of the names should be known")
	}
}

// A number has the name of the kernel's function.
func TestFunction(t *testing.T) {
	for name, number := range numbers() {
		if got := Function(int(number)); got != prefix+name {
			t.Errorf("%d: got %q, want that of %s", number, got, name)
		}
	}
	for _, number := range []int{-1, 1 << 20, -1 << 32} {
		if got := Function(number); got != "" {
			t.Errorf("%d: got %q, want none", number, got)
		}
	}
}
