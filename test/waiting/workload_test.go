package waiting

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// truth is a workload's own record of its work. Times are in ns.
type truth struct {
	Slept   int64 // in nanosleep
	Waited  int64 // for others
	Times   int64
	Elapsed int64
	// Page faults of fresh memory and of a file, and the major faults of
	// the file, as the kernel counts them for the thread.
	Anonymous, Mapped, Major int64
	File                     string
	// Bytes read from a disk or written to it, and the kernel's count of these
	// in /proc.
	Bytes, Counted int64
	// Ways is the duration of waiting calls, by reason.
	Ways map[string]int64
	// Stolen is the time that a hypervisor took from all CPUs, within some ms.
	Stolen int64
	// CPU is the time that threads were on a CPU, by their names.
	CPU map[string]int64
}

// workload does known work, and writes its counts. Its threads have names that
// distinguish them from the threads of Go's runtime.
func workload(mode string) error {
	var t truth
	begin := time.Now()
	var err error
	switch mode {
	case "sleeps":
		err = thread("sleeper", func() { t.Slept, t.Times = nap(20, napTime) })
	case "asleep":
		err = thread("sleeper", func() {
			fmt.Println("now")
			nap(1, time.Hour)
		})
	case "convoy":
		err = convoy(&t)
	case "pingpong":
		err = pingpong(&t)
	case "ways":
		err = waitInAllWays(&t)
	case "nap":
		nap(1, wayTime)
		return nil
	case "storm":
		err = storm(&t)
	case "touch":
		err = touch(&t)
	case "pinned":
		err = pinned(&t)
	case "read":
		err = direct(&t, unix.O_RDONLY, unix.Read, "read_bytes", 100, 64<<10)
	case "read-large":
		var size int
		if size, err = strconv.Atoi(os.Getenv("WAITING_SIZE")); err == nil {
			err = direct(&t, unix.O_RDONLY, unix.Read, "read_bytes", 2, size)
		}
	case "write":
		err = direct(&t, unix.O_WRONLY, unix.Write, "write_bytes", 100, 64<<10)
	case "cached":
		err = cached(&t)
	case "dirty":
		err = dirty(&t)
	default:
		err = fmt.Errorf("unknown workload")
	}
	if err != nil {
		return err
	}
	t.Elapsed = int64(time.Since(begin))
	t.CPU = onCPU.by // all threads have exited
	return json.NewEncoder(os.Stdout).Encode(t)
}

// thread runs f in a thread of its own, and returns when it is done.
func thread(name string, f func()) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread exits with the goroutine
		err := setName(name)
		if err == nil {
			begin := clock(unix.CLOCK_THREAD_CPUTIME_ID)
			f()
			onCPU.add(name, clock(unix.CLOCK_THREAD_CPUTIME_ID)-begin)
		}
		done <- err
	}()
	return <-done
}

// onCPU adds up the CPU times of threads.
var onCPU = cpuTimes{by: map[string]int64{}}

type cpuTimes struct {
	mu sync.Mutex
	by map[string]int64
}

func (c *cpuTimes) add(name string, ns int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.by[name] += ns
}

func setName(name string) error {
	b := append([]byte(name), 0)
	return unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&b[0])), 0, 0, 0)
}

// raw makes a system call without Go's runtime: a thread that the runtime considers
// running continues as soon as it wakes. Callers that wait retry failed calls. It returns
// the duration in ns.
//
//go:norace
//go:nosplit
//go:noinline
func raw(call uintptr, args ...uintptr) int64 {
	var a [6]uintptr
	copy(a[:], args)
	begin := clock(unix.CLOCK_MONOTONIC)
	_, _, _ = unix.RawSyscall6(call, a[0], a[1], a[2], a[3], a[4], a[5])
	return clock(unix.CLOCK_MONOTONIC) - begin
}

// napTime is the length of a nap.
const napTime = 20 * time.Millisecond

// nap sleeps n times, and returns the total time.
//
//go:noinline
func nap(n int, each time.Duration) (slept, times int64) {
	for range n {
		ts := unix.NsecToTimespec(int64(each))
		slept += raw(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&ts)))
	}
	return slept, int64(n)
}

// lock is a mutex that waits in the kernel at once, and hands itself over.
type lock struct{ word, _ uint32 }

func (l *lock) futex(op int, value uint32) {
	raw(unix.SYS_FUTEX, uintptr(unsafe.Pointer(&l.word)), uintptr(op|128 /* FUTEX_PRIVATE_FLAG */), uintptr(value))
}

// wait waits until the lock is handed over, and returns the time.
//
//go:noinline
func (l *lock) wait() int64 {
	begin := time.Now()
	for atomic.LoadUint32(&l.word) == 0 {
		l.futex(0 /* FUTEX_WAIT */, 0)
	}
	return int64(time.Since(begin))
}

// handOver gives the lock to the waiting thread.
//
//go:noinline
func (l *lock) handOver() {
	atomic.StoreUint32(&l.word, 1)
	l.futex(1 /* FUTEX_WAKE */, 1)
}

// convoy makes threads queue for a lock: each sleeps for 5 ms in turn while the others
// wait.
func convoy(t *truth) error {
	const threads, rounds = 3, 20
	turns := [threads]lock{}
	turns[0].word = 1
	var mu sync.Mutex
	errs := make(chan error, threads)
	for i := range threads {
		go func() {
			errs <- thread("convoy", func() {
				own, next := &turns[i], &turns[(i+1)%threads]
				for range rounds {
					waited := own.wait()
					atomic.StoreUint32(&own.word, 0)
					slept, _ := nap(1, 5*time.Millisecond)
					next.handOver()
					mu.Lock()
					t.Slept += slept
					t.Waited += waited
					t.Times++
					mu.Unlock()
				}
			})
		}()
	}
	var err error
	for range threads {
		if e := <-errs; e != nil {
			err = e
		}
	}
	return err
}

// pingpong sends a byte to and fro between two threads.
func pingpong(t *truth) error {
	var there, back [2]int
	if err := unix.Pipe(there[:]); err != nil {
		return err
	}
	if err := unix.Pipe(back[:]); err != nil {
		return err
	}
	const rounds = 20_000
	done := make(chan error)
	go func() {
		done <- thread("ping", func() {
			before := stolen()
			elapsed, ran := turns(there[1], back[0], rounds)
			t.Waited, t.Times, t.Stolen = elapsed-ran, rounds, stolen()-before
		})
	}()
	go func() { done <- thread("pong", func() { echo(there[0], back[1], rounds) }) }()
	return errors.Join(<-done, <-done)
}

// stolen returns the time that a hypervisor has taken from all CPUs, in ns: it is in no
// thread's CPU time. See proc_stat(5).
func stolen() int64 {
	const field, tick = 8, int64(10 * time.Millisecond)
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(b), "\n")
	n, _ := strconv.ParseInt(strings.Fields(first)[field], 10, 64)
	return n * tick
}

// turns sends a byte and waits for one in each round. It returns the total time and the
// CPU time, in ns. Only the function itself and the kernel take the thread off the CPU:
// Go's scheduler does not interrupt a function without stack checks, and the race
// detector does not instrument it.
//
//go:norace
//go:nosplit
//go:noinline
func turns(to, from, rounds int) (elapsed, ran int64) {
	var b byte
	begin, used := clock(unix.CLOCK_MONOTONIC), clock(unix.CLOCK_THREAD_CPUTIME_ID)
	for range rounds {
		unix.RawSyscall(unix.SYS_WRITE, uintptr(to), uintptr(unsafe.Pointer(&b)), 1)
		unix.RawSyscall(unix.SYS_READ, uintptr(from), uintptr(unsafe.Pointer(&b)), 1)
	}
	return clock(unix.CLOCK_MONOTONIC) - begin, clock(unix.CLOCK_THREAD_CPUTIME_ID) - used
}

// echo sends back each byte that comes.
//
//go:norace
//go:nosplit
//go:noinline
func echo(from, to, rounds int) {
	var b byte
	for range rounds {
		unix.RawSyscall(unix.SYS_READ, uintptr(from), uintptr(unsafe.Pointer(&b)), 1)
		unix.RawSyscall(unix.SYS_WRITE, uintptr(to), uintptr(unsafe.Pointer(&b)), 1)
	}
}

// clock reads a clock that every kernel supports, in ns.
//
//go:norace
//go:nosplit
func clock(id uintptr) int64 {
	var now unix.Timespec
	unix.RawSyscall(unix.SYS_CLOCK_GETTIME, id, uintptr(unsafe.Pointer(&now)), 0)
	return now.Sec*1e9 + now.Nsec
}

// touch touches each page of fresh memory, and of a file that is not cached.
func touch(t *truth) error {
	const pages = 1000
	page := os.Getpagesize()
	file, err := uncached(pages * page)
	if err != nil {
		return err
	}
	defer file.Close()
	memory, err := unix.Mmap(-1, 0, pages*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return err
	}
	mapped, err := unix.Mmap(int(file.Fd()), 0, pages*page, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	// Fault in one page at a time, without large pages or faultaround. A kernel without
	// large pages rejects the advice.
	_ = unix.Madvise(memory, unix.MADV_NOHUGEPAGE)
	if err := unix.Madvise(mapped, unix.MADV_RANDOM); err != nil {
		return err
	}
	t.File = file.Name()
	var masked error
	return errors.Join(thread("toucher", func() {
		read := ioCounter("read_bytes")
		// Without signals of Go's scheduler, whose handler has page faults of its own.
		var all unix.Sigset_t
		for i := range all.Val {
			all.Val[i] = math.MaxUint64
		}
		masked = unix.PthreadSigmask(unix.SIG_BLOCK, &all, nil) // the thread ends after this
		touchPages(t, memory, mapped)
		t.Counted = ioCounter("read_bytes") - read
	}), masked)
}

// touchPages causes only the faults of the pages that it touches, and counts them. One fault may
// be for several pages.
//
//go:norace
//go:noinline
func touchPages(t *truth, to, from []byte) {
	faults() // fetches the page of its code
	for at := 0; at < len(to); at += os.Getpagesize() {
		minor, major := faults()
		value := from[at]
		minorRead, majorRead := faults()
		to[at] = value
		minorWritten, majorWritten := faults()
		t.Mapped += minorRead - minor + majorRead - major
		t.Major += majorRead - major
		t.Anonymous += minorWritten - minorRead + majorWritten - majorRead
	}
}

// pinned makes the kernel itself fetch a page for a thread, which writes to it only
// later.
func pinned(t *truth) error {
	page, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return err
	}
	var failed error
	return errors.Join(thread("pinned", func() {
		var got [1]byte
		local := []unix.Iovec{{Base: &got[0]}}
		local[0].SetLen(len(got))
		_, failed = unix.ProcessVMReadv(os.Getpid(), local, []unix.RemoteIovec{{Base: uintptr(unsafe.Pointer(&page[0])), Len: len(got)}}, 0)
		t.Slept, t.Times = nap(1, napTime)
		before, _ := faults()
		begin := clock(unix.CLOCK_MONOTONIC)
		page[0] = 1
		t.Waited = clock(unix.CLOCK_MONOTONIC) - begin
		after, _ := faults()
		t.Anonymous = after - before
	}), failed)
}

// uncached returns a new file of size bytes that is not in the page cache.
func uncached(size int) (*os.File, error) {
	name := filepath.Join(os.Getenv("WAITING_DIR"), "file")
	if device := os.Getenv("WAITING_DEVICE"); device != "" {
		name = device
	}
	file, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	if _, err := file.Write(make([]byte, size)); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	if err := file.Sync(); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, unix.Fadvise(int(file.Fd()), 0, 0, unix.FADV_DONTNEED)
}

// faults returns the number of page faults of this thread.
//
//go:norace
func faults() (minor, major int64) {
	var used unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_THREAD, &used) // every kernel supports it
	return used.Minflt, used.Majflt
}

// direct reads or writes a file past the cache, in calls of the given size.
func direct(t *truth, flags int, io func(int, []byte) (int, error), counter string, calls, size int) error {
	file, err := uncached(calls * size)
	if err != nil {
		return err
	}
	defer file.Close()
	fd, err := unix.Open(file.Name(), flags|unix.O_DIRECT, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	buffer, err := aligned(size)
	if err != nil {
		return err
	}
	t.File = file.Name()
	var failed error
	return errors.Join(thread("direct", func() {
		before, begin := ioCounter(counter), time.Now()
		for range calls {
			n, err := io(fd, buffer)
			failed = errors.Join(failed, err)
			t.Bytes += int64(n)
			t.Times++
		}
		t.Waited = int64(time.Since(begin))
		t.Counted = ioCounter(counter) - before
	}), failed)
}

// cached reads a file from its disk through the cache, in pieces.
func cached(t *truth) error {
	const pieces, size = 50, 32 << 10
	file, err := uncached(pieces * size)
	if err != nil {
		return err
	}
	defer file.Close()
	// This disables readahead.
	if err := unix.Fadvise(int(file.Fd()), 0, 0, unix.FADV_RANDOM); err != nil {
		return err
	}
	t.File = file.Name()
	buffer := make([]byte, size)
	var failed error
	return errors.Join(thread("reader", func() {
		before := ioCounter("read_bytes")
		for i := range pieces {
			n, err := unix.Pread(int(file.Fd()), buffer, int64(i*size))
			failed = errors.Join(failed, err)
			t.Bytes += int64(n)
		}
		t.Counted = ioCounter("read_bytes") - before
	}), failed)
}

// dirty writes a file into the cache, and makes the kernel write it back. The file had
// the same size before, and the program itself wrote it.
func dirty(t *truth) error {
	const size = 1 << 20
	file, err := uncached(size)
	if err != nil {
		return err
	}
	defer file.Close()
	t.File = file.Name()
	n, err := file.WriteAt(make([]byte, size), 0)
	if err != nil {
		return err
	}
	t.Bytes = int64(n)
	unix.Sync()
	return nil
}

// aligned returns memory that is aligned for reads past the cache.
func aligned(size int) ([]byte, error) {
	return unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
}

// ioCounter returns a counter of this thread's /proc/thread-self/io, 0 if the kernel does
// not have it.
func ioCounter(name string) int64 {
	b, err := os.ReadFile("/proc/thread-self/io")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if value, ok := strings.CutPrefix(line, name+": "); ok {
			n, _ := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
			return n
		}
	}
	return 0
}
