package procfs

import (
	"errors"
	"strconv"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"fulgur/internal/testenv"
)

func TestParseBPF(t *testing.T) {
	for text, want := range map[string]BPF{
		"pos:\t0\nflags:\t02000002\nprog_type:\t7\nprog_jited:\t1\nmemlock:\t8192\nprog_id:\t3\nrun_time_ns:\t1500\nrun_cnt:\t2\n": {Programs: 1, Memory: 8192, RunTime: 1500},
		"pos:\t0\nmap_type:\t2\nmax_entries:\t10\nmap_flags:\t0x0\nmemlock:\t4096\nmap_id:\t5\n":                                   {Maps: 1, Memory: 4096},
		"pos:\t0\nflags:\t02\n": {},
	} {
		if got, err := ParseBPF([]byte(text)); err != nil || got != want {
			t.Errorf("%q: got %+v, %v, want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"memlock:\t-1\n", "run_time_ns:\t" + strconv.FormatUint(1<<63, 10) + "\n"} {
		if _, err := ParseBPF([]byte(text)); !errors.Is(err, strconv.ErrSyntax) && !errors.Is(err, strconv.ErrRange) {
			t.Errorf("%q: got error %v", text, err)
		}
	}
}

// TestBPF finds a map of this process.
func TestBPF(t *testing.T) {
	testenv.Root(t)
	before, err := Self.BPF()
	if err != nil {
		t.Fatal(err)
	}
	const size = 1 << 20
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: size, MaxEntries: 1})
	if errors.Is(err, unix.EPERM) {
		testenv.Skip(t, "needs BPF maps: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	again, err := m.Clone() // counts once
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	after, err := Self.BPF()
	if err != nil || after.Maps != before.Maps+1 || after.Memory < before.Memory+size || after.Memory >= before.Memory+2*size || after.RunTime != before.RunTime {
		t.Errorf("got %+v, error %v, after %+v: want another map of %d bytes", after, err, before, size)
	}
	if other, err := Process(1 << 30).BPF(); err == nil {
		t.Errorf("got %+v of a process that does not exist", other)
	}
}
