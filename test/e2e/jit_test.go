package e2e

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"fulgur/internal/linux/monotonic"
	"fulgur/internal/symbols/jitdump/jitdumptest"
	"fulgur/internal/testenv"
)

// jitVar makes the test binary a JIT. It lists the names of its code in turn, each after
// a word for the preceding action: "exec", "rewrite" or, at first, "run". After "keep"
// the map does not change. "dump" writes to a jitdump file in place of the map.
//
// The code runs for some time. If endsVar is set, it runs until there is a file with its
// name, in hexadecimal, in that directory.
const jitVar, endsVar = "E2E_JIT", "E2E_JIT_ENDS"

// endOf returns the path of the file that ends the code of that name.
func endOf(ends, name string) string { return filepath.Join(ends, fmt.Sprintf("%x", name)) }

func init() {
	if steps := os.Getenv(jitVar); steps != "" {
		if err := jit(strings.Fields(steps)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

// loops is a function that counts down from 2 million and returns.
var loops = map[string][]uint32{
	"amd64": {0x200000b9, 0x75c9ff00, 0x9090c3fc},             // mov ecx, 0x200000; dec ecx; jnz; ret
	"arm64": {0x52a00400, 0x71000400, 0x54ffffe1, 0xd65f03c0}, // mov w0, 0x200000; subs w0, w0, 1; b.ne; ret
}

// jit runs the same code at the same address under each name.
func jit(steps []string) (err error) {
	path := fmt.Sprintf("/tmp/perf-%d.map", os.Getpid())
	defer func() { _ = os.Remove(path) }() // none with a jitdump file
	size := uintptr(os.Getpagesize())
	const address = 0x700000000000
	mem, err := unix.MmapPtr(-1, 0, unsafe.Add(nil, address), size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_FIXED_NOREPLACE)
	if err != nil {
		return fmt.Errorf("map memory for code: %w", err)
	}
	code := unsafe.Slice((*byte)(mem), size)
	for i, word := range loops[runtime.GOARCH] {
		binary.LittleEndian.PutUint32(code[4*i:], word)
	}
	if err := unix.Mprotect(code, unix.PROT_READ|unix.PROT_EXEC); err != nil {
		return fmt.Errorf("make code executable: %w", err)
	}
	dump := &jitDump{}
	defer func() { err = errors.Join(err, dump.close()) }()
	entry := &mem
	run := *(*func())(unsafe.Pointer(&entry))
	for i := 0; i+1 < len(steps); i += 2 {
		if i > 0 && steps[i] == "exec" {
			if err := os.Setenv(jitVar, strings.Join(steps[i:], " ")); err != nil {
				return err
			}
			return unix.Exec("/proc/self/exe", os.Args[:1], os.Environ())
		}
		if steps[i] == "keep" {
			// Another user wrote it.
		} else if steps[i] == "dump" {
			if err := dump.load(address, uint64(size), steps[i+1]); err != nil {
				return err
			}
		} else if err := os.WriteFile(path, fmt.Appendf(nil, "%x %x %s\n", address, size, steps[i+1]), 0o644); err != nil {
			return err
		}
		for n := 0; ; n++ {
			if ends := os.Getenv(endsVar); ends == "" {
				if n == 800 {
					break
				}
			} else if _, err := os.Stat(endOf(ends, steps[i+1])); err == nil {
				break
			} else if _, err := os.Stat(ends); err != nil {
				return errors.New("the test has ended")
			}
			run()
		}
	}
	return nil
}

// jitRun is a run of fulgur with a JIT.
type jitRun struct {
	t      *testing.T
	fulgur *exec.Cmd
	ends   string
	file   string // name of the map or the jitdump file, in which %d stands for the PID
	events *os.File
	queue  []byte // events that were not looked at
	pid    int    // of the JIT, from its first event on
}

// runJIT starts fulgur, whose command is a JIT with these steps or becomes one. The JIT's map
// or jitdump file is in dir.
func runJIT(t *testing.T, fulgur *exec.Cmd, steps, dir, file string) *jitRun {
	t.Helper()
	r := &jitRun{t: t, fulgur: fulgur, ends: t.TempDir(), file: file}
	fulgur.Env = append(os.Environ(), jitVar+"="+steps, endsVar+"="+r.ends)
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	r.events = os.NewFile(uintptr(fd), "inotify")
	t.Cleanup(func() { _ = r.events.Close() }) // read-only
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_ACCESS|unix.IN_MODIFY); err != nil {
		t.Fatal(err)
	}
	if err := fulgur.Start(); err != nil {
		t.Fatal(err)
	}
	return r
}

// await waits for an event of the JIT's file; see inotify(7).
func (r *jitRun) await(event uint32) {
	r.t.Helper()
	if err := r.events.SetReadDeadline(time.Now().Add(testenv.TimeLimit())); err != nil {
		r.t.Fatal(err)
	}
	for {
		for len(r.queue) == 0 {
			buf := make([]byte, 64<<10)
			n, err := r.events.Read(buf)
			if err != nil {
				r.t.Fatalf("wait for event %#x of %s: %v: %s", event, r.file, err, r.fulgur.Stderr)
			}
			r.queue = buf[:n]
		}
		const header = unix.SizeofInotifyEvent
		mask, size := binary.NativeEndian.Uint32(r.queue[4:]), binary.NativeEndian.Uint32(r.queue[12:])
		of := unix.ByteSliceToString(r.queue[header : header+size])
		r.queue = r.queue[header+size:]
		if _, err := fmt.Sscanf(of, r.file, &r.pid); err == nil && mask&event != 0 && slices.Contains(children(r.t, r.fulgur.Process.Pid), r.pid) {
			return
		}
	}
}

// end ends the code of that name after fulgur has read the name and taken samples of it.
// written means that the JIT itself writes the name.
func (r *jitRun) end(name string, written bool) {
	r.t.Helper()
	if written {
		r.await(unix.IN_MODIFY)
	}
	r.await(unix.IN_ACCESS)
	awaitWork(r.t, strconv.Itoa(r.pid), 100*time.Millisecond)
	// fulgur follows a jitdump file once it has looked up a sample in generated code.
	awaitWork(r.t, strconv.Itoa(r.fulgur.Process.Pid), 2*time.Millisecond)
	if err := os.WriteFile(endOf(r.ends, name), nil, 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// TestProfileJIT replaces a JIT's code by other code at the same address: the names are
// not mixed.
func TestProfileJIT(t *testing.T) {
	parallel(t)
	testenv.Root(t)
	testenv.AnyKernel(t)
	if loops[runtime.GOARCH] == nil {
		testenv.Unsupported(t, "no machine code for %s", runtime.GOARCH)
	}
	for step, first := range map[string]string{"exec": "run", "rewrite": "run", "dump": "dump"} {
		t.Run(step, func(t *testing.T) {
			program, err := filepath.Abs(os.Args[0])
			if err != nil {
				t.Fatal(err)
			}
			cmd := command(t, "profile", "-F", "199", "-f", "-q", "--", program)
			cmd.Dir = t.TempDir()
			dir, file := "/tmp", "perf-%d.map"
			if step == "dump" {
				dir, file = cmd.Dir, "jit-%d.dump"
			}
			run := runJIT(t, cmd, first+" JIT_one "+step+" JIT_two", dir, file)
			run.end("JIT_one", true)
			run.end("JIT_two", true)
			r := finish(t, cmd)
			if r.code != 0 {
				t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
			}
			stacks := folded(t, r.stdout)
			one, two := count(stacks, "JIT_one"), count(stacks, "JIT_two")
			t.Log(one, two)
			if one == 0 || two == 0 {
				t.Errorf("got %d samples of JIT_one and %d of JIT_two, want some of both:\n%s", one, two, r.stdout)
			}
		})
	}
}

// jitDump is the jitdump file of a JIT, in its directory.
type jitDump struct {
	file   *os.File
	marker []byte
	writer *jitdumptest.Writer
}

// load describes new code.
func (d *jitDump) load(address, size uint64, name string) (err error) {
	if d.file == nil {
		if d.file, err = os.OpenFile(fmt.Sprintf("jit-%d.dump", os.Getpid()), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
			return err
		}
		// perf finds the file by this mapping.
		if d.marker, err = unix.Mmap(int(d.file.Fd()), 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE); err != nil {
			return err
		}
		d.writer = jitdumptest.New(os.Getpid())
	}
	now := monotonic.Now()
	d.writer.Lines(now, address, jitdumptest.Line{Address: address, Line: 7, File: name + ".jit"})
	d.writer.Load(now, address, size, now, name)
	_, err = d.file.Write(d.writer.B)
	d.writer.B = nil
	return err
}

func (d *jitDump) close() error {
	if d.file == nil {
		return nil
	}
	return errors.Join(unix.Munmap(d.marker), d.file.Close())
}
