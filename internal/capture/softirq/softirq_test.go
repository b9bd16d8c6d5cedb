package softirq

import (
	"bufio"
	"bytes"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"fulgur/internal/capture/probe"
	"fulgur/internal/capture/source"
	"fulgur/internal/capture/target"
	"fulgur/internal/linux/monotonic"
	"fulgur/internal/profile"
	"fulgur/internal/testenv"
)

// readCounts returns how often each vector's handler ran since boot, from /proc/softirqs.
func readCounts(t *testing.T) map[string]uint64 {
	t.Helper()
	text, err := os.ReadFile("/proc/softirqs")
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]uint64{}
	for line := range bytes.Lines(text) {
		name, numbers, ok := strings.Cut(string(line), ":")
		if !ok {
			continue // the header
		}
		for _, number := range strings.Fields(numbers) {
			n, err := strconv.ParseUint(number, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			counts[strings.TrimSpace(name)] += n
		}
	}
	return counts
}

// sendPackets makes the kernel handle packets in soft interrupts.
func sendPackets(t *testing.T, n int) {
	t.Helper()
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	client, err := net.Dial("udp", server.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for range n {
		if _, err := client.Write([]byte("packet")); err != nil {
			t.Fatal(err)
		}
	}
}

// The kernel counts each soft interrupt just before it calls the handler. So the
// measured number is at most the kernel's count around the measurement, and at least
// its count within the measurement, except for one per CPU that is counted but not
// traced yet, or still running.
func TestAgainstProc(t *testing.T) {
	testenv.EveryKernel(t)
	testenv.Root(t)
	s, err := Load(probe.Options{MaxDepth: 127, CountEntries: 1 << 14})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := s.Attach(target.Target{}); err != nil {
		t.Fatal(err)
	}
	before, began := readCounts(t), monotonic.Now()
	if err := source.Start(s.Gate(), s); err != nil {
		t.Fatal(err)
	}
	begin := readCounts(t)
	const packets = 1000
	sendPackets(t, packets)
	end := readCounts(t)
	if _, err := source.Stop(s.Gate(), s); err != nil {
		t.Fatal(err)
	}
	after, ended := readCounts(t), monotonic.Now()

	if err := s.Counts().Finish(); err != nil {
		t.Fatal(err)
	}
	stats, err := s.Stats()
	if err != nil {
		t.Fatal(err)
	}
	lost := stats.Losses[profile.LossSamples] + stats.Losses[profile.LossSkipped]
	got := map[string]uint64{}
	var sum, time uint64
	for key, values := range s.Counts().Total() {
		got[Vector(key.Detail).String()] += values[Times]
		sum += values[Times]
		time += values[Duration]
	}
	// Each CPU handles one soft interrupt at a time.
	if limit := uint64(runtime.NumCPU()) * (ended - began); time == 0 || time > limit {
		t.Errorf("got %d ns in soft interrupts, want 1 to %d", time, limit)
	}
	if sum+stats.Losses[profile.LossSamples]+stats.Losses[profile.LossOverflows] != stats.Samples {
		t.Errorf("got %d counted and %+v lost, want %d in all", sum, stats.Losses, stats.Samples)
	}
	margin := uint64(runtime.NumCPU())
	if got["NET_RX"] == 0 {
		t.Error("got no NET_RX, want some after sending packets")
	}
	for name := range after {
		low, high := end[name]-begin[name], after[name]-before[name]+margin
		t.Logf("%s: %d, the kernel counted %d to %d", name, got[name], low, high-margin)
		// Counts sent through the ring because the map was full may be of any vector.
		if n := got[name]; n > high || n+lost+stats.Losses[profile.LossOverflows]+margin < low {
			t.Errorf("%s: got %d, want %d to %d", name, n, low, high)
		}
	}
}

// The names match the kernel's, in the order of its numbers.
func TestVectorNames(t *testing.T) {
	text, err := os.ReadFile("/proc/softirqs")
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Scan() // the header
	var v Vector
	for ; lines.Scan(); v++ {
		if name, _, _ := strings.Cut(lines.Text(), ":"); strings.TrimSpace(name) != v.String() {
			t.Errorf("vector %d: got %s, want %s", v, v, strings.TrimSpace(name))
		}
	}
	if int(v) != len(vectors) {
		t.Errorf("got %d vectors from the kernel, want %d", v, len(vectors))
	}
	if name := v.String(); name != "vector 10" {
		t.Errorf("unknown vector: got %s, want vector 10", name)
	}
}
