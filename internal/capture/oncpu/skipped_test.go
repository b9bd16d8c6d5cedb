package oncpu

import (
	"testing"
	"time"

	"github.com/cilium/ebpf"

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
	stop := make(chan struct{})
	done := make(chan error, 1)
	go func() { done <- readMap(stop) }()
	h.run(t, time.Second, 100*time.Millisecond)
	close(stop)
	if err := testenv.Receive(t, done, "the batch does not end"); err != nil {
		t.Fatal(err)
	}
	stats, err := h.Stats()
	if err != nil {
		t.Fatal(err)
	}
	low, high := h.ended[0].Sub(h.began[1]).Seconds()*rate, h.ended[1].Sub(h.began[0]).Seconds()*rate
	t.Logf("%d samples and %d skipped, want %.0f to %.0f", stats.Samples, stats.Losses[profile.LossSkipped], low, high)
	// Skipped samples are computed from the event's count, which includes the time when no timer fires.
	// Its clock and this program's differ by at most 0.05 %. The first and the last
	// period are not whole.
	sum := float64(stats.Samples + stats.Losses[profile.LossSkipped])
	if slack := 2 + 0.0005*high; sum < low-slack || sum > high+slack {
		t.Errorf("got %d samples and %d skipped, want %.0f to %.0f", stats.Samples, stats.Losses[profile.LossSkipped], low, high)
	}
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
