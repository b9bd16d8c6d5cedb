package main

import (
	"bytes"
	"context"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"fulgur/internal/linux/procfs"
)

// debugger returns the outermost frame of each thread of a process.
type debugger func(ctx context.Context, pid int) map[int]outermost

// outermost is the last frame that a debugger shows.
type outermost struct {
	addr     uint64
	function string
}

var (
	gdbThread = regexp.MustCompile(`^Thread \d+ .*\(?LWP (\d+)`)
	gdbFrame  = regexp.MustCompile(`^#\d+ +(?:(0x[0-9a-f]+) in )?(\S+)`)
	euThread  = regexp.MustCompile(`^TID (\d+):`)
	euFrame   = regexp.MustCompile(`^#\d+ +(0x[0-9a-f]+)(?: - \d)? *(\S*)`)
)

func gdb(ctx context.Context, pid int) map[int]outermost {
	out, _ := exec.CommandContext(ctx, "gdb", "-nx", "-batch", "-iex", "set debuginfod enabled off", "-iex", "set backtrace past-main on", "-p", strconv.Itoa(pid),
		"-ex", "thread apply all backtrace").Output()
	return parseStacks(out, gdbThread, gdbFrame)
}

func euStack(ctx context.Context, pid int) map[int]outermost {
	out, _ := exec.CommandContext(ctx, "eu-stack", "-n", "0", "-p", strconv.Itoa(pid)).Output()
	return parseStacks(out, euThread, euFrame)
}

// parseStacks finds the last frame of each thread in a debugger's output.
func parseStacks(out []byte, thread, frame *regexp.Regexp) map[int]outermost {
	all := map[int]outermost{}
	tid := 0
	for line := range bytes.Lines(out) {
		if m := thread.FindSubmatch(line); m != nil {
			tid, _ = strconv.Atoi(string(m[1]))
		} else if m := frame.FindSubmatch(line); m != nil && tid != 0 {
			addr, _ := strconv.ParseUint(string(m[1]), 0, 64)
			all[tid] = outermost{addr, string(m[2])}
		}
	}
	return all
}

// begins are the functions in which threads begin, apart from programs' entry points.
var begins = []string{
	"_start", "clone", "__clone", "clone3", "__clone3", "runtime.goexit", "runtime.mstart", "runtime.rt0_go", "_rt0_amd64_linux",
	"_rt0_arm64_linux",
}

// isWhole reports whether a frame is where a program or a thread begins.
func (f outermost) isWhole(pid int) bool {
	name, _, _ := strings.Cut(strings.TrimSuffix(f.function, ".abi0"), "+")
	return slices.Contains(begins, name) || isEntry(pid, f.addr)
}

// entryCode is the size of the code at an entry point: its call of the C library is at its end.
const entryCode = 64

// isEntry reports whether a process has mapped the entry point of a file just before addr.
func isEntry(pid int, addr uint64) bool {
	maps, err := procfs.Process(pid).Maps()
	if err != nil {
		return false
	}
	for _, m := range maps {
		if addr < m.Start || addr >= m.Limit {
			continue
		}
		return beginsAt(fmt.Sprintf("/proc/%d/root%s", pid, m.Name), addr-m.Start+m.Offset)
	}
	return false
}

// beginsAt reports whether the entry point of a file is just before an offset.
func beginsAt(path string, offset uint64) bool {
	f, err := elf.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	for _, p := range f.Progs {
		at := offset - p.Off + p.Vaddr
		if p.Type == elf.PT_LOAD && at >= p.Vaddr && at < p.Vaddr+p.Filesz && at >= f.Entry && at < f.Entry+entryCode {
			return true
		}
	}
	return false
}

// stop stops a program several times for a debugger, while a thread of it runs.
func (o *options) stop(ctx context.Context, dir string, s subject, stacks debugger) (tally, error) {
	t := tally{}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for t.sum() < o.stops && ctx.Err() == nil {
		c := exec.CommandContext(ctx, "sh", "-c", s.script)
		c.Dir, c.WaitDelay = dir, time.Second
		c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
		if err := c.Start(); err != nil {
			return nil, err
		}
		ended := make(chan struct{})
		go func() {
			_ = c.Wait()
			close(ended)
		}()
		for running := true; running && t.sum() < o.stops; {
			select {
			case <-ended:
				running = false
			case <-time.After(100 * time.Millisecond):
				o.stopOnce(ctx, c.Process.Pid, stacks, t)
			}
		}
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
		<-ended
	}
	return t, nil
}

// stopOnce adds the threads of a session that run.
func (o *options) stopOnce(ctx context.Context, session int, stacks debugger, t tally) {
	for pid, tids := range runs(session) {
		all := stacks(ctx, pid)
		for _, tid := range tids {
			f, ok := all[tid]
			if !ok || t.sum() >= o.stops {
				continue
			}
			if f.isWhole(pid) {
				t[complete]++
			} else {
				t["truncated"]++
			}
		}
	}
}

// runs returns the threads of a session that run, by process, except the shell.
func runs(session int) map[int][]int {
	all := map[int][]int{}
	files, _ := filepath.Glob("/proc/[0-9]*/task/[0-9]*/stat")
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		var state string
		var parent, group, of int
		name, rest := text[:bytes.LastIndexByte(text, ')')], text[bytes.LastIndexByte(text, ')')+1:]
		if _, err := fmt.Sscan(string(rest), &state, &parent, &group, &of); err != nil || of != session || state != "R" {
			continue
		}
		parts := strings.Split(path, "/")
		pid, _ := strconv.Atoi(parts[2])
		tid, _ := strconv.Atoi(parts[4])
		if !bytes.HasSuffix(name, []byte("(sh")) {
			all[pid] = append(all[pid], tid)
		}
	}
	return all
}
