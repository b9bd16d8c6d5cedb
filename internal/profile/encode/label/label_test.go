package label

import (
	"testing"

	"fulgur/internal/profile"
)

func TestTask(t *testing.T) {
	for task, want := range map[profile.Task]string{
		{PID: 42, Comm: "server"}:          "server",
		{PID: 42, TID: 43, Comm: "server"}: "server-42/43",
		{TID: 43, Comm: "[unknown]"}:       "[unknown]-?/43",
		{Comm: "swapper/1"}:                "swapper/1",
	} {
		if got := Task(task); got != want {
			t.Errorf("%+v: got %q, want %q", task, got, want)
		}
	}
}

func TestCPU(t *testing.T) {
	if got, ok := CPU(3); got != "[CPU 3]" || !ok {
		t.Errorf("CPU 3: got %q, %v; want [CPU 3]", got, ok)
	}
	if got, ok := CPU(-1); ok {
		t.Errorf("no CPU: got %q, want none", got)
	}
}
