package process

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/internal/files/safeopen"
	"fulgur/internal/linux/monotonic"
	"fulgur/internal/symbols/jitdump"
	"fulgur/internal/symbols/jitdump/jitdumptest"
	"fulgur/internal/symbols/symbolize"
	"fulgur/internal/testenv"
	"fulgur/internal/testenv/fusetest"
)

// dumper is a process, this one, that writes a jitdump file.
type dumper struct {
	t     *testing.T
	table *Table
	path  string
	*jitdumptest.Writer
	replaced int
}

// codeAt is the address of code in tests.
const codeAt = 0x7e0000000000

// newDumper returns a dumper whose table knows that it has code at codeAt.
func newDumper(t *testing.T) *dumper {
	d := &dumper{t: t, table: newPatientTable(), path: filepath.Join(t.TempDir(), fmt.Sprintf("jit-%d.dump", os.Getpid()))}
	d.Writer = jitdumptest.New(os.Getpid())
	d.table.OnReplaced(func(int) { d.replaced++ })
	t.Cleanup(func() { _ = d.table.Close() }) // read-only
	now := monotonic.Now()
	d.table.Apply(exec(now, os.Getpid()))
	d.table.Apply(mmap(now, os.Getpid(), codeAt, codeAt+0x1000, 0, "//anon"))
	return d
}

// newPatientTable returns a table that waits for files even on a busy machine.
func newPatientTable() *Table {
	t := NewTable(Options{})
	t.files.budget, t.dumps.waits, t.perfMaps.budget = nil, nil, nil
	return t
}

// flush appends the new bytes to the file.
func (d *dumper) flush() {
	d.t.Helper()
	f, err := os.OpenFile(d.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		d.t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(d.B); err != nil {
		d.t.Fatal(err)
	}
	d.B = nil
}

// mark maps the file, as its writer does.
func (d *dumper) mark() {
	d.t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(d.path, &st); err != nil {
		d.t.Fatal(err)
	}
	m := mmap(monotonic.Now(), os.Getpid(), codeAt+0x2000, codeAt+0x3000, 0, d.path)
	m.Maj, m.Min, m.Ino, m.InoGen = unix.Major(st.Dev), unix.Minor(st.Dev), st.Ino, 0
	d.table.Apply(m)
}

// publish appends the new bytes to the file and maps it.
func (d *dumper) publish() {
	d.t.Helper()
	d.flush()
	d.mark()
}

// dumps returns the files that name the code of a process at a time.
func (d *dumper) dumps(pid int, time uint64) JITTables {
	dumps := d.table.Resolve(pid, codeAt, time).JITDumps
	return dumps.Tables()
}

// name returns the function at codeAt.
func (d *dumper) name(tables JITTables, time uint64) string {
	d.t.Helper()
	frames, err := jitdump.Lookup(tables.Tables, []jitdump.Query{{Address: codeAt, Time: time}}, symbolize.Options{})
	if err != nil {
		d.t.Error(err)
	}
	if len(frames[0]) == 0 {
		return ""
	}
	return frames[0][0].Name
}

// check compares the function at codeAt of a process at a time.
func (d *dumper) check(what string, pid int, time uint64, want string) {
	d.t.Helper()
	tables := d.dumps(pid, time)
	if got := d.name(tables, time); got != want || tables.Incomplete != nil {
		d.t.Errorf("%s: got %q, %v; want %q", what, got, tables.Incomplete, want)
	}
}

// A jitdump file is found by its mapping and followed while it grows, also after it was
// deleted.
func TestJITDump(t *testing.T) {
	d := newDumper(t)
	self := os.Getpid()
	d.check("without a file", self, monotonic.Now(), "")
	d.publish()
	d.check("header only", self, monotonic.Now(), "")
	first := monotonic.Now()
	d.Load(first, codeAt, 0x10, 1, "first")
	last := len(d.B) - 5
	rest := d.B[last:]
	d.B = d.B[:last]
	d.flush()
	d.table.FollowJIT()
	d.check("incomplete record", self, first, "")
	d.B = rest
	d.flush()
	before := d.replaced
	d.table.dumps.followed[self].epoch -= uint64(time.Second / 5)
	d.table.FollowJIT()
	if d.replaced == before {
		t.Error("stacks keep their meaning although the file grew")
	}
	d.check("one record", self, first, "first")
	snapshot := d.dumps(self, first)

	if err := os.Rename(d.path, filepath.Join(filepath.Dir(d.path), "elsewhere")); err != nil {
		t.Fatal(err)
	}
	d.path = filepath.Join(filepath.Dir(d.path), "elsewhere")
	second := monotonic.Now()
	d.Load(second, codeAt, 0x10, 2, "second")
	d.flush()
	d.table.FollowJIT()
	d.check("before the reuse", self, second-1, "first")
	d.check("after the reuse", self, second, "second")
	if got := d.name(snapshot, second); got != "first" {
		t.Errorf("snapshot: got %q, want the first function", got)
	}

	// A forked child has the code from before the fork.
	child := self + 1<<22
	forked := monotonic.Now()
	d.table.Apply(fork(forked, self, child))
	third := monotonic.Now()
	d.Load(third, codeAt, 0x10, 3, "third")
	d.flush()
	d.table.FollowJIT()
	d.check("parent", self, third, "third")
	d.check("child", child, third, "second")

	// The next program has other code. The file of the replaced program is read to its end.
	fourth := monotonic.Now()
	d.Load(fourth, codeAt, 0x10, 4, "fourth")
	d.flush()
	executed := monotonic.Now()
	d.table.Apply(exec(executed, self))
	d.table.Apply(mmap(executed, self, codeAt, codeAt+0x1000, 0, "//anon"))
	d.check("before exec", self, fourth, "fourth")
	d.check("after exec", self, monotonic.Now(), "")
}

// A table that begins while the file is mapped finds it in /proc.
func TestJITDumpMappedBefore(t *testing.T) {
	d := newDumper(t)
	d.Load(monotonic.Now(), codeAt, 0x10, 1, "f")
	d.flush()
	f, err := os.Open(d.path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	marker, err := unix.Mmap(int(f.Fd()), 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE)
	if err != nil {
		testenv.Skip(t, "needs the right to map files as executable: %v", err)
	}
	t.Cleanup(func() { _ = unix.Munmap(marker) })
	d.table = newPatientTable()
	t.Cleanup(func() { _ = d.table.Close() }) // read-only
	self := os.Getpid()
	d.table.Resolve(self, 0, monotonic.Now()) // reads /proc
	d.table.Apply(mmap(monotonic.Now(), self, codeAt, codeAt+0x1000, 0, "//anon"))
	d.check("mapped before", self, monotonic.Now(), "f")
	dumps := d.table.Resolve(self, codeAt, monotonic.Now()).JITDumps
	d.table.Invalidate()
	d.table.Apply(mmap(monotonic.Now(), self, codeAt, codeAt+0x1000, 0, "//anon"))
	d.check("records lost", self, monotonic.Now(), "f")
	if d.table.Resolve(self, codeAt, monotonic.Now()).JITDumps != dumps {
		t.Error("the file is read again after a loss of records")
	}
}

// Files that the process cannot have written are not used, and Incomplete says why.
func TestJITDumpRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		write func(d *dumper)
		want  string // "" for no reason
	}{
		"other process": {func(d *dumper) { d.Writer = jitdumptest.New(os.Getpid() + 1); d.flush() }, "written by process"},
		"other format":  {func(d *dumper) { d.B = []byte(strings.Repeat("x", 100)); d.flush() }, "not a jitdump file"},
		"other user": {func(d *dumper) {
			testenv.Root(d.t)
			d.flush()
			if err := os.Chown(d.path, 12345, 0); err != nil {
				d.t.Fatal(err)
			}
		}, "owned by user 12345"},
		"malformed": {func(d *dumper) {
			d.Record(0, 1, nil)
			d.Record(2, 1, nil)
			d.flush()
		}, "1 malformed record"},
		"program": {func(d *dumper) { d.B = []byte("\x7fELF"); d.flush() }, ""},
		"FIFO": {func(d *dumper) {
			if err := unix.Mkfifo(d.path, 0o600); err != nil {
				d.t.Fatal(err)
			}
		}, "replaced"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDumper(t)
			tc.write(d)
			d.mark()
			self := os.Getpid()
			tables := d.dumps(self, monotonic.Now())
			if err := tables.Incomplete; tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("got error %v, want %q", err, tc.want)
			}
			d.Load(1, codeAt, 0x10, 1, "forged")
			if got := d.name(tables, 1); got != "" {
				t.Errorf("got the name %q", got)
			}
		})
	}
}

// A file that is restarted names old code and new code.
func TestJITDumpRestarted(t *testing.T) {
	d := newDumper(t)
	d.Load(10, codeAt, 0x10, 1, "old")
	d.publish()
	d.check("old", os.Getpid(), monotonic.Now(), "old")
	d.Writer = &jitdumptest.Writer{Order: d.Order, PID: d.PID}
	d.Header(0, 0)
	d.Load(20, codeAt, 0x10, 1, "a new name")
	d.Load(20, codeAt+0x10, 0x10, 1, "another")
	if err := os.Truncate(d.path, 0); err != nil {
		t.Fatal(err)
	}
	d.flush()
	d.table.FollowJIT()
	tables := d.dumps(os.Getpid(), monotonic.Now())
	if got := []string{d.name(tables, 10), d.name(tables, 20)}; got[0] != "old" || got[1] != "a new name" {
		t.Errorf("got %q", got)
	}
}

// A file that is restarted in another byte order is not read any further: the copied records
// would be misread.
func TestJITDumpOtherOrder(t *testing.T) {
	d := newDumper(t)
	d.Load(10, codeAt, 0x10, 1, "old")
	d.publish()
	d.check("old", os.Getpid(), monotonic.Now(), "old")
	if err := os.Truncate(d.path, 0); err != nil {
		t.Fatal(err)
	}
	d.table.FollowJIT()
	d.check("no header yet", os.Getpid(), monotonic.Now(), "old")
	d.Writer = &jitdumptest.Writer{Order: binary.BigEndian, PID: d.PID}
	d.Header(1, 0)
	d.Load(20, codeAt, 0x10, 1, "new")
	d.flush()
	d.table.FollowJIT()
	tables := d.dumps(os.Getpid(), monotonic.Now())
	if got := d.name(tables, 20); got != "old" || tables.Incomplete == nil {
		t.Errorf("got %q, %v; want the old function", got, tables.Incomplete)
	}
}

// The jitdump file of a program is not attributed to the program that the process ran before.
func TestJITDumpOfNextProgram(t *testing.T) {
	d := newDumper(t)
	d.Load(10, codeAt+0x100, 0x10, 1, "an older one")
	d.publish()
	before := monotonic.Now()
	d.check("old", os.Getpid(), before, "")
	d.Writer = jitdumptest.New(os.Getpid())
	d.Load(20, codeAt, 0x10, 1, "new")
	if err := os.Truncate(d.path, 0); err != nil {
		t.Fatal(err)
	}
	d.flush()
	d.table.Apply(exec(monotonic.Now(), os.Getpid()))
	d.check("before exec", os.Getpid(), before, "")
}

// Records that exceed the spool are missing, and Incomplete says why.
func TestJITDumpSpoolLimit(t *testing.T) {
	d := newDumper(t)
	d.table.dumps.spool.limit = 200
	d.Load(1, codeAt, 0x10, 1, "f")
	for i := range uint64(10) {
		d.Load(1, codeAt+0x100*i+0x100, 0x10, 1, "g")
	}
	d.publish()
	tables := d.dumps(os.Getpid(), monotonic.Now())
	if tables.Incomplete == nil || !strings.Contains(tables.Incomplete.Error(), "more than 200 bytes") {
		t.Errorf("got error %v", tables.Incomplete)
	}
	if got := d.name(tables, 1); got != "f" {
		t.Errorf("got %q, want the function that fits", got)
	}
}

// When a program ends, a record that is longer than its file is reported as missing, unless
// the next program writes to the file.
func TestJITDumpUnfinished(t *testing.T) {
	for name, next := range map[string]bool{"exit": false, "next program": true} {
		t.Run(name, func(t *testing.T) {
			d := newDumper(t)
			d.Load(1, codeAt, 0x10, 1, "f")
			whole := len(d.B)
			d.Load(1, codeAt+0x100, 0x10, 1, "unfinished")
			d.B = d.B[:len(d.B)-3]
			rest := len(d.B) - whole
			d.publish()
			at := monotonic.Now()
			d.check("while it may grow", os.Getpid(), at, "f")
			if next {
				if err := os.Truncate(d.path, 0); err != nil {
					t.Fatal(err)
				}
				d.Writer = &jitdumptest.Writer{Order: d.Order, PID: d.PID}
				d.Header(7, 0)
				d.B = append(d.B, make([]byte, 4*whole)...)
				d.flush()
			}
			d.table.Apply(exec(monotonic.Now(), os.Getpid()))
			tables := d.dumps(os.Getpid(), at)
			want := fmt.Sprintf("longer than the rest of the file, %d bytes", rest)
			if err := tables.Incomplete; next && err != nil || !next && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("got error %v", err)
			}
			if got := d.name(tables, at); got != "f" {
				t.Errorf("got %q, want f", got)
			}
		})
	}
}

// A child inherits the code of its nearest ancestors.
func TestJITDumpForks(t *testing.T) {
	d := newDumper(t)
	d.Load(1, codeAt, 0x10, 1, "f")
	d.publish()
	const first = 1 << 22
	parent := os.Getpid()
	for i := range maxForks + 2 {
		child := first + i
		d.table.Apply(fork(monotonic.Now(), parent, child))
		parent = child
	}
	d.check("near", first+maxForks-1, monotonic.Now(), "f")
	far := d.table.Resolve(first+maxForks, codeAt, monotonic.Now()).JITDumps
	tables := far.Tables()
	if got := d.name(tables, monotonic.Now()); got != "" || tables.Incomplete == nil || len(far.inherited) != maxForks {
		t.Errorf("got %q, %v, %d ancestors; want at most %d", got, tables.Incomplete, len(far.inherited), maxForks)
	}
	// The limit also holds if the processes in between were not sampled.
	d = newDumper(t)
	d.Load(1, codeAt, 0x10, 1, "f")
	d.publish()
	parent = os.Getpid()
	for i := range 1000 {
		d.table.Apply(fork(monotonic.Now(), parent, first+i))
		parent = first + i
	}
	for _, child := range []int{parent, first + maxForks} {
		if dumps := d.table.Resolve(child, codeAt, monotonic.Now()).JITDumps; dumps != nil {
			t.Errorf("child %d has %d ancestors with code", child-first, len(dumps.inherited))
		}
	}
	// These lookups do not change what nearer descendants have.
	d.check("after far", first+maxForks-1, monotonic.Now(), "f")
}

// The files of many processes that write fast are read in turn.
func TestJITDumpTurns(t *testing.T) {
	const files = 10
	j := jitDumps{followed: map[int]*JITDumps{}, spool: &spool{limit: spoolLimit}}
	t.Cleanup(func() { _ = j.spool.close() })
	d := newDumper(t)
	for i := range uint64(100) {
		d.Load(1, codeAt+0x100000*i, 0x10000, i, "f")
	}
	d.flush()
	self := os.Getpid()
	for i := range files {
		file, err := d.table.Open(self, d.path)
		if err != nil {
			t.Fatal(err)
		}
		j.followed[i] = &JITDumps{pid: self, nspid: self, uid: uint32(os.Geteuid()), dumpFiles: &dumpFiles{[]*dumpFile{{file: file, kept: spooled{in: j.spool}}}}}
	}
	read := func() (total int64, complete int) {
		for _, d := range j.followed {
			total += d.files[0].scan.Offset()
			if !d.files[0].more {
				complete++
			}
		}
		return total, complete
	}
	j.follow(1, 1<<20, 1<<19, func(int) {})
	if total, complete := read(); total < 1<<20 || total > 4<<20 || complete > 1 {
		t.Errorf("read %d bytes in the first turn, %d complete files", total, complete)
	}
	for range 200 {
		j.follow(1, 1<<20, 1<<19, func(int) {})
	}
	if _, complete := read(); complete != files {
		t.Errorf("%d files are complete, want %d", complete, files)
	}
}

// The rest of a large file is read in parts, and nothing is missing.
func TestJITDumpParts(t *testing.T) {
	d := newDumper(t)
	const functions = 2000 // together longer than [dumpStep]
	for i := range uint64(functions) {
		d.Load(1, codeAt+0x10000*i, 0x2800, i, "f")
	}
	d.publish()
	tables := d.dumps(os.Getpid(), monotonic.Now())
	if tables.Incomplete == nil {
		t.Error("the whole file is read at once")
	}
	d.table.FinishJIT()
	tables = d.dumps(os.Getpid(), monotonic.Now())
	if tables.Incomplete != nil || len(tables.Tables) != 1 || tables.Tables[0].Size != functions*(56+1) {
		t.Errorf("got %+v", tables)
	}
}

// If the file system of a jitdump file hangs, the records read before remain, and Incomplete
// says why.
func TestJITDumpNoAnswer(t *testing.T) {
	testenv.Root(t)
	d := newDumper(t)
	d.Load(1, codeAt, 0x10, 1, "f")
	d.flush()
	path, stop := fusetest.Mount(t, d.path)
	var file *File
	if err := fusetest.UntilAnswered(t, safeopen.ErrNoAnswer, func() (err error) { file, err = d.table.Open(os.Getpid(), path); return err }); err != nil {
		t.Fatal(err)
	}
	j := d.table.dumps
	dumps := &JITDumps{nspid: os.Getpid(), uid: uint32(os.Geteuid()), dumpFiles: &dumpFiles{[]*dumpFile{{file: file, kept: spooled{in: j.spool}}}}}
	update := func() {
		budget := int64(dumpStep)
		j.update(dumps, &budget)
	}
	err := fusetest.UntilAnswered(t, safeopen.ErrNoAnswer, func() error {
		update()
		return dumps.Tables().Incomplete
	})
	if name := d.name(dumps.Tables(), 1); name != "f" || err != nil {
		t.Fatalf("got %q, %v; want the function", name, err)
	}
	stop()
	update()
	if tables := dumps.Tables(); d.name(tables, 1) != "f" || !errors.Is(tables.Incomplete, safeopen.ErrNoAnswer) {
		t.Errorf("got %q, %v; want the function and ErrNoAnswer", d.name(tables, 1), tables.Incomplete)
	}
}

// A process gets new epochs when its file grows and now and then, but not too many.
func TestJITDumpEpochs(t *testing.T) {
	const second = uint64(time.Second)
	raised := func(d *JITDumps, from, until uint64, grow bool) (n int) {
		for now := from; now < until; now += second / 10 {
			d.grew = d.grew || grow
			if d.due(now) {
				n++
			}
		}
		return n
	}
	var d JITDumps
	at := uint64(1000) * second
	if n := raised(&d, at, at+10*second, false); n != 10 {
		t.Errorf("got %d epochs in 10 seconds, want 10", n)
	}
	if n := raised(&d, at+10*second, at+20*second, true); n != 100 {
		t.Errorf("got %d epochs in 10 seconds in which the file grew, want 100", n)
	}
	if n := raised(&d, at+20*second, at+3600*second, false); n < 64 || n > 64*6 {
		t.Errorf("got %d epochs in an hour, want about 64 times its logarithm", n)
	}
	j := jitDumps{followed: map[int]*JITDumps{1: &d}}
	j.nextPeriod()
	if n := raised(&d, at+3700*second, at+3710*second, false); n != 10 {
		t.Errorf("got %d epochs in 10 seconds of the next period, want 10", n)
	}
}
