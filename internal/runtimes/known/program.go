package known

import (
	"cmp"
	"debug/elf"
	"encoding/binary"
	"errors"
	"log/slog"
	"slices"
	"unsafe"
	"weak"

	"fulgur/internal/bpf"
	"fulgur/internal/process"
	"fulgur/internal/runtimes"
	"fulgur/internal/symbols/elffile"
)

// programRuntime is a program, and a runtime of its processes.
type programRuntime struct {
	file weak.Pointer[process.File]
	kind runtimes.Kind
}

// programState says how the kernel side recognizes a program's processes with a runtime.
type programState struct {
	library weak.Pointer[process.File] // the file that has the runtime
	glibc   bool                       // a process of the program has mapped glibc
	entry   *bpf.RuntimeProgram        // nil if it cannot recognize them
}

// Begins prepares for a process that has just started with the given mappings, and is about to
// map libraries: the kernel side reads its frames from the first sample on. [Tracker.Mapped] must
// be called afterwards.
func (t *Tracker) Begins(mappings []process.Mapping, libraries []*process.File) {
	if t == nil {
		return
	}
	files := append(process.Files(mappings), libraries...)
	glibc := slices.ContainsFunc(files, func(f *process.File) bool { return t.file(f).glibc })
	added := map[runtimes.Kind]bool{}
	for _, f := range files {
		for kind, build := range t.file(f).builds {
			if !added[kind] && build.Unknown == "" {
				t.addProgram(files, kind, mapped{build: build, file: f}, glibc)
				added[kind] = true
			}
		}
	}
}

// starts reports whether f is a program that the kernel side can recognize.
func (t *Tracker) starts(f *process.File) bool {
	for kind := range All {
		if t.programs[programRuntime{weak.Make(f), kind}].entry != nil {
			return true
		}
	}
	return false
}

// addProgram adds the program among the files that a process maps to the kernel side's map, with
// its runtime in one of the files.
func (t *Tracker) addProgram(files []*process.File, kind runtimes.Kind, has mapped, glibc bool) {
	if has.build.Unknown != "" || has.build.Open != nil {
		return
	}
	for _, f := range files {
		program := t.image(f)
		if program == nil || !program.program {
			continue
		}
		key, from := programRuntime{weak.Make(f), kind}, weak.Make(has.file)
		is := t.programs[key]
		// The loader may map glibc after the library.
		if is.library != from || glibc && !is.glibc {
			is = programState{library: from, glibc: glibc}
			if found := t.image(has.file); found != nil {
				p, err := newProgram(program, found, has.build, glibc)
				if err == nil {
					is.entry = &p
				}
				slog.Debug("program with a runtime", "path", f.Path, "library", has.file.Path, "error", err)
			}
			t.programs[key] = is
		}
		if is.entry != nil {
			t.failure = cmp.Or(t.failure, t.processes.PutProgram(runtimes.Sum(program.key, uint64(kind)), *is.entry))
		}
		return
	}
}

// image returns the image of f, from the cache if possible, or nil.
func (t *Tracker) image(f *process.File) *elfImage {
	is := t.file(f)
	if !is.imaged {
		image, err := readImage(f)
		if err == nil {
			is.image = &image
		}
		is.imaged = true
		t.files[weak.Make(f)] = is
	}
	return is.image
}

// errNoProgram means that a file is not a program that the kernel side can recognize.
var errNoProgram = errors.New("not a program that starts a runtime")

// elfImage is what the kernel side needs to recognize a mapped file.
type elfImage struct {
	bpf.RuntimeFile
	dynamic   uint64 // link-time address of the dynamic section, or 0
	libraries uint64 // of the word for the debugger's list of libraries (DT_DEBUG), or 0
	program   bool   // the file is a program, not a library
	// The key of the program, from which those of runtime_programs derive, and the end of its code.
	key, end uint64
}

// readImage reads the image of a file.
func readImage(f *process.File) (is elfImage, err error) {
	e, err := f.ELF()
	if err != nil {
		return is, err
	}
	if e.WordSize() != 8 {
		return is, errNoProgram
	}
	if is.Head, is.Hash, err = readHead(e); err != nil {
		return is, err
	}
	if err := is.readDynamic(e); err != nil {
		return is, err
	}
	is.program = e.Type() == elf.ET_EXEC || is.libraries != 0
	is.key, is.end = programKey(e.Segments())
	return is, nil
}

// readHead returns the link-time address of a file's start, and the hash of its first bytes.
func readHead(e *elffile.File) (addr, hash uint64, err error) {
	for _, s := range e.Segments() {
		if s.Type != elf.PT_LOAD || s.Offset != 0 || s.FileSize < bpf.ProgramHead || s.Flags&elf.PF_W != 0 {
			continue
		}
		b, err := e.Bytes(0, bpf.ProgramHead, "the start of a program")
		if err != nil {
			return 0, 0, err
		}
		return s.Addr, hashOf(b), nil
	}
	return 0, 0, errNoProgram
}

// hashOf returns the hash of bytes that program_hash() of bpf/program.h computes.
func hashOf(b []byte) uint64 {
	words := make([]uint64, len(b)/8)
	for i := range words {
		words[i] = binary.NativeEndian.Uint64(b[8*i:])
	}
	return runtimes.Sum(0, words...)
}

// readDynamic finds the dynamic section, and in programs DT_DEBUG, which linkers only add there.
func (is *elfImage) readDynamic(e *elffile.File) error {
	entries, err := e.Dynamic()
	if err != nil || len(entries) == 0 {
		return err
	}
	is.dynamic = entries[0].Addr
	for _, entry := range entries {
		if entry.Tag == elf.DT_DEBUG {
			is.libraries = entry.Addr + 8
		}
	}
	return nil
}

// programKey returns the key of a program, and the link-time address of the
// end of its code. The kernel's load_elf_binary() computes the same addresses of segments.
func programKey(segments []elffile.Segment) (key, endCode uint64) {
	var startData, endData uint64
	for _, s := range segments {
		if s.Type != elf.PT_LOAD {
			continue
		}
		end := s.Addr + s.FileSize
		startData, endData = max(startData, s.Addr), max(endData, end)
		if s.Flags&elf.PF_X != 0 {
			endCode = max(endCode, end)
		}
	}
	return runtimes.Sum(0, startData-endCode, endData-endCode), endCode
}

// newProgram returns the kernel side's entry for processes that run program and map library, which
// has the given build. They are the same if the program itself has the runtime.
func newProgram(program, library *elfImage, build *runtimes.Build, glibc bool) (p bpf.RuntimeProgram, err error) {
	if build.Open != nil {
		return p, errNoProgram // the entry depends on the memory of the process
	}
	p = bpf.RuntimeProgram{End: program.end, Program: program.RuntimeFile}
	if library != program {
		if program.libraries == 0 || library.dynamic == 0 {
			return p, errNoProgram
		}
		p.Libraries, p.Dynamic, p.Library = program.libraries, library.dynamic, library.RuntimeFile
	}
	p.Process, p.Addresses, err = addressesOf(build, glibc)
	return p, err
}

// addressesOf returns the entry of a build with link-time addresses, and which words of it are
// addresses.
func addressesOf(build *runtimes.Build, glibc bool) (entry bpf.RuntimeProcess, addresses [bpf.ProgramAddresses]uint8, err error) {
	type words [unsafe.Sizeof(entry) / 8]uint64
	const moved = 1 << 12
	entry, other := build.Entry, build.Entry
	build.Place(&entry, 0, glibc)
	build.Place(&other, moved, glibc)
	n := 0
	placed := (*words)(unsafe.Pointer(&other))
	for i, word := range (*words)(unsafe.Pointer(&entry)) {
		switch {
		case placed[i] == word:
		case placed[i]-word != moved || i == 0 || n == len(addresses):
			return entry, addresses, errNoProgram
		default:
			addresses[n] = uint8(i)
			n++
		}
	}
	return entry, addresses, nil
}
