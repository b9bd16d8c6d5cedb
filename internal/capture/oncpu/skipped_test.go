package oncpu

import (
	"os/exec"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"fulgur/internal/capture/probe"
	"fulgur/internal/capture/target"
	"fulgur/internal/profile"
	"fulgur/internal/testenv"
)

// The kernel drops samples during operations on BPF maps. Samples taken plus samples
// dropped match the rate and the time.
func TestSkippedSamples(t *testing.T) {
	const rate = 999
	h := start(t, Options{Options: roomy, Idle: true},
		target.Target{CPUs: []int{0}}, Rate{Frequency: rate})
	stats := skip(t, h)
	low, high := h.ended[0].Sub(h.began[1]).Seconds()*rate, h.ended[1].Sub(h.began[0]).Seconds()*rate
	t.Logf("%d samples and %d skipped, want %.0f to %.0f", stats.Samples, stats.Losses[profile.LossSkipped], low, high)
	sum := float64(stats.Samples + stats.Losses[profile.LossSkipped])
	if slack := 0.02*high + 10*float64(testenv.Patience(1)); sum < low-slack || sum > high+slack {
		t.Errorf("got %d samples and %d skipped, want %.0f to %.0f", stats.Samples, stats.Losses[profile.LossSkipped], low, high)
	}
}

// Skipped samples are not those of a target that did not run.
func TestSkippedOfOthers(t *testing.T) {
	stopped := exec.CommandContext(t.Context(), testenv.Tool(t, "sleep"), "1000")
	if err := stopped.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = stopped.Process.Kill(), stopped.Wait() })
	var status unix.WaitStatus
	if err := stopped.Process.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Wait4(stopped.Process.Pid, &status, unix.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatalf("wait for the target to stop: %v, status %v", err, status)
	}
	h := start(t, Options{Options: roomy},
		target.Target{Scope: target.Processes, PIDs: []int{stopped.Process.Pid}}, Rate{Frequency: 999})
	if stats := skip(t, h); stats.Samples != 0 || stats.Losses[profile.LossSkipped] != 0 {
		t.Errorf("got %d samples and %d skipped, want none", stats.Samples, stats.Losses[profile.LossSkipped])
	}
}

// skip samples for a second, while operations on a map make the kernel skip samples.
func skip(t *testing.T, h *harness) probe.Stats {
	t.Helper()
	stop := make(chan struct{})
	done := make(chan error, 1)
	go func() { done <- readMap(stop) }()
	h.run(t, time.Second, 100*time.Millisecond)
	close(stop)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	stats, err := h.Stats()
	if err != nil {
		t.Fatal(err)
	}
	return stats
}

// readMap reads the entries of a map in batches until stop is closed.
func readMap(stop <-chan struct{}) error {
	const entries = 4096
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Hash, KeySize: 4, ValueSize: 8, MaxEntries: entries})
	if err != nil {
		return err
	}
	defer m.Close()
	for i := range uint32(entries) {
		if err := m.Put(i, uint64(i)); err != nil {
			return err
		}
	}
	keys, values := make([]uint32, entries), make([]uint64, entries)
	for {
		select {
		case <-stop:
			return nil
		default:
		}
		var cursor ebpf.MapBatchCursor
		// The batch takes the whole map, so it returns ErrKeyNotExist.
		_, _ = m.BatchLookup(&cursor, keys, values, nil)
	}
}
