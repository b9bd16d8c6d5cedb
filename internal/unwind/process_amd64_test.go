package unwind

import (
	"bufio"
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/internal/elffile"
	"fulgur/internal/testenv"
)

// mapping is an executable mapping of a process.
type mapping struct {
	start, end, offset uint64
	file               *tableFile // nil if it is of no ELF file
}

// tableFile is a file's table.
type tableFile struct {
	elf   *elffile.File
	table *Table
}

// tables keeps the tables of files by path.
type tables map[string]*tableFile

func (ts tables) open(path string) *tableFile {
	if tf, ok := ts[path]; ok {
		return tf
	}
	ts[path] = nil
	f, err := elffile.Open(path)
	if err != nil {
		return nil
	}
	t, _ := Compile(f, Options{})
	ts[path] = &tableFile{f, t}
	return ts[path]
}

// stopped is a process that stands still.
type stopped struct {
	pid  int
	mem  *os.File
	maps []mapping
}

func openStopped(ts tables, pid int) (*stopped, error) {
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		return nil, err
	}
	p := &stopped{pid: pid, mem: mem}
	maps, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return nil, err
	}
	defer maps.Close()
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		var m mapping
		var perm, dev, path string
		var inode uint64
		fmt.Sscanf(lines.Text(), "%x-%x %s %x %s %d %s", &m.start, &m.end, &perm, &m.offset, &dev, &inode, &path)
		if !strings.Contains(perm, "x") {
			continue
		}
		if path == "[vdso]" {
			m.file = p.vdso(&m)
		} else if strings.HasPrefix(path, "/") {
			m.file = ts.open(path)
		}
		p.maps = append(p.maps, m)
	}
	return p, nil
}

func (p *stopped) vdso(m *mapping) *tableFile {
	image := make([]byte, m.end-m.start)
	if _, err := p.mem.ReadAt(image, int64(m.start)); err != nil {
		return nil
	}
	f, err := elffile.New(bytes.NewReader(image), int64(len(image)), "[vdso]")
	if err != nil {
		return nil
	}
	t, _ := Compile(f, Options{})
	return &tableFile{f, t}
}

// walker returns a walker of the process.
func (p *stopped) walker() *Walker {
	return &Walker{
		Machine: elf.EM_X86_64,
		Find: func(addr uint64) (*Table, uint64, bool) {
			for _, m := range p.maps {
				if addr < m.start || addr >= m.end {
					continue
				}
				if m.file == nil {
					return nil, 0, true
				}
				off := addr - m.start + m.offset
				link, ok := m.file.elf.Address(off)
				if !ok {
					return nil, 0, true
				}
				return m.file.table, addr - link, true
			}
			return nil, 0, false
		},
		Read: func(addr uint64, buf []byte) bool {
			n, _ := p.mem.ReadAt(buf, int64(addr))
			return n == len(buf)
		},
	}
}

// layout tells the kernel's walker what is mapped.
func (p *stopped) layout(k *kernelWalker) uint64 {
	var list []mapped
	for _, m := range p.maps {
		at := mapped{start: m.start, end: m.end, offset: m.offset}
		if m.file != nil {
			at.table = m.file.table
		}
		list = append(list, at)
	}
	return k.layOut(list)
}

// registers returns those of a thread.
func registers(tid int) (regs Registers, err error) {
	runtime.LockOSThread() // the tracer is a thread
	defer runtime.UnlockOSThread()
	if _, _, errno := unix.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(tid), 0, 0, 0, 0); errno != 0 {
		return regs, errno
	}
	defer syscall.PtraceDetach(tid)
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
	return Registers{PC: u.Rip, R: [maxRegister]uint64{
		u.Rax, u.Rdx, u.Rcx, u.Rbx, u.Rsi, u.Rdi, u.Rbp, u.Rsp,
		u.R8, u.R9, u.R10, u.R11, u.R12, u.R13, u.R14, u.R15,
	}}, nil
}

// stop stops the process and waits until all of its threads stand still.
func stop(pid int) error {
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return err
	}
	for range 2000 {
		still := true
		stats, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		for _, stat := range stats {
			b, _ := os.ReadFile(stat)
			if _, state, ok := bytes.Cut(b, []byte(") ")); ok && state[0] != 'T' {
				still = false
			}
		}
		if still && len(stats) > 0 {
			return nil
		}
		time.Sleep(time.Millisecond)
	}
	return errors.New("the process does not stop")
}

// euStack returns each thread's program counters as elfutils sees them.
func euStack(t testing.TB, pid int) map[int][]uint64 {
	cmd := exec.Command(testenv.Tool(t, "eu-stack"), "-q", "-n", "0", "-p", strconv.Itoa(pid))
	cmd.Env = append(os.Environ(), "DEBUGINFOD_URLS=")
	out, _ := cmd.Output() // it fails where a stack cannot be walked to its end
	stacks := map[int][]uint64{}
	tid := 0
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 2 && fields[0] == "TID":
			tid, _ = strconv.Atoi(strings.TrimSuffix(fields[1], ":"))
		case len(fields) > 1 && fields[0][0] == '#':
			pc, _ := strconv.ParseUint(fields[1], 0, 64)
			stacks[tid] = append(stacks[tid], pc)
		}
	}
	return stacks
}

// outcome is how a stack compares to elfutils'.
type outcome struct {
	what    string
	details string
}

func compare(got []Frame, end End, want []uint64) outcome {
	pcs := make([]uint64, len(got))
	for i, f := range got {
		pcs[i] = f.PC
	}
	details := fmt.Sprintf("%v (%v), eu-stack %#x", got, end, want)
	n := min(len(pcs), len(want))
	switch {
	case slices.Equal(pcs, want):
		return outcome{"equal, " + end.String(), details}
	case !slices.Equal(pcs[:n], want[:n]):
		return outcome{"different, " + end.String(), details}
	case len(pcs) > n:
		return outcome{"longer than eu-stack's, " + end.String(), details}
	}
	return outcome{"shorter than eu-stack's, " + end.String(), details}
}

// programUnderTest is a program that runs until it is killed.
type programUnderTest struct {
	name string
	// often is whether it is tested always, not only when many moments are
	// asked for; then what it needs must be there.
	often bool
	// tool builds it from source with flags, or is the program itself if
	// there is no source.
	tool, source string
	flags        []string
	args         []string
}

var programsUnderTest = []programUnderTest{
	{name: "C -O2", often: true, tool: "gcc", source: "frames.c", flags: []string{"-O2"}},
	{name: "C -O0", tool: "gcc", source: "frames.c", flags: []string{"-O0"}},
	{name: "C -O3 -fomit-frame-pointer", often: true, tool: "gcc", source: "frames.c", flags: []string{"-O3", "-fomit-frame-pointer", "-march=haswell"}},
	{name: "C clang", tool: "clang-19", source: "frames.c", flags: []string{"-O2"}},
	{name: "C static", tool: "gcc", source: "frames.c", flags: []string{"-O2", "-static"}},
	{name: "C lazy binding", tool: "gcc", source: "frames.c", flags: []string{"-O2", "-Wl,-z,lazy"}},
	{name: "C .debug_frame", often: true, tool: "gcc", source: "frames.c", flags: []string{"-O2", "-g", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"}},
	{name: "C++ exceptions", often: true, tool: "g++", source: "exceptions.cc", flags: []string{"-O2", "-pthread"}},
	{name: "signals", often: true, tool: "gcc", source: "signals.c", flags: []string{"-O2"}},
	{name: "signals on a stack of their own", tool: "gcc", source: "signals.c", flags: []string{"-O2"}, args: []string{"a"}},
	{name: "Rust", tool: "rustc", source: "load.rs", flags: []string{"-O"}},
	{name: "Go with cgo", tool: "go", source: "cgo"},
	{name: "busybox", tool: "busybox", args: []string{"sha512sum", "/dev/zero"}},
	{name: "busybox sh", tool: "busybox", args: []string{"sh", "-c", "while :; do x=$((x+1)); done"}},
	{name: "python3", tool: "/usr/bin/python3", args: []string{"testdata/load.py"}},
	{name: "perl", tool: "perl", args: []string{"-e",
		`sub f { $_[0] ? f($_[0]-1) : join ",", sort map { sprintf "%x", $_ } 1..50 } f(20) while 1`}},
	{name: "node", tool: "node", args: []string{"--interpreted-frames-native-stack", "testdata/load.js"}},
}

// command returns the program's command line, and builds it if it must be.
func (p *programUnderTest) command(t *testing.T) []string {
	if _, err := exec.LookPath(p.tool); err != nil && !p.often {
		t.Skip(err)
	}
	tool := testenv.Tool(t, p.tool)
	if p.source == "" {
		return append([]string{tool}, p.args...)
	}
	out := filepath.Join(t.TempDir(), "program")
	args := append([]string{"-o", out, filepath.Join("testdata", p.source)}, p.flags...)
	if p.tool == "go" {
		args = []string{"build", "-o", out, "./testdata/" + p.source}
	}
	build := exec.Command(tool, args...)
	build.Env = append(os.Environ(), "CGO_ENABLED=1")
	if b, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	return append([]string{out}, p.args...)
}

// TestProcesses stops programs at random moments and compares their stacks with
// those that elfutils finds. FULGUR_UNWIND_STACKS is how many of each, and
// brings in more programs.
func TestProcesses(t *testing.T) {
	testenv.Tool(t, "eu-stack")
	moments, err := strconv.Atoi(os.Getenv("FULGUR_UNWIND_STACKS"))
	for _, p := range programsUnderTest {
		if err != nil {
			moments = 5
			if !p.often {
				continue
			}
		}
		t.Run(p.name, func(t *testing.T) { checkProcess(t, p.command(t), moments) })
	}
}

func checkProcess(t *testing.T, command []string, moments int) {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdout = io.Discard
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	pid := cmd.Process.Pid
	time.Sleep(100 * time.Millisecond)

	ts := tables{}
	k := newKernelWalker(t, elf.EM_X86_64)
	outcomes := map[string]int{}
	examples := map[string][]string{}
	for range moments {
		_ = syscall.Kill(pid, syscall.SIGCONT)
		time.Sleep(time.Duration(rand.IntN(3000)) * time.Microsecond)
		if err := stop(pid); err != nil {
			t.Fatal(err)
		}
		p, err := openStopped(ts, pid)
		if err != nil {
			t.Fatal(err)
		}
		got := map[int][]Frame{}
		layout := p.layout(k)
		before := map[int]Registers{}
		ends := map[int]End{}
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
		for _, task := range tasks {
			tid, _ := strconv.Atoi(filepath.Base(task))
			regs, err := registers(tid)
			if err != nil {
				testenv.Skip(t, fmt.Sprintf("needs the right to trace processes: %v", err))
			}
			before[tid] = regs
			w := p.walker()
			memory := &recorder{read: w.Read, pages: map[uint64][]byte{}}
			w.Read = memory.Read
			got[tid], ends[tid] = w.Walk(regs, nil, 1024)
			k.check(t, amd64, regs, layout, memory.pages, got[tid], ends[tid])
		}
		for tid, want := range euStack(t, pid) {
			o := compare(got[tid], ends[tid], want)
			if after, err := registers(tid); err != nil || after != before[tid] {
				o.what = "moved meanwhile" // stops are not always kept
			}
			outcomes[o.what]++
			if len(examples[o.what]) < 2 {
				examples[o.what] = append(examples[o.what], o.details)
			}
		}
		p.mem.Close()
	}
	for what, n := range outcomes {
		t.Logf("%d %s", n, what)
		if what != "equal, complete" {
			for _, e := range examples[what] {
				t.Log(e)
			}
			if strings.HasPrefix(what, "different") {
				t.Error("stacks contradict each other")
			}
		}
	}
}
