package events

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/cilium/ebpf/btf"

	"fulgur/internal/bpf"
	"fulgur/internal/linux/tracefs"
)

// Field is the place where the programs find a field of an event, see bpf/field.h.
type Field = bpf.CountField

// Fields finds the fields of an attach point.
type Fields interface {
	// Number returns the field of a name, such as "arg2" or "prev_pid". The error lists
	// the existing fields.
	Number(name string) (Field, error)
	// Text returns the field as a string.
	Text(name string) (Field, error)
	// Shown returns the known fields that can be shown, as strings if they are.
	Shown() []Shown
}

// unknownField is the error for a field that does not exist.
func unknownField(name string, names []string) error {
	if len(names) == 0 {
		return fmt.Errorf("no field %q: the event has no fields", name)
	}
	return fmt.Errorf("no field %q; the fields are %s", name, strings.Join(names, ", "))
}

// record has the fields of a tracepoint's record.
type record struct {
	fields []tracefs.Field
	// userPointers is set if pointers lead to user memory, as in system calls.
	userPointers bool
}

func (r record) find(name string) (tracefs.Field, error) {
	var names []string
	for _, f := range r.fields {
		if f.Name == name {
			return f, nil
		}
		names = append(names, f.Name)
	}
	return tracefs.Field{}, unknownField(name, names)
}

// inMemory returns the pointer and the offset of a field such as "waiters+8", a word in user
// memory.
func inMemory(name string) (pointer string, offset int64, ok bool) {
	pointer, after, ok := strings.Cut(name, "+")
	if !ok {
		return "", 0, false
	}
	offset, err := strconv.ParseInt(after, 10, 16)
	return pointer, offset, err == nil
}

// Number implements [Fields].
func (r record) Number(name string) (Field, error) {
	if pointer, offset, ok := inMemory(name); ok && r.userPointers {
		f, err := r.find(pointer)
		return Field{From: uint8(bpf.CountFieldFromFIELD_USER), Offset: uint32(f.Offset), Displacement: offset, Size: 8}, err
	}
	f, err := r.find(name)
	switch {
	case err != nil:
		return Field{}, err
	case f.Size != 1 && f.Size != 2 && f.Size != 4 && f.Size != 8 || strings.HasSuffix(f.Type, "]"):
		return Field{}, fmt.Errorf("field %s is not a number: its type is %s", name, f.Type)
	}
	if r.userPointers && f.Type == "int" {
		f.Size, f.Signed = 4, true // each argument of a system call is stored as a word
	}
	return Field{Offset: uint32(f.Offset), Size: uint16(f.Size), IsSigned: flag(f.Signed)}, nil
}

// isPointer reports whether a field has an address, such as that of a string.
func (r record) isPointer(name string) bool {
	f, err := r.find(name)
	return err == nil && strings.HasSuffix(f.Type, "*")
}

// Text implements [Fields].
func (r record) Text(name string) (Field, error) {
	f, err := r.find(name)
	if err != nil {
		return Field{}, err
	}
	text := Field{Offset: uint32(f.Offset), Size: uint16(f.Size)}
	isChar := strings.Contains(f.Type, "char")
	switch {
	case strings.HasPrefix(f.Type, "__data_loc") && isChar && f.Size == 4:
		text.String = uint8(bpf.CountFieldStringFIELD_DATA_LOC)
	case strings.HasPrefix(f.Type, "__rel_loc") && isChar && f.Size == 4:
		text.String = uint8(bpf.CountFieldStringFIELD_REL_LOC)
	case strings.HasSuffix(f.Type, "]") && isChar:
		text.String = uint8(bpf.CountFieldStringFIELD_ARRAY)
	case strings.HasSuffix(f.Type, "*") && isChar && f.Size == 8 && r.userPointers:
		text.String = uint8(bpf.CountFieldStringFIELD_USER_POINTER)
	case strings.HasSuffix(f.Type, "*") && isChar && f.Size == 8:
		text.String = uint8(bpf.CountFieldStringFIELD_KERNEL_POINTER)
	default:
		return Field{}, fmt.Errorf("field %s is not a string: its type is %s", name, f.Type)
	}
	return text, nil
}

func flag(set bool) uint8 {
	if set {
		return 1
	}
	return 0
}

// Shown implements [Fields]. It leaves out the number of a system call, which the
// tracepoint's name says.
func (r record) Shown() (all []Shown) {
	for _, of := range r.fields {
		if of.Name == "__syscall_nr" {
			continue
		}
		s := Shown{Name: of.Name, form: decimal}
		var err error
		if s.field, err = r.Text(of.Name); err != nil || r.userPointers && !strings.HasPrefix(of.Type, "const ") {
			s.field, err = r.Number(of.Name) // a system call has yet to write the string
		}
		if err != nil {
			continue
		}
		switch {
		case strings.HasSuffix(of.Type, "*"):
			s.form = hexadecimal
		case r.userPointers:
			s.form = word // mmap returns an address
		}
		all = append(all, s)
	}
	return all
}

// call has the arguments or the return value of a function, by the calling convention.
type call struct {
	kernel    bool
	returning bool
	// proto is the function's type according to the kernel's BTF; nil if unknown.
	proto *btf.FuncProto
}

// retval is the field with the value that a function returns.
const retval = "retval"

// maxArgument is the highest argument: there are no functions with more.
const maxArgument = 19

// names returns the fields for an error.
func (c call) names() []string {
	if c.returning {
		return []string{retval}
	}
	if c.proto == nil {
		return []string{"arg0 to arg" + fmt.Sprint(maxArgument)}
	}
	var names []string
	for i, p := range c.proto.Params {
		name := fmt.Sprintf("arg%d", i)
		if p.Name != "" {
			name += " (" + p.Name + ")"
		}
		names = append(names, name)
	}
	return names
}

// find returns the field of a name, and its type if that is known.
func (c call) find(name string) (Field, btf.Type, error) {
	if c.returning {
		if name != retval {
			return Field{}, nil, unknownField(name, c.names())
		}
		f := Field{Offset: returnRegister, Size: 8, IsSigned: 1}
		if c.proto == nil {
			return f, nil, nil
		}
		return f, c.proto.Return, nil
	}
	index, ok := argument(name)
	if !ok && c.proto != nil {
		for i, p := range c.proto.Params {
			if p.Name == name && name != "" {
				index, ok = i, true
			}
		}
	}
	if !ok || c.proto != nil && index >= len(c.proto.Params) {
		return Field{}, nil, unknownField(name, c.names())
	}
	f := Field{Size: 8, IsSigned: 1}
	if index < len(argumentRegisters) {
		f.Offset = argumentRegisters[index]
	} else {
		// On the stack, above the return address if the machine has it there.
		f.From = uint8(bpf.CountFieldFromFIELD_USER)
		if c.kernel {
			f.From = uint8(bpf.CountFieldFromFIELD_KERNEL)
		}
		f.Offset = stackRegister
		f.Displacement = int64(firstOnStack + 8*(index-len(argumentRegisters)))
	}
	if c.proto == nil {
		return f, nil, nil
	}
	return f, c.proto.Params[index].Type, nil
}

// argument returns the index of an argument, such as 2 for "arg2".
func argument(name string) (int, bool) {
	var index int
	if n, err := fmt.Sscanf(name, "arg%d", &index); n != 1 || err != nil || index < 0 || index > maxArgument || fmt.Sprintf("arg%d", index) != name {
		return 0, false
	}
	return index, true
}

// Number implements [Fields]. Without a type, a field is a signed word.
func (c call) Number(name string) (Field, error) {
	f, typ, err := c.find(name)
	if err != nil || typ == nil {
		return f, err
	}
	switch t := btf.UnderlyingType(typ).(type) {
	case *btf.Int:
		if t.Size > 8 {
			return Field{}, fmt.Errorf("field %s is not a number of at most 8 bytes", name)
		}
		f.Size, f.IsSigned = uint16(t.Size), flag(t.Encoding == btf.Signed)
	case *btf.Enum:
		f.Size, f.IsSigned = uint16(t.Size), flag(t.Signed)
	case *btf.Pointer:
		f.IsSigned = 0
	case *btf.Void:
		return Field{}, fmt.Errorf("the function returns no value")
	default:
		return Field{}, fmt.Errorf("field %s is not a number: its type is %s", name, t.TypeName())
	}
	return f, nil
}

// isPointer reports whether a field is known to have an address.
func (c call) isPointer(name string) bool {
	_, typ, err := c.find(name)
	if err != nil || typ == nil {
		return false
	}
	_, ok := btf.UnderlyingType(typ).(*btf.Pointer)
	return ok
}

// Text implements [Fields].
func (c call) Text(name string) (Field, error) {
	f, typ, err := c.find(name)
	if err != nil {
		return f, err
	}
	f.IsSigned = 0
	f.String = uint8(bpf.CountFieldStringFIELD_USER_POINTER)
	if !c.kernel {
		return f, nil
	}
	f.String = uint8(bpf.CountFieldStringFIELD_KERNEL_POINTER)
	if typ == nil {
		return f, nil
	}
	pointer, ok := btf.UnderlyingType(typ).(*btf.Pointer)
	if !ok {
		return Field{}, fmt.Errorf("field %s is not a string", name)
	}
	target := btf.UnderlyingType(pointer.Target)
	if i, ok := target.(*btf.Int); !ok || i.Size != 1 {
		return Field{}, fmt.Errorf("field %s is not a string", name)
	}
	return f, nil
}

// Shown implements [Fields]. Without the function's type, its arguments are unknown.
func (c call) Shown() (all []Shown) {
	if c.returning {
		f, err := c.Number(retval)
		if err != nil {
			return nil
		}
		return []Shown{{Name: retval, field: f, form: word}}
	}
	if c.proto == nil {
		return nil
	}
	for i, p := range c.proto.Params {
		name := fmt.Sprintf("arg%d", i)
		f, err := c.Number(name)
		if err != nil {
			continue
		}
		s := Shown{Name: cmp.Or(p.Name, name), field: f, form: decimal}
		if _, ok := btf.UnderlyingType(p.Type).(*btf.Pointer); ok {
			s.form = hexadecimal
			if text, err := c.Text(name); err == nil {
				s.field = text
			}
		}
		all = append(all, s)
	}
	return all
}
