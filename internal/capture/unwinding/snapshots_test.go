package unwinding

import (
	"math"
	"testing"
	"time"
	"unsafe"

	"fulgur/internal/bpf"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/linux/monotonic"
	"fulgur/internal/process"
)

// patient is a source that is never ready.
type patient struct{}

func (patient) CanRewalk() bool { return false }

func (patient) Rewalk(stacks.Snapshot, uint64) (uint64, error) { return 0, nil }

// Snapshots that wait do not share memory, even if they use that of earlier ones.
func TestSnapshotsReuse(t *testing.T) {
	const image = 7
	record := func(fill byte) []byte {
		r := bpf.Snapshot{Image: image, Copied: 64}
		b := unsafe.Slice((*byte)(unsafe.Pointer(&r)), unsafe.Sizeof(r))[:unsafe.Offsetof(r.Copy)+64]
		b[unsafe.Offsetof(r.Copy)] = fill
		return b
	}
	earlier, err := stacks.ParseSnapshot(record(0), stacks.Snapshot{})
	if err != nil {
		t.Fatal(err)
	}
	p := new(snapshotProcess)
	s := Snapshots{of: map[snapshotKey]*snapshotProcess{{0, image}: p}, unneeded: []stacks.Snapshot{earlier}}
	const snapshots = 3
	for i := range snapshots {
		if err := s.Add(patient{}, record(byte(i+1)), process.NewTable(process.Options{})); err != nil {
			t.Fatal(err)
		}
	}
	if len(p.waiting) != snapshots || len(s.unneeded) > 0 {
		t.Fatalf("got %d snapshots and the memory of %d, want %d and 0", len(p.waiting), len(s.unneeded), snapshots)
	}
	for i, w := range p.waiting {
		var back bpf.Snapshot
		w.Fill(&back, 0)
		if got := *(*byte)(unsafe.Pointer(&back.Copy)); got != byte(i+1) {
			t.Errorf("snapshot %d has the contents of %d", i+1, got)
		}
	}
}

// A snapshot that was read late waits for tables like others, and the mappings of its time are
// kept meanwhile.
func TestSnapshotsLate(t *testing.T) {
	now := monotonic.Now()
	late := waitingSnapshot{Snapshot: stacks.Snapshot{Time: now - uint64(time.Hour)}, source: patient{}, since: now}
	s := Snapshots{of: map[snapshotKey]*snapshotProcess{{1, 7}: {waiting: []waitingSnapshot{late}}}}
	if err := s.Rewalk(now + patienceForTables); err != nil || !s.Waiting() {
		t.Errorf("got %v, waiting: %v; want it to wait", err, s.Waiting())
	}
	if got := s.Needed(); got != late.Time {
		t.Errorf("needs the mappings from %d on, want %d", got, late.Time)
	}
	if got := new(Snapshots).Needed(); got != math.MaxUint64 {
		t.Errorf("without snapshots: needs the mappings from %d on", got)
	}
}
