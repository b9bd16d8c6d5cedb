package tracefs

import (
	"fmt"
	"strconv"
	"strings"
)

// Format describes the record of a tracepoint.
type Format struct {
	// ID is the tracepoint's number, the config of its perf event.
	ID uint64
	// Fields are the fields of the record, without those that all tracepoints have.
	Fields []Field
}

// Field is a field of a tracepoint's record.
type Field struct {
	// Name is its name, and Type its type in C, such as "char[16]" or "__data_loc char[]".
	Name, Type string
	// Offset and Size are in bytes.
	Offset, Size int
	Signed       bool
}

// ParseFormat parses a file tracefs/events/GROUP/NAME/format, see the kernel's
// Documentation/trace/events.rst.
func ParseFormat(text string) (Format, error) {
	var f Format
	found := false
	for line := range strings.SplitSeq(text, "\n") {
		if id, ok := strings.CutPrefix(line, "ID: "); ok {
			n, err := strconv.ParseUint(strings.TrimSpace(id), 10, 32)
			if err != nil {
				return f, fmt.Errorf("the format of a tracepoint has the ID %q", id)
			}
			f.ID, found = n, true
			continue
		}
		declared, ok := strings.CutPrefix(strings.TrimSpace(line), "field:")
		if !ok {
			continue
		}
		field, err := parseField(declared)
		if err != nil {
			return f, err
		}
		if !strings.HasPrefix(field.Name, "common_") {
			f.Fields = append(f.Fields, field)
		}
	}
	if !found {
		return f, fmt.Errorf("the format of a tracepoint has no ID")
	}
	return f, nil
}

// maxOffset is the size of the largest record, PERF_MAX_TRACE_SIZE.
const maxOffset = 8192

// parseField parses "char prev_comm[16];	offset:8;	size:16;	signed:0;".
func parseField(s string) (Field, error) {
	parts := strings.Split(s, ";")
	declared := strings.TrimSpace(parts[0])
	numbers := map[string]int{}
	for _, part := range parts[1:] {
		name, value, ok := strings.Cut(strings.TrimSpace(part), ":")
		if !ok {
			continue
		}
		n, err := strconv.Atoi(value)
		if err != nil || n < 0 || n > maxOffset {
			return Field{}, fmt.Errorf("a field of a tracepoint has the %s %q", name, value)
		}
		numbers[name] = n
	}
	f := Field{Offset: numbers["offset"], Size: numbers["size"], Signed: numbers["signed"] != 0}
	// The name is the last word, but for the length of an array.
	array := ""
	if i := strings.IndexByte(declared, '['); i >= 0 && strings.HasSuffix(declared, "]") && !strings.Contains(declared[i:], " ") {
		declared, array = declared[:i], declared[i:]
	}
	i := strings.LastIndexAny(declared, " *")
	f.Name = declared[i+1:]
	f.Type = strings.TrimSpace(declared[:i+1]) + array
	if f.Name == "" || i < 0 {
		return f, fmt.Errorf("the field %q of a tracepoint has no name", s)
	}
	return f, nil
}
