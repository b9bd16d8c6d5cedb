// Package unwindtest helps to test stack walkers. It has programs to walk the stacks of,
// access to stopped processes, and the kernel's walker compiled for user space.
package unwindtest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/internal/linux/procfs"
	"fulgur/internal/symbols/elffile"
	"fulgur/internal/testenv"
	"fulgur/internal/unwind"
)

// mapping is an executable mapping of a process.
type mapping struct {
	start, end, offset uint64
	file               *tableFile // nil if the file is not ELF
}

// tableFile is a file with its table.
type tableFile struct {
	elf  *elffile.File
	code unwind.Code
}

// Tables caches the tables of files by path.
type Tables map[string]*tableFile

func (ts Tables) open(path string) *tableFile {
	if tf, ok := ts[path]; ok {
		return tf
	}
	ts[path] = nil
	f, err := elffile.Open(path)
	if err != nil {
		return nil
	}
	t, _ := unwind.Compile(f, unwind.Options{})
	ts[path] = &tableFile{f, unwind.CodeOf(f, t)}
	return ts[path]
}

// Stopped is a stopped process.
type Stopped struct {
	mem  *os.File
	maps []mapping
}

// Open opens a stopped process.
func Open(ts Tables, pid int) (*Stopped, error) {
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		return nil, err
	}
	p := &Stopped{mem: mem}
	maps, err := procfs.Process(pid).Maps()
	if err != nil {
		return nil, err
	}
	for _, of := range maps {
		m := mapping{start: of.Start, end: of.Limit, offset: of.Offset}
		if of.Name == "[vdso]" {
			m.file = p.vdso(&m)
		} else if strings.HasPrefix(of.Name, "/") {
			m.file = ts.open(of.Name)
		}
		p.maps = append(p.maps, m)
	}
	return p, nil
}

func (p *Stopped) vdso(m *mapping) *tableFile {
	image := make([]byte, m.end-m.start)
	if _, err := p.mem.ReadAt(image, int64(m.start)); err != nil {
		return nil
	}
	f, err := elffile.New(bytes.NewReader(image), int64(len(image)), "[vdso]")
	if err != nil {
		return nil
	}
	t, _ := unwind.Compile(f, unwind.Options{})
	return &tableFile{f, unwind.CodeOf(f, t)}
}

// Walker returns a walker of the process.
func (p *Stopped) Walker() *unwind.Walker {
	return &unwind.Walker{
		Machine: Machine,
		PCMask:  pcMask,
		Find: func(addr uint64) (unwind.Code, uint64, bool) {
			for _, m := range p.maps {
				if addr < m.start || addr >= m.end {
					continue
				}
				if m.file == nil {
					return unwind.Generated(), 0, true
				}
				off := addr - m.start + m.offset
				link, ok := m.file.elf.Address(off)
				if !ok {
					return unwind.Code{Fallback: m.file.code.Fallback}, 0, true
				}
				return m.file.code, addr - link, true
			}
			return unwind.Code{}, 0, false
		},
		Read: func(addr uint64, buf []byte) bool {
			n, _ := p.mem.ReadAt(buf, int64(addr))
			return n == len(buf)
		},
	}
}

// Close closes the process's memory.
func (p *Stopped) Close() error { return p.mem.Close() }

// Layout passes the mappings to the kernel's walker.
func (p *Stopped) Layout(k *Kernel) uint64 {
	var list []Mapped
	for _, m := range p.maps {
		at := Mapped{Start: m.start, End: m.end, Offset: m.offset, Code: unwind.Generated()}
		if m.file != nil {
			at.Code = m.file.code
		}
		list = append(list, at)
	}
	return k.LayOut(list)
}

// Registers returns the registers of a thread.
func Registers(tid int) (regs unwind.Registers, err error) {
	runtime.LockOSThread() // the tracer is a thread
	defer runtime.UnlockOSThread()
	if _, _, errno := unix.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(tid), 0, 0, 0, 0); errno != 0 {
		return regs, errno
	}
	defer func() { _ = unix.PtraceDetach(tid) }()
	if err := unix.PtraceInterrupt(tid); err != nil {
		return regs, err
	}
	var status unix.WaitStatus
	if _, err := unix.Wait4(tid, &status, unix.WALL, nil); err != nil {
		return regs, err
	}
	var u unix.PtraceRegs
	if err := unix.PtraceGetRegs(tid, &u); err != nil {
		return regs, err
	}
	return fromPtrace(&u), nil
}

// Resume lets a stopped process run for a random CPU time of up to 3 ms, no matter how long
// it waits for a CPU.
func Resume(t testing.TB, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	testenv.AwaitCPUTime(t, pid, rand.N(3*time.Millisecond))
}

// Stop stops the process and waits until all of its threads have stopped.
func Stop(pid int) error {
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return err
	}
	for range 20_000 {
		tids := Threads(pid)
		if len(tids) > 0 && !slices.ContainsFunc(tids, func(tid int) bool { return !isStopped(tid) }) {
			return nil
		}
		time.Sleep(time.Millisecond)
	}
	return errors.New("the process does not stop")
}

// isStopped reports whether a thread is stopped and off its CPU. Its state becomes "stopped"
// slightly earlier, but reading /proc/TID/syscall waits until it is off its CPU.
func isStopped(tid int) bool {
	if stat, err := procfs.Process(tid).Stat(); err != nil || stat.State != 'T' {
		return false
	}
	at, err := os.ReadFile(fmt.Sprintf("/proc/%d/syscall", tid))
	return err == nil && !bytes.HasPrefix(at, []byte("running"))
}

// Threads returns the threads of a process.
func Threads(pid int) []int {
	tids, _ := procfs.Threads(pid) // none if it is gone
	return tids
}
