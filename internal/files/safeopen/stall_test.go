package safeopen

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// While the machine stalls, nobody can answer: that time does not count.
func TestStall(t *testing.T) {
	const variable, begun = "FULGUR_TEST_STALL", "begun"
	if os.Getenv(variable) != "" {
		a := newBreaker()
		a.timeout = time.Second
		got, err := ask(a, nil, Backend{Path: "slow"}, func(*Request) (int, error) {
			fmt.Println(begun)
			for range 3 {
				time.Sleep(10 * time.Millisecond)
			}
			return 1, nil
		}, func(int, error) {})
		if got != 1 || err != nil {
			t.Errorf("got %d, %v; want 1", got, err)
		}
		return
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), variable+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != begun {
		t.Fatalf("got %q, want %q", lines.Text(), begun)
	}
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	time.Sleep(1200 * time.Millisecond)
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() {
		t.Log(lines.Text())
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
