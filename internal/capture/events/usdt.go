package events

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"fulgur/internal/bpf"
	"fulgur/internal/message/usage"
	"fulgur/internal/symbols/elffile"
	"fulgur/internal/symbols/rseq"
)

// The notes that describe USDT probes, see
// https://sourceware.org/systemtap/wiki/UserSpaceProbeImplementation.
const (
	usdtSection = ".note.stapsdt"
	usdtBase    = ".stapsdt.base"
	usdtName    = "stapsdt\x00"
	usdtType    = 3
	maxUSDT     = 16 << 20 // bytes of notes
)

// usdtNote is one of the places of a USDT probe.
type usdtNote struct {
	pc, base, semaphore      uint64
	provider, name, operands string
}

// FindUSDT returns the places of the USDT probe e in a file, none if the file lacks it. If
// before is not nil, the result has its Places, too, and may share them.
func FindUSDT(e Event, f *elffile.File, q Query, before *Probe) (*Probe, error) {
	p := &Probe{Event: e}
	if before != nil {
		p.Places = before.Places
	}
	sequences, err := rseq.Read(f)
	if err != nil {
		return nil, usage.Errorf("%s: %v", e, err)
	}
	p.elfs, p.sequences = []*elffile.File{f}, []*rseq.Sequences{sequences}
	if err := p.usdt(f, 0, q, &nearest{to: e.Group + ":" + e.Name}); err != nil {
		return nil, err
	}
	p.unite()
	return p, nil
}

// usdt finds USDT probes by their notes.
func (p *Probe) usdt(f *elffile.File, file int, q Query, similar *nearest) error {
	notes, err := usdtNotes(f)
	if err != nil {
		return usage.Errorf("%s: %v", p.Event, err)
	}
	// Prelinking moves code, and this section with it.
	moved := uint64(0)
	base := f.Section(usdtBase)
	isGlob := IsGlob(p.Event.Group + p.Event.Name)
	type place struct {
		name   string
		offset uint64
	}
	seen := map[place]bool{}
	for _, n := range parseUSDT(notes) {
		name := n.provider + ":" + n.name
		if !Match(p.Event.Group, n.provider) || !Match(p.Event.Name, n.name) {
			similar.add(name)
			continue
		}
		if base != nil && n.base != 0 {
			moved = base.Addr - n.base
		}
		offset, ok := f.Offset(n.pc + moved)
		if _, executable := f.Address(offset); !ok || !executable {
			p.LeaveOut(name, "its place is not in the file's code")
			continue
		}
		if seen[place{name, offset}] {
			continue // the hits of a place count once
		}
		seen[place{name, offset}] = true
		if code, err := f.Bytes(int64(offset), nopSize, "USDT probe"); err != nil || !isNop(f.Machine(), code) {
			p.LeaveOut(name, "its place has no NOP, so a breakpoint there could change the program's behavior")
			continue
		}
		if err := checkUSDT(f, n.pc+moved); err != nil {
			p.LeaveOut(name, err.Error())
			continue
		}
		point := Point{Name: name, File: file, Address: offset}
		if n.semaphore != 0 {
			if point.Semaphore, ok = f.Offset(n.semaphore + moved); !ok {
				p.LeaveOut(name, "its semaphore is not in the file")
				continue
			}
		}
		if err := p.add(point, q, operands(strings.Fields(strings.ReplaceAll(n.operands, ", ", ","))), isGlob); err != nil {
			return err
		}
	}
	return nil
}

// nopSize is the number of bytes that tell whether an instruction is a NOP.
const nopSize = 4

// isNop reports whether code begins with a NOP, as the place of every USDT probe does.
func isNop(machine elf.Machine, code []byte) bool {
	if machine == elf.EM_AARCH64 {
		return bytes.HasPrefix(code, []byte{0x1f, 0x20, 0x03, 0xd5})
	}
	code = bytes.TrimLeft(code, "\x66")
	return bytes.HasPrefix(code, []byte{0x90}) || bytes.HasPrefix(code, []byte{0x0f, 0x1f})
}

// parseUSDT returns the descriptions in a section of notes. It ends at the first that is
// malformed.
func parseUSDT(notes []byte) []usdtNote {
	const header = 12
	var list []usdtNote
	align := func(n uint32) uint64 { return (uint64(n) + 3) &^ 3 }
	for len(notes) >= header {
		nameSize, descSize := binary.LittleEndian.Uint32(notes), binary.LittleEndian.Uint32(notes[4:])
		kind := binary.LittleEndian.Uint32(notes[8:])
		end := header + align(nameSize) + align(descSize)
		if end > uint64(len(notes)) {
			break
		}
		name := notes[header : header+uint64(nameSize)]
		desc := notes[header+align(nameSize):][:descSize]
		notes = notes[end:]
		if kind != usdtType || string(name) != usdtName || len(desc) < 24 {
			continue
		}
		texts := bytes.SplitN(desc[24:], []byte{0}, 4)
		if len(texts) < 3 {
			continue
		}
		list = append(list, usdtNote{
			binary.LittleEndian.Uint64(desc), binary.LittleEndian.Uint64(desc[8:]), binary.LittleEndian.Uint64(desc[16:]),
			string(texts[0]), string(texts[1]), string(texts[2]),
		})
	}
	return list
}

// operands are the arguments of a USDT probe, such as "-4@%edi", "8@-16(%rbp)" or "4@$1".
type operands []string

func (o operands) names() []string {
	names := make([]string, len(o))
	for i := range o {
		names[i] = fmt.Sprintf("arg%d", i)
	}
	return names
}

// Number implements [Fields].
func (o operands) Number(name string) (Field, error) {
	i, ok := argument(name)
	if !ok || i >= len(o) {
		return Field{}, unknownField(name, o.names())
	}
	f, ok := parseOperand(o[i])
	if !ok {
		return Field{}, fmt.Errorf("field %s is at %s, which is not supported", name, o[i])
	}
	return f, nil
}

// Text implements [Fields].
func (o operands) Text(name string) (Field, error) {
	f, err := o.Number(name)
	if err == nil && f.Size != 8 {
		err = fmt.Errorf("field %s is not a string: it has %d bytes", name, f.Size)
	}
	f.String, f.IsSigned = uint8(bpf.CountFieldStringFIELD_USER_POINTER), 0
	return f, err
}

// Shown implements [Fields].
func (o operands) Shown() (all []Shown) {
	for _, name := range o.names() {
		if f, err := o.Number(name); err == nil {
			all = append(all, Shown{Name: name, field: f, form: word})
		}
	}
	return all
}

// parseOperand parses the place of an argument as the assembler writes it.
func parseOperand(s string) (Field, bool) {
	size, at, ok := strings.Cut(s, "@")
	n, err := strconv.Atoi(size)
	if !ok || err != nil {
		return Field{}, false
	}
	f := Field{IsSigned: flag(n < 0)}
	switch max(n, -n) {
	case 1, 2, 4, 8:
		f.Size = uint16(max(n, -n))
	default:
		return Field{}, false
	}
	if constant, isConstant := constantOf(at); isConstant {
		// Compilers write an unsigned -1 for the greatest number.
		if unused := 64 - 8*f.Size; f.IsSigned != 0 {
			constant = constant << unused >> unused
		} else {
			constant = int64(uint64(constant) << unused >> unused)
		}
		f.From, f.Displacement = uint8(bpf.CountFieldFromFIELD_CONSTANT), constant
		return f, true
	}
	if f.Offset, ok = register(at); ok {
		return f, true
	}
	f.From = uint8(bpf.CountFieldFromFIELD_USER)
	displacement, base, ok := memoryOperand(at)
	if !ok {
		return Field{}, false
	}
	if displacement != "" {
		if f.Displacement, err = strconv.ParseInt(displacement, 0, 32); err != nil {
			return Field{}, false
		}
	}
	f.Offset, ok = register(base)
	return f, ok
}

// constantOf parses an immediate operand: $5 on x86, 5 on arm64.
func constantOf(s string) (int64, bool) {
	n, err := strconv.ParseInt(strings.TrimPrefix(s, "$"), 0, 64)
	return n, err == nil
}

// memoryOperand splits disp(%reg), or [reg, disp] without its space.
func memoryOperand(s string) (displacement, base string, ok bool) {
	if inner, isARM := strings.CutPrefix(s, "["); isARM {
		inner, ok = strings.CutSuffix(inner, "]")
		base, displacement, _ = strings.Cut(inner, ",")
		return strings.TrimPrefix(displacement, "#"), base, ok
	}
	displacement, base, ok = strings.Cut(s, "(")
	if !ok {
		return "", "", false
	}
	base, ok = strings.CutSuffix(base, ")")
	return displacement, base, ok
}

// usdtNotes returns the notes that describe a file's USDT probes, nil if it has none.
func usdtNotes(f *elffile.File) ([]byte, error) {
	section := f.Section(usdtSection)
	if section == nil {
		return nil, nil
	}
	r, err := section.Open()
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(r, maxUSDT))
}

// shownUSDT is the number of USDT probes that an error names.
const shownUSDT = 5

// stripped continues an error about a function that was not found: that the files have no symbol tables, and
// which USDT probes they have instead. It returns "" if a file has one.
func (p *Probe) stripped() string {
	var names []string
	for i, f := range p.elfs {
		if f.HasStatic() || len(p.tables[i]) > 1 { // or its debug file was found
			return ""
		}
		notes, err := usdtNotes(f)
		if err != nil {
			continue // the error is about the function
		}
		for _, n := range parseUSDT(notes) {
			names = append(names, n.provider+":"+n.name)
		}
	}
	if len(p.elfs) == 0 {
		return ""
	}
	slices.Sort(names)
	names = slices.Compact(names)
	switch more := len(names) - shownUSDT; {
	case len(names) == 0:
		return ", which is stripped"
	case more > 0:
		return fmt.Sprintf(", which is stripped; it has USDT probes %s and %d more", strings.Join(names[:shownUSDT], ", "), more)
	}
	return ", which is stripped; it has USDT probes " + strings.Join(names, ", ")
}
