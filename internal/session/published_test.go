package session

import (
	"os"
	"testing"

	"fulgur/internal/profile"
)

// Each process that runs has the path of its program, even if it occurs several times.
func TestExecutables(t *testing.T) {
	b := profile.NewBuilder(profile.ValueType{Type: "samples", Unit: "count"})
	const none = 1 << 30
	for _, pid := range []int{os.Getpid(), none, os.Getpid(), 0} {
		b.Add(profile.Sample{Task: b.Task(profile.Task{PID: pid, TID: pid}), CPU: -1, Values: []int64{1}})
	}
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if got := executables(processesOf(b.Profile(profile.Meta{}, profile.Losses{}))); len(got) != 1 || got[os.Getpid()] != own {
		t.Errorf("got %v, want %s", got, own)
	}
}
