// Package golabels finds the labels that Go programs give to goroutines
// ([runtime/pprof.SetGoroutineLabels]), so that the kernel side can read them.
//
// The thread-local g is the goroutine that runs, or the thread's own one while the runtime or C
// code runs. In both cases, g.m.curg.labels are the labels. The offsets of m and curg are from
// runtime2.go of each version of Go. The kernel side checks them: the m of curg must be the one
// that led to it. The other offsets are in the program's code, even if it was stripped: the offset
// of labels in the function that sets them, and the offset of g in gogo.
package golabels

import (
	"debug/buildinfo"
	"debug/elf"
	"encoding/binary"
	"go/version"

	"fulgur/internal/bpf"
	"fulgur/internal/symbols/elffile"
	"fulgur/internal/symbols/symbolize"
)

// Functions of the runtime. Programs that cannot set labels lack the first.
const (
	setLabels = "runtime/pprof.runtime_setProfLabel"
	setG      = "gogo"
)

// maxCode limits the code that is read of a function, in bytes.
const maxCode = 256

// Detect returns the kernel side's entry for processes that run f, except [bpf.LabelProcess.Image].
// It returns nil if f cannot set labels, or was built with a version of Go before 1.18.
func Detect(f *elffile.File) (*bpf.LabelProcess, error) {
	if f.Section(".go.buildinfo") == nil || f.WordSize() != 8 {
		return nil, nil
	}
	info, err := buildinfo.Read(f.Reader())
	if err != nil {
		return nil, err
	}
	if version.Compare(info.GoVersion, "go1.18") < 0 {
		return nil, nil // or a development version
	}
	at := map[string]uint64{}
	if err := symbolize.GoFunctions(f, func(fn symbolize.GoFunction) bool {
		if string(fn.Name) == setLabels || string(fn.Name) == setG {
			at[string(fn.Name)] = fn.Start
		}
		return len(at) < 2
	}); err != nil || at[setLabels] == 0 {
		return nil, err
	}
	entry := &bpf.LabelProcess{Current: 192, Kind: uint32(bpf.LabelsGoSlice)}
	if version.Compare(info.GoVersion, "go1.25") >= 0 {
		entry.Current = 184
	}
	if version.Compare(info.GoVersion, "go1.24") < 0 {
		entry.Kind = uint32(bpf.LabelsGoMap)
	}
	code, err := function(f, at[setLabels])
	if err != nil {
		return nil, err
	}
	switch f.Machine() {
	case elf.EM_X86_64:
		entry.Labels = storedX86(code)
		if code, err = function(f, at[setG]); err != nil {
			return nil, err
		}
		entry.ThreadOffset = threadOffset(code)
		if entry.ThreadOffset == 0 {
			return nil, f.Errorf(0, "unknown code of %s of %s", setG, info.GoVersion)
		}
	case elf.EM_AARCH64:
		entry.Labels = storedARM64(code)
	default:
		return nil, nil
	}
	if entry.Labels == 0 {
		return nil, f.Errorf(0, "unknown code of %s of %s", setLabels, info.GoVersion)
	}
	return entry, nil
}

// function returns the code at an address, up to maxCode bytes.
func function(f *elffile.File, addr uint64) ([]byte, error) {
	at, ok := f.Offset(addr)
	if !ok {
		return nil, f.Errorf(0, "no contents at address %#x", addr)
	}
	n := min(maxCode, f.Size()-int64(at))
	return f.Bytes(int64(at), uint64(n), "Go function")
}

// The range of plausible offsets of labels in runtime.g.
const minLabels, maxLabels = 256, 512

// storedX86 returns the offset of the first plausible store in code, or 0. With the race detector,
// any register may hold the labels.
func storedX86(code []byte) uint16 {
	for i := 0; i+7 <= len(code); i++ {
		// mov reg, disp32(reg)
		if code[i]&^5 != 0x48 || code[i+1] != 0x89 || code[i+2]&0xc0 != 0x80 || code[i+2]&7 == 4 {
			continue
		}
		if n := binary.LittleEndian.Uint32(code[i+3:]); n >= minLabels && n < maxLabels && n%8 == 0 {
			return uint16(n)
		}
	}
	return 0
}

// storedARM64 returns the offset of the first plausible store in code, or 0.
func storedARM64(code []byte) uint16 {
	for ; len(code) >= 4; code = code[4:] {
		word := binary.LittleEndian.Uint32(code)
		if word&0xffc00000 != 0xf9000000 { // str reg, [reg, #imm]
			continue
		}
		if n := word >> 10 & 0xfff * 8; n >= minLabels && n < maxLabels {
			return uint16(n)
		}
	}
	return 0
}

// threadOffset returns the offset of g from the thread pointer, to which the code of gogo for
// amd64 stores rdx first, or 0.
func threadOffset(code []byte) int32 {
	signed := func(i int) int32 { return int32(binary.LittleEndian.Uint32(code[i:])) }
	for i := 0; i+11 <= len(code); i++ {
		switch {
		// mov %rdx, %fs:disp32
		case code[i] == 0x64 && code[i+1] == 0x48 && code[i+2] == 0x89 && code[i+3] == 0x14 && code[i+4] == 0x25:
			return signed(i + 5)
		// mov $imm32, %rcx; mov %rdx, %fs:(%rcx)
		case code[i] == 0x48 && code[i+1] == 0xc7 && code[i+2] == 0xc1 && string(code[i+7:i+11]) == "\x64\x48\x89\x11":
			return signed(i + 3)
		}
	}
	return 0
}
