package waiting

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"fulgur/internal/testenv"
	"fulgur/internal/testenv/stat"
)

// disk returns the name of a disk for the workloads: the disk with temporary files or, if
// they are not on a disk, as in the rig, a loop device.
func disk(t *testing.T) string {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(os.TempDir(), &st); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(fmt.Sprintf("/sys/dev/block/%d:%d/uevent", unix.Major(st.Dev), unix.Minor(st.Dev)))
	if err != nil {
		testenv.VM(t)
		return loopDevice(t)
	}
	for line := range strings.Lines(string(b)) {
		if name, ok := strings.CutPrefix(line, "DEVNAME="); ok {
			return strings.TrimSpace(name)
		}
	}
	t.Fatalf("no name in %q", b)
	return ""
}

// loopDevice makes a disk of a file, for the workloads to use.
func loopDevice(t *testing.T) string {
	t.Helper()
	testenv.Root(t)
	// Elsewhere the kernel supports loop devices, or there are none.
	if err := testenv.LoadModule("loop"); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	file, err := os.Create(filepath.Join(t.TempDir(), "disk"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := file.Truncate(16 << 20); err != nil {
		t.Fatal(err)
	}
	control, err := os.Open("/dev/loop-control")
	if err != nil {
		testenv.Skip(t, "needs loop devices: %v", err)
	}
	defer control.Close()
	number, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("loop%d", number)
	device, err := os.OpenFile("/dev/"+name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = unix.IoctlSetInt(int(device.Fd()), unix.LOOP_CLR_FD, 0)
		_ = device.Close()
	})
	if err := unix.IoctlSetInt(int(device.Fd()), unix.LOOP_SET_FD, int(file.Fd())); err != nil {
		t.Fatal(err)
	}
	t.Setenv("WAITING_DEVICE", "/dev/"+name)
	return name
}

// onDevice reports whether the workloads use a disk without a file system.
func onDevice() bool { return os.Getenv("WAITING_DEVICE") != "" }

// Each read or write past the cache is a request of the same size. It takes no longer
// than the program waits for it.
func TestDirect(t *testing.T) {
	testenv.EveryKernel(t)
	name := disk(t)
	for _, mode := range []string{"read", "write"} {
		t.Run(mode, func(t *testing.T) {
			m := measure(t, mode, "blockio", "--weight", "bytes", "-Q")
			sum := func(value string) int64 { return m.direct(t, value, name, mode) }
			for _, test := range []struct {
				value string
				want  int64
			}{
				{"bytes", m.truth.Bytes},
				{"bytes", m.truth.Counted},
				{"requests", m.truth.Times},
			} {
				if got := sum(test.value); got != test.want {
					t.Errorf("got %d %s, want %d\n%s", got, test.value, test.want, m.stderr)
				}
			}
			if latency := sum("latency"); latency == 0 || latency > m.truth.Waited {
				t.Errorf("latency of requests = %d ns, want more than 0 and at most the %d ns of the calls that made them", latency, m.truth.Waited)
			}
			if n := m.sum(t, "requests", "direct", "fulgur/test/waiting.direct.func1"); n != m.truth.Times {
				t.Errorf("got %d requests from the function that makes them, want %d", n, m.truth.Times)
			}
			// File systems know the file of requests past the cache. For
			// a disk itself, only the disk is known.
			if n := m.sum(t, "requests", "direct", "["+m.truth.File+"]"); !onDevice() && n != m.truth.Times {
				t.Errorf("got %d requests for the file, want %d\n%s", n, m.truth.Times, m.stderr)
			}
			if want := name + " " + mode + ", time in the queue and the device"; !strings.Contains(m.stderr, want) {
				t.Errorf("no histogram %q:\n%s", want, m.stderr)
			}
		})
	}
}

// direct adds up a value of the requests that the workload waited for. Before Linux 6.2,
// the kernel does not mark reads of a disk itself as synchronous.
func (m measured) direct(t *testing.T, value, disk, mode string) int64 {
	t.Helper()
	sum := m.sum(t, value, "direct", fmt.Sprintf("[%s %s sync]", disk, mode))
	if mode == "read" && onDevice() {
		sum += m.sum(t, value, "direct", fmt.Sprintf("[%s read]", disk))
	}
	return sum
}

// The file is known for all parts of a request that had to be split.
func TestDirectSplit(t *testing.T) {
	testenv.SlowInVM(t)
	name := disk(t)
	t.Setenv("WAITING_SIZE", strconv.Itoa(2*largestRequest(t, name)))
	m := measure(t, "read-large", "blockio", "--weight", "bytes")
	if got := m.direct(t, "bytes", name, "read"); got != m.truth.Bytes {
		t.Errorf("got %d bytes, want %d\n%s", got, m.truth.Bytes, m.stderr)
	}
	if n := m.sum(t, "requests", "direct"); n <= m.truth.Times {
		t.Errorf("got %d requests, want more than the %d calls", n, m.truth.Times)
	}
	if got := m.sum(t, "bytes", "direct", "["+m.truth.File+"]"); !onDevice() && got != m.truth.Bytes {
		t.Errorf("got %d bytes for the file, want %d\n%s", got, m.truth.Bytes, m.stderr)
	}
}

// largestRequest returns the maximum size in bytes of a request to a disk, or to the disk
// of a partition.
func largestRequest(t *testing.T, name string) int {
	t.Helper()
	dir, err := filepath.EvalSymlinks("/sys/class/block/" + name)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, "queue", "max_sectors_kb"))
	if errors.Is(err, os.ErrNotExist) {
		b, err = os.ReadFile(filepath.Join(filepath.Dir(dir), "queue", "max_sectors_kb"))
	}
	if err != nil {
		t.Fatal(err)
	}
	kib, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	if kib > 64<<10 {
		testenv.Unsupported(t, "%s takes requests of %d KiB", name, kib)
	}
	return kib << 10
}

// Reads through the cache have their file, and match the kernel's count for the
// thread.
func TestCached(t *testing.T) {
	disk(t)
	m := measure(t, "cached", "blockio", "--weight", "bytes")
	file := "[" + m.truth.File + "]"
	if got := m.sum(t, "bytes", "reader", file); got != m.truth.Bytes || got != m.truth.Counted {
		t.Errorf("got %d bytes of %s, want %d as read and %d as the kernel counts\n%s", got, file, m.truth.Bytes, m.truth.Counted, m.stderr)
	}
	if !strings.Contains(m.stderr, "  "+m.truth.File+"\n") {
		t.Errorf("no row of %s in the table of files:\n%s", m.truth.File, m.stderr)
	}
}

// The first access to a page of a file reads it from the disk in a fault. The requests
// have as many bytes as the kernel counts for the thread.
func TestMapped(t *testing.T) {
	disk(t)
	m := measure(t, "touch", "blockio", "--weight", "bytes")
	if m.truth.Counted == 0 {
		t.Fatalf("the kernel counts no bytes for %d pages", m.truth.Mapped)
	}
	for _, in := range []string{"[" + m.truth.File + "]", "filemap_fault"} {
		if got := m.sum(t, "bytes", "toucher", in); got != m.truth.Counted {
			t.Errorf("got %d bytes in %s, want %d\n%s", got, in, m.truth.Counted, m.stderr)
		}
	}
}

// Writeback is marked, with its file. Waiting threads may write some of the data
// themselves: all of it if there is no file system, and all data that was written
// earlier.
func TestWriteback(t *testing.T) {
	disk(t)
	var m measured
	var all, back int64
	for range 10 {
		// If the kernel also writes data of a file whose blocks are next to this file's, one request
		// has the data of both, and counts for one of them. Nothing shows that.
		unix.Sync()
		m, all, back = watch(t, func() truth { return alone(t, "dirty") }, "blockio", "--weight", "bytes"), 0, 0
		index := m.index(t, "bytes")
		for _, s := range m.profile.Sample {
			if !has(s, "["+m.truth.File+"]") {
				continue
			}
			all += s.Value[index]
			if slices.ContainsFunc(functions(s), isWriteback) {
				back += s.Value[index]
			}
		}
		if all == 2*m.truth.Bytes {
			break
		}
	}
	if want := 2 * m.truth.Bytes; all != want || back == 0 && !onDevice() {
		t.Errorf("got %d bytes written to %s, %d of them by writeback; want %d, some of them by writeback\n%s", all, m.truth.File, back, want, m.stderr)
	}
}

// isWriteback reports whether a note marks writeback, for any cgroup.
func isWriteback(function string) bool { return strings.HasPrefix(function, "[writeback") }

// libbpf-tools' biolatency, which runs at the same time, counts the same requests of a
// disk that nothing else uses, with the same latencies.
func TestAgainstBiolatency(t *testing.T) {
	tool := testenv.Tool(t, "biolatency")
	name := loopDevice(t)
	peer := exec.Command(tool, "-D")
	var out bytes.Buffer
	peer.Stdout, peer.Stderr = &out, &out
	if err := peer.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- peer.Wait() }()
	defer func() { _ = peer.Process.Kill() }()
	if !awaitLink(t, peer.Process.Pid, ended, "block_rq_complete_btf", "block_rq_complete") {
		testenv.Unsupported(t, "biolatency does not run here: %s", &out)
	}
	m := watch(t, func() truth { return alone(t, "read") }, "blockio", "--weight", "requests")
	if err := peer.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	testenv.Receive(t, ended, "biolatency does not exit")
	want := slots(out.String(), "disk = "+name)
	var got []int
	for _, operation := range []string{"read", "write", "flush"} {
		got = append(got, rows(m.stderr, name+" "+operation+", time in the device")...)
	}
	slices.Sort(got)
	if len(got) != len(want) || len(got) < int(m.truth.Times) {
		t.Fatalf("got %d requests, want %d as in biolatency; the workload made %d\n%s\n%s", len(got), len(want), m.truth.Times, m.stderr, &out)
	}
	apart := 0
	for i := range got {
		if d := got[i] - want[i]; d < -1 || d > 1 {
			apart++
		}
	}
	// Between the two programs' readings of the clock, the hypervisor may stop the CPU: on a
	// busy host, for up to a quarter of the requests.
	if most := stat.Binomial(len(got), 0.25).High; apart > most {
		t.Errorf("%d of %d requests have a different latency, want at most %d\n%s\n%s", apart, len(got), most, m.stderr, &out)
	}
}

// slots returns the slot of each event in biolatency's histograms below a heading, which may occur
// several times, sorted.
func slots(text, heading string) (list []int) {
	for _, part := range strings.Split(text, heading)[1:] {
		slot := 0
		for line := range strings.Lines(part) {
			var low, high, n int
			if _, err := fmt.Sscanf(strings.TrimSpace(line), "%d -> %d : %d", &low, &high, &n); err != nil {
				if slot > 0 {
					break
				}
				continue // before the first slot
			}
			list = append(list, slices.Repeat([]int{slot}, n)...)
			slot++
		}
	}
	slices.Sort(list)
	return list
}

// rows returns the slot of biolatency, a power of two of microseconds, of each request in fulgur's
// histogram below a heading.
func rows(text, heading string) (list []int) {
	row := regexp.MustCompile(`^ +([\d.]+)(?:–[\d.]+)? (s|ms|µs|ns) +(\d+) \|`)
	for _, part := range strings.Split(text, heading)[1:] {
		for line := range strings.Lines(part) {
			m := row.FindStringSubmatch(line)
			if m == nil {
				if len(list) > 0 {
					break
				}
				continue // before the first row
			}
			low, _ := strconv.ParseFloat(m[1], 64)
			n, _ := strconv.Atoi(m[3])
			us := low * map[string]float64{"s": 1e6, "ms": 1e3, "µs": 1, "ns": 1e-3}[m[2]]
			list = append(list, slices.Repeat([]int{int(math.Log2(max(us, 1)))}, n)...)
		}
	}
	return list
}
