package known

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"testing"
	"weak"

	"fulgur/internal/bpf"
	"fulgur/internal/process"
	"fulgur/internal/runtimes"
	"fulgur/internal/symbols/elffile"
	"fulgur/internal/testenv"
)

// segments returns addresses that the kernel keeps of a process's program: the end of its code,
// and the start and the end of its data; see proc_pid_stat(5).
func segments(t *testing.T, pid int) (endCode, startData, endData uint64) {
	t.Helper()
	var at [3]uint64
	var problem error
	// The values are 0 while the process executes its program, even after os/exec has started it.
	testenv.Await(t, func() bool {
		at, problem = [3]uint64{}, nil
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			problem = err
			return false
		}
		fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
		for i, field := range []int{27, 45, 46} {
			if at[i], err = strconv.ParseUint(string(fields[field-3]), 10, 64); err != nil {
				problem = err
			}
		}
		return problem == nil && !slices.Contains(at[:], 0)
	}, func() string { return fmt.Sprintf("got addresses %#x of process %d, error %v", at, pid, problem) })
	return at[0], at[1], at[2]
}

// The kernel and the memory of a process confirm what identifies its program.
func TestReadImage(t *testing.T) {
	testenv.EveryKernel(t)
	testenv.Root(t) // other users do not see the addresses
	sleep := exec.Command(testenv.Tool(t, "sleep"), "1000")
	if err := sleep.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = sleep.Process.Kill()
		_ = sleep.Wait()
	}()
	// The process has the memory of this program for a moment, even after os/exec has started it.
	program := func(pid int) string {
		path, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)) // fails while it executes
		return path
	}
	testenv.Await(t, func() bool {
		path := program(sleep.Process.Pid)
		return path != "" && path != program(os.Getpid())
	}, func() string { return "sleep is not executed" })
	table := process.NewTable(process.Options{})
	defer table.Close()
	for name, pid := range map[string]int{"this program": os.Getpid(), "sleep": sleep.Process.Pid} {
		t.Run(name, func(t *testing.T) {
			endCode, startData, endData := segments(t, pid)
			var program *process.File
			for _, m := range table.Mappings(pid) {
				if m.Start < endCode && endCode <= m.Limit {
					program = m.File
				}
			}
			if program == nil {
				t.Fatalf("got no file at the end of the code, %#x", endCode)
			}
			is, err := readImage(program)
			if err != nil {
				t.Fatal(err)
			}
			if key := runtimes.Sum(0, startData-endCode, endData-endCode); is.key != key || !is.program {
				t.Errorf("got key %#x, a program: %t; want key %#x of a program", is.key, is.program, key)
			}
			memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
			if err != nil {
				t.Fatal(err)
			}
			defer memory.Close()
			head := make([]byte, bpf.ProgramHead)
			if _, err := memory.ReadAt(head, int64(endCode-is.end+is.Head)); err != nil {
				t.Fatal(err)
			}
			if hash := hashOf(head); hash != is.Hash || !bytes.HasPrefix(head, []byte("\x7fELF")) {
				t.Errorf("the memory has hash %#x and begins with %q, want hash %#x", hash, head[:4], is.Hash)
			}
		})
	}
}

// programs notes the entries of processes and programs.
type programs struct {
	Processes
	kinds    []uint64
	last     bpf.RuntimeProcess
	programs map[uint64]bpf.RuntimeProgram
}

func (p *programs) Put(_ int, r bpf.RuntimeProcess) error {
	p.kinds, p.last = append(p.kinds, r.Kinds), r
	return nil
}

func (p *programs) PutProgram(key uint64, r bpf.RuntimeProgram) error {
	p.programs[key] = r
	return nil
}

// Once a process of a program has a runtime, the kernel side knows the program, and looks for the
// runtime in its other processes.
func TestTrackerPrograms(t *testing.T) {
	build := func(kind runtimes.Kind) *runtimes.Build {
		return &runtimes.Build{
			Entry: bpf.RuntimeProcess{Kinds: 1 << kind, Python: bpf.UnwindPythonProcess{Interpreter: bpf.RuntimeRange{Start: 0x100}}},
			Place: func(e *bpf.RuntimeProcess, bias uint64, glibc bool) {
				e.Python.Interpreter.Start += bias
				e.Python.Runtime += bias
				if glibc {
					e.Python.Thread = 1
				}
			},
		}
	}
	inMemory := build(bpf.RuntimeV8)
	inMemory.Open = func(*bpf.RuntimeProcess, uint64, runtimes.Memory) (runtimes.Reader, error) { return noPlaces{}, nil }
	unknown := &runtimes.Build{Unknown: "python 99"}
	program := &elfImage{program: true, libraries: 0x3008, RuntimeFile: bpf.RuntimeFile{Head: 0x1000, Hash: 5}, end: 0x2000}
	library := &elfImage{dynamic: 0x4000, RuntimeFile: bpf.RuntimeFile{Hash: 6}}
	for name, tc := range map[string]struct {
		program, library *elfImage
		build            *runtimes.Build // in the library, or in the program if library is nil
		known            bool
	}{
		"library":              {program, library, build(bpf.RuntimePython), true},
		"program":              {program, nil, build(bpf.RuntimePython), true},
		"static program":       {&elfImage{program: true}, nil, build(bpf.RuntimePython), true},
		"static with library":  {&elfImage{program: true}, library, build(bpf.RuntimePython), false},
		"library without list": {program, &elfImage{}, build(bpf.RuntimePython), false},
		"no program":           {&elfImage{}, library, build(bpf.RuntimePython), false},
		"no ELF file":          {nil, library, build(bpf.RuntimePython), false},
		"by memory":            {program, library, inMemory, false},
		"unknown version":      {program, library, unknown, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := programs{programs: map[uint64]bpf.RuntimeProgram{}}
			tracker := NewTracker(&p)
			code := []elffile.Segment{{Offset: 0, FileSize: 0x1000, Addr: 0}}
			add := func(is file) process.Mapping {
				f := new(process.File)
				is.segments, is.imaged = code, true
				tracker.files[weak.Make(f)] = is
				return process.Mapping{Kind: process.KindFile, File: f, Start: 0x50000}
			}
			mappings := []process.Mapping{add(file{image: tc.program}), add(file{image: &elfImage{}, glibc: true})}
			if tc.library != nil {
				mappings = append(mappings, add(file{image: tc.library, builds: map[runtimes.Kind]*runtimes.Build{bpf.RuntimePython: tc.build}}))
			} else {
				mappings[0] = add(file{image: tc.program, builds: map[runtimes.Kind]*runtimes.Build{bpf.RuntimePython: tc.build}})
			}
			tracker.Mapped(1, 7, mappings[:1])
			tracker.Mapped(2, 7, slices.Delete(slices.Clone(mappings), 1, 2)) // the C library comes last
			tracker.Mapped(3, 7, mappings)
			before := len(p.kinds)
			tracker.Mapped(4, 7, mappings[:1])
			if !tc.known {
				if len(p.programs) > 0 || tc.library != nil && len(p.kinds) != before {
					t.Errorf("got programs %+v and entries of kinds %v, want none for process 4", p.programs, p.kinds)
				}
				return
			}
			want := bpf.RuntimeProgram{End: tc.program.end, Program: tc.program.RuntimeFile, Process: build(bpf.RuntimePython).Entry}
			want.Process.Python.Thread = 1
			want.Addresses[0], want.Addresses[1] = 2, 4
			kinds := uint64(1) << bpf.RuntimePython
			if tc.library != nil {
				want.Libraries, want.Dynamic, want.Library = program.libraries, library.dynamic, library.RuntimeFile
				kinds = 0
			}
			if len(p.programs) != 1 || p.programs[runtimes.Sum(tc.program.key, uint64(bpf.RuntimePython))] != want {
				t.Errorf("got programs %+v, want one: %+v", p.programs, want)
			}
			if got := p.kinds[len(p.kinds)-1]; len(p.kinds) != before+1 || got != kinds {
				t.Errorf("got kinds %v of entries, want %#x for process 4", p.kinds, kinds)
			}
		})
	}
}

// A process may have several runtimes, in any order of its mappings, and even in one file. Of two
// builds of a runtime, the first one that fulgur can read counts.
func TestTrackerSeveral(t *testing.T) {
	at := func(kind runtimes.Kind, add func(e *bpf.RuntimeProcess, bias uint64)) *runtimes.Build {
		return &runtimes.Build{
			Entry: bpf.RuntimeProcess{Kinds: 1 << kind},
			Place: func(e *bpf.RuntimeProcess, bias uint64, _ bool) { add(e, bias) },
		}
	}
	python := at(bpf.RuntimePython, func(e *bpf.RuntimeProcess, bias uint64) { e.Python.Interpreter.Start += bias })
	ruby := at(bpf.RuntimeRuby, func(e *bpf.RuntimeProcess, bias uint64) { e.Ruby.Interpreter.Start += bias })
	java := at(bpf.RuntimeHotSpot, func(e *bpf.RuntimeProcess, bias uint64) { e.Hotspot.Interpreter.Start += bias })
	java.Open = func(*bpf.RuntimeProcess, uint64, runtimes.Memory) (runtimes.Reader, error) { return &keeper{}, nil }
	v8 := at(bpf.RuntimeV8, func(e *bpf.RuntimeProcess, bias uint64) { e.V8.Interpreter.Start += bias })
	v8.Open = func(*bpf.RuntimeProcess, uint64, runtimes.Memory) (runtimes.Reader, error) { return &keeper{}, nil }
	type builds = map[runtimes.Kind]*runtimes.Build
	files := []builds{
		{},
		{bpf.RuntimePython: {Unknown: "python 99"}},
		{bpf.RuntimePython: python, bpf.RuntimeV8: v8},
		{bpf.RuntimeRuby: ruby},
		{bpf.RuntimeHotSpot: java},
		{bpf.RuntimePython: python},
	}
	for _, order := range [][]int{{0, 1, 2, 3, 4, 5}, {0, 4, 3, 2, 5, 1}} {
		p := programs{programs: map[uint64]bpf.RuntimeProgram{}}
		tracker := NewTracker(&p)
		var mappings []process.Mapping
		for _, i := range order {
			f := new(process.File)
			is := file{builds: files[i], imaged: true, segments: []elffile.Segment{{FileSize: 0x1000}}, image: &elfImage{dynamic: 0x100, RuntimeFile: bpf.RuntimeFile{Hash: uint64(i)}}}
			if i == 0 {
				is.image = &elfImage{program: true, libraries: 0x3008, key: 9}
			}
			tracker.files[weak.Make(f)] = is
			mappings = append(mappings, process.Mapping{Kind: process.KindFile, File: f, Start: 0x1000 * uint64(i)})
		}
		for n := range mappings {
			tracker.Mapped(5, 7, mappings[:n+1])
		}
		want := bpf.RuntimeProcess{Image: 7, Kinds: 1<<bpf.RuntimePython | 1<<bpf.RuntimeV8 | 1<<bpf.RuntimeHotSpot | 1<<bpf.RuntimeRuby}
		want.Python.Interpreter.Start, want.V8.Interpreter.Start = 0x2000, 0x2000
		want.Ruby.Interpreter.Start, want.Hotspot.Interpreter.Start = 0x3000, 0x4000
		if p.last != want {
			t.Errorf("files in order %v: got entry %+v, want %+v", order, p.last, want)
		}
		inPython, inRuby := p.programs[runtimes.Sum(9, uint64(bpf.RuntimePython))], p.programs[runtimes.Sum(9, uint64(bpf.RuntimeRuby))]
		if len(p.programs) != 2 || inPython.Library.Hash != 2 || inRuby.Library.Hash != 3 {
			t.Errorf("files in order %v: got programs %+v, want one for Python and one for Ruby", order, p.programs)
		}
		now := uint64(math.MaxUint64)
		inJava, inV8 := tracker.Reader(5, bpf.RuntimeHotSpot, now), tracker.Reader(5, bpf.RuntimeV8, now)
		if inJava == nil || inV8 == nil || inJava == inV8 || tracker.Reader(5, bpf.RuntimePython, now) != nil {
			t.Errorf("files in order %v: got readers %v and %v, want one for each runtime that needs one", order, inJava, inV8)
		}
		tracker.Forget(5)
		if len(tracker.readers) != 0 {
			t.Errorf("got readers %v of a process that has ended, want none", tracker.readers)
		}
	}
}

// An entry with words that depend on the address in another way is not used for other processes.
func TestAddressesOf(t *testing.T) {
	for name, place := range map[string]func(e *bpf.RuntimeProcess, bias uint64){
		"doubled":  func(e *bpf.RuntimeProcess, bias uint64) { e.V8.Interpreter.Start += 2 * bias },
		"identity": func(e *bpf.RuntimeProcess, bias uint64) { e.Image += bias },
		"too many": func(e *bpf.RuntimeProcess, bias uint64) {
			for i := range e.Hotspot.Heaps {
				e.Hotspot.Heaps[i].Low += bias
				e.Hotspot.Heaps[i].High += bias
				e.Hotspot.Heaps[i].Segments += bias
			}
		},
	} {
		b := &runtimes.Build{Place: func(e *bpf.RuntimeProcess, bias uint64, _ bool) { place(e, bias) }}
		if _, _, err := addressesOf(b, false); !errors.Is(err, errNoProgram) {
			t.Errorf("%s: got error %v, want %v", name, err, errNoProgram)
		}
	}
}
