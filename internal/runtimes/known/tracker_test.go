package known

import (
	"fmt"
	"os"
	"runtime"
	"testing"
	"weak"

	"fulgur/internal/process"
)

// Unused files are removed, so a tracker does not grow with time.
func TestTrackerPrunes(t *testing.T) {
	tracker := NewTracker(nil)
	kept := new(process.File)
	for i := range minPrune {
		f := new(process.File)
		if i == 0 {
			f = kept
		}
		tracker.files[weak.Make(f)] = file{}
	}
	runtime.GC()
	for _, m := range process.NewTable(process.Options{}).Mappings(os.Getpid()) {
		if m.File != nil {
			tracker.file(m.File)
			break
		}
	}
	if n := len(tracker.files); n > 10 {
		t.Errorf("got %d files left, want at most 10", n)
	}
	if _, ok := tracker.files[weak.Make(kept)]; !ok {
		t.Error("a file in use was removed")
	}
	runtime.KeepAlive(kept)
}

// Programs that claim many different versions do not fill the summary.
func TestTrackerUnknown(t *testing.T) {
	tracker := NewTracker(nil)
	for range 2 {
		for i := range 1000 {
			tracker.noteUnknown(fmt.Sprint("python ", i))
		}
	}
	if n := len(tracker.Notes()); n != maxUnknown+1 {
		t.Errorf("got %d notes, want %d", n, maxUnknown+1)
	}
}
