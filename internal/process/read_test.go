package process

import (
	"errors"
	"os"
	"testing"

	"fulgur/internal/files/safeopen"
	"fulgur/internal/linux/procfs"
	"fulgur/internal/testenv"
)

// While a process does not answer, nothing else is read from it.
func TestRead(t *testing.T) {
	self := os.Getpid()
	release := make(chan struct{})
	if _, err := Read(nil, self, func(procfs.Task) (int, error) { <-release; return 0, nil }); !errors.Is(err, safeopen.ErrNoAnswer) {
		t.Errorf("got error %v, want %v", err, safeopen.ErrNoAnswer)
	}
	if maps, err := Read(nil, self, procfs.Task.AllMaps); !errors.Is(err, safeopen.ErrNoAnswer) {
		t.Errorf("got %d mappings, %v, want %v", len(maps), err, safeopen.ErrNoAnswer)
	}
	close(release)
	testenv.Await(t, func() bool {
		maps, err := Read(nil, self, procfs.Task.AllMaps)
		return err == nil && len(maps) > 0
	}, func() string { return "the process answers, but no mappings are read" })
}
