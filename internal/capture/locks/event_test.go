package locks

import (
	"os"
	"testing"
	"unsafe"

	"fulgur/internal/capture/latency"
	"fulgur/internal/capture/source/sourcetest"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/linux/procfs"
	"fulgur/internal/profile"
)

// recorder has the markers of a recording.
type recorder struct {
	sourcetest.Recorder
	names []string
}

func (*recorder) AddMarkerType(profile.MarkerType) profile.MarkerTypeID { return 0 }

func (r *recorder) AddMarker(_ profile.ThreadID, m profile.Marker) error {
	r.names = append(r.names, m.Values[0])
	return nil
}

// Samples of a recording name the same locks as its markers, although their stacks do not tell the
// process: addresses of other processes are other locks.
func TestRecordedNames(t *testing.T) {
	at := uint64(uintptr(unsafe.Pointer(&kinds)))
	s := lockSource{Source: new(latency.Source), kind: kind{name: "futex", side: User}}
	s.maps.maps = map[uint32][]procfs.Map{7: {{Start: at, Limit: at + 8, Ino: 1, Name: "/bin/other"}}}
	store := &stacks.Store{Anonymous: true, Traces: make([]stacks.Trace, 1)}
	var to recorder
	var got []string
	for _, pid := range []uint32{uint32(os.Getpid()), 7, uint32(os.Getpid())} {
		e := event{Pid: pid, Detail: at, Time: 2000, Duration: 1}
		if err := s.Event(unsafe.Slice((*byte)(unsafe.Pointer(&e)), unsafe.Sizeof(e)), &to); err != nil {
			t.Fatal(err)
		}
		got = append(got, s.lockOf(store, stacks.Sample{Detail: to.Key.Detail}))
	}
	if got[0] != to.names[0] || got[1] != "futex other+0x0" || got[2] != got[0] || got[0] == got[1] || len(s.recorded) != 2 {
		t.Errorf("got %q, want the names of the markers, %q", got, to.names)
	}
}
