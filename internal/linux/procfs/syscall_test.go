package procfs

import (
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestParseSyscall(t *testing.T) {
	for text, want := range map[string]Syscall{
		"running\n":                          {Running: true},
		"-1 0x7ffd742581c8 0x7f0e0529e230\n": {Number: NoCall, SP: 0x7ffd742581c8, PC: 0x7f0e0529e230},
		"0 0x3 0x7f60f6781400 0x1 0x7f60f68f2fee 0x0 0x0 0x7ffc97743aa8 0x7f60f6ace2ad\n":       {SP: 0x7ffc97743aa8, PC: 0x7f60f6ace2ad},
		"230 0x0 0x0 0x7fff432602e0 0x7fff43260320 0x0 0x0 0xffffffffffffffff 0x7f3412595503\n": {Number: 230, SP: 1<<64 - 1, PC: 0x7f3412595503},
		"202 0xffffffffffffffff 0x80 0x0 0xffffffffffffffff 0x0 0x0 0xc000059c58 0x47b623":      {Number: 202, SP: 0xc000059c58, PC: 0x47b623},
		"2147483647 0x0 0x0 0x0 0x0 0x0 0x0 0x0 0x0\n":                                          {Number: 1<<31 - 1},
	} {
		if got, err := ParseSyscall([]byte(text)); err != nil || got != want {
			t.Errorf("%q: got %+v, %v; want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", "\n", "walking\n", "0\n", "-1\n", "-1 0x1\n", "7 0x1 0x2\n", "-2 0x1 0x2\n", "-1 0x0 0x0 0x0 0x0 0x0 0x0 0x1 0x2\n",
		"0 0x3 0x0 0x1 0x0 0x0 0x0 0x1\n", "0 0x3 0x0 0x1 0x0 0x0 0x0 0x1 0x2 0x3\n", "0 0x3 0x0 0x1 0x0 0x0 0x0 1 0x2\n",
		"0 0x3 0x0 0x1 0x0 0x0 0x0 0x1 0x1ffffffffffffffff\n", "0 0x3 0x0 0x1 0x0 0x0 0x0 0x 0x2\n", "4294967296 0 0 0 0 0 0 0x1 0x2\n",
	} {
		if got, err := ParseSyscall([]byte(text)); err == nil {
			t.Errorf("%q: got %+v, want an error", text, got)
		}
	}
}

func FuzzParseSyscall(f *testing.F) {
	f.Add([]byte("running\n"))
	f.Add([]byte("-1 0x7ffd742581c8 0x7f0e0529e230\n"))
	f.Add([]byte("230 0x0 0x0 0x7fff432602e0 0x7fff43260320 0x0 0x0 0x7fff432602c8 0x7f3412595503\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := ParseSyscall(b)
		if err != nil && s != (Syscall{}) || s.Running && s != (Syscall{Running: true}) || s.Number < NoCall {
			t.Errorf("%q: got %+v, %v", b, s, err)
		}
	})
}

func TestParseSched(t *testing.T) {
	want := Sched{12390643 * time.Nanosecond, 94786231 * time.Nanosecond, 4}
	if got, err := ParseSched([]byte("12390643 94786231 4\n")); err != nil || got != want {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
	for _, text := range []string{"", "0 0", "1 2 3 4", "-1 0 0", "1 2 x", "9223372036854775808 0 0"} {
		if got, err := ParseSched([]byte(text)); err == nil {
			t.Errorf("%q: got %+v, want an error", text, got)
		}
	}
}

func TestParseWchan(t *testing.T) {
	for text, want := range map[string]string{"futex_do_wait": "futex_do_wait", "poll_schedule_timeout.constprop.0": "poll_schedule_timeout", "0": "", "": "", "a\x1bb": ""} {
		if got, err := parseWchan([]byte(text)); err != nil || got != want {
			t.Errorf("%q: got %q, %v; want %q", text, got, err, want)
		}
	}
}

// The files of a thread that waits say where.
func TestSyscallOfWaiting(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	tid := make(chan int)
	go func() {
		defer r.Close()
		var b [1]byte
		tid <- unix.Gettid()
		_, _ = unix.Read(int(r.Fd()), b[:])
	}()
	waiting := Thread(os.Getpid(), <-tid)
	for until := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		call, err := waiting.Syscall()
		if err != nil {
			t.Fatal(err)
		}
		wchan, err := waiting.Wchan()
		if err != nil {
			t.Fatal(err)
		}
		if !call.Running && call.Number == unix.SYS_READ && call.SP != 0 && call.PC != 0 && strings.Contains(wchan, "pipe") {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("got %+v in %q, want a read of a pipe", call, wchan)
		}
	}
}
