package branches

import (
	"debug/elf"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"fulgur/internal/bolt"
	"fulgur/internal/linux/perfevent"
	"fulgur/internal/process"
	"fulgur/internal/symbols/elffile/elftest"
)

// testSpaces returns spaces with one binary, which has one page of code at link-time
// address 0x1000, and a second file like it.
func testSpaces(t testing.TB) (s *spaces, chosen, other perfevent.Mmap2) {
	t.Helper()
	dir := t.TempDir()
	mapped := func(name, id string) perfevent.Mmap2 {
		t.Helper()
		path := filepath.Join(dir, name)
		content := elftest.File{
			Segments: []elftest.Segment{{Type: elf.PT_LOAD, Prog64: elf.Prog64{
				Flags: uint32(elf.PF_X), Vaddr: 0x1000, Filesz: 0x1000, Memsz: 0x1000,
			}}},
			Sections: []elftest.Section{elftest.BuildID([]byte(id))},
		}.Bytes()
		if err := os.WriteFile(path, append(content, make([]byte, 0x2000)...), 0o700); err != nil {
			t.Fatal(err)
		}
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			t.Fatal(err)
		}
		return perfevent.Mmap2{
			Addr: 0x10000, Len: 0x1000, Filename: path,
			Maj: unix.Major(st.Dev), Min: unix.Minor(st.Dev), Ino: st.Ino,
		}
	}
	chosen, other = mapped("chosen", "the chosen one"), mapped("other", "the other one")
	collector := bolt.NewCollector(bolt.Options{})
	t.Cleanup(collector.Close)
	bs := &binaries{collector: collector}
	if err := bs.choose(chosen.Filename, nil); err != nil {
		t.Fatal(err)
	}
	table := process.NewTable(process.Options{})
	t.Cleanup(func() {
		if err := table.Close(); err != nil {
			t.Error(err)
		}
		if err := bs.close(); err != nil {
			t.Error(err)
		}
	})
	return &spaces{processes: table, binaries: bs}, chosen, other
}

// testPID is above the limit of Linux for PIDs, so no process has it.
const testPID = 1 << 23

func (s *spaces) handle(records ...perfevent.Record) {
	for _, r := range records {
		s.handleRecord(r)
		s.processes.Apply(r)
	}
}

// at returns which file's code a process has at addr.
func (s *spaces) at(pid int, time, addr uint64) string {
	l := s.layout(bolt.Sample{PID: pid, Time: time, Entries: []bolt.Entry{{From: addr, To: addr}}})
	switch r, ok := l.Find(addr); {
	case !ok:
		return "no file"
	case r.Binary == foreign:
		return "foreign"
	default:
		return filepath.Base(r.Binary.Name)
	}
}

func atTime(m perfevent.Mmap2, pid int, addr, time uint64) perfevent.Mmap2 {
	m.PID, m.TID, m.Addr, m.Time = pid, pid, addr, time
	return m
}

// Samples are resolved with the mappings at their time, whatever happened since.
func TestSpaces(t *testing.T) {
	s, chosen, other := testSpaces(t)
	exec := perfevent.Comm{Stamp: perfevent.Stamp{Time: 10}, PID: testPID, TID: testPID, Exec: true}
	s.handle(exec, atTime(chosen, testPID, 0x10000, 20))
	check := func(pid int, time, addr uint64, want string) {
		t.Helper()
		for range 2 { // the second round uses the cache
			if got := s.at(pid, time, addr); got != want {
				t.Errorf("process %d at %d: %#x is in %s, want %s", pid, time, addr, got, want)
			}
		}
	}
	check(testPID, 30, 0x10800, "chosen")
	check(testPID, 30, 0x20800, "no file")
	check(testPID, 30, 0xffffffff81000000, "no file")

	s.handle(atTime(other, testPID, 0x20000, 40))
	check(testPID, 50, 0x20800, "foreign")
	check(testPID, 50, 0x10800, "chosen")

	child := testPID + 1
	s.handle(perfevent.Fork{Stamp: perfevent.Stamp{Time: 60}, PID: child, TID: child, PPID: testPID, PTID: testPID})
	check(child, 70, 0x10800, "chosen")

	s.handle(atTime(other, testPID, 0x10000, 80))
	check(testPID, 75, 0x10800, "chosen")
	check(testPID, 90, 0x10800, "foreign")
	check(testPID, 75, 0x10800, "chosen")
	check(child, 90, 0x10800, "chosen")

	s.handle(perfevent.Comm{Stamp: perfevent.Stamp{Time: 100}, PID: child, TID: child, Exec: true}, atTime(chosen, child, 0x30000, 110))
	check(child, 95, 0x10800, "chosen")
	check(child, 120, 0x10800, "no file")
	check(child, 120, 0x30800, "chosen")

	s.forget(1000)
	if len(s.changed) > 0 {
		t.Errorf("got changes %v left, want none", s.changed)
	}
	check(child, 1001, 0x30800, "chosen")
	s.handle(perfevent.Exit{Stamp: perfevent.Stamp{Time: 1002}, PID: child, TID: child})
	if _, ok := s.known[child]; ok {
		t.Error("got an exited process left")
	}
}

// BenchmarkSample processes samples of 32 records, with 20 000 different traces in one
// binary.
func BenchmarkSample(b *testing.B) {
	s, chosen, _ := testSpaces(b)
	s.handle(perfevent.Comm{Stamp: perfevent.Stamp{Time: 10}, PID: testPID, TID: testPID, Exec: true}, atTime(chosen, testPID, 0x10000, 20))
	random := rand.New(rand.NewPCG(1, 2))
	var walk []bolt.Entry
	for range 20_000 {
		walk = append(walk, bolt.Entry{From: 0x10000 + random.Uint64N(0x1000), To: 0x10000 + random.Uint64N(0x1000)})
	}
	for b.Loop() {
		at := random.IntN(len(walk) - 32)
		sample := bolt.Sample{PID: testPID, Time: 30, Entries: walk[at : at+32]}
		if err := s.binaries.collector.Add(s.layout(sample), sample.Entries); err != nil {
			b.Fatal(err)
		}
	}
}
