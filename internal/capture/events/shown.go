package events

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"fulgur/internal/bpf"
	"fulgur/internal/message/plain"
)

// Fields that are shown of a hit, see bpf/field.h.
const (
	firstShown = int(bpf.CountFieldLimitsFIELD_FIRST_SHOWN)
	maxShown   = int(bpf.CountFieldLimitsFIELD_SHOWN_FIELDS)
)

// ShownField returns the index of a shown field among the fields of a place.
func ShownField(shown int) uint32 { return uint32(firstShown + shown) }

// Shown is a field that is shown of each hit.
type Shown struct {
	Name  string
	field Field
	form  form
}

// ShowField is a field to show.
type ShowField struct {
	Name string
	// Text is set if the field is the address of a string, though its type is unknown.
	Text bool
}

// asText follows the name of a field whose string is shown, as in perf probe.
const asText = ":string"

// ParseShow parses a list of fields to show, such as "arg1,field:count,arg0:string".
func ParseShow(list string) (all []ShowField, err error) {
	if list == "" {
		return nil, nil
	}
	for given := range strings.SplitSeq(list, ",") {
		name, text := strings.CutSuffix(FieldName(strings.TrimSpace(given)), asText)
		switch {
		case name == "":
			return nil, fmt.Errorf("%q: the name of a field is missing", list)
		case slices.ContainsFunc(all, func(f ShowField) bool { return f.Name == name }):
			return nil, fmt.Errorf("%q: field %s is given twice", list, name)
		case len(all) == maxShown:
			return nil, fmt.Errorf("%q: more than %d fields", list, maxShown)
		}
		all = append(all, ShowField{name, text})
	}
	return all, nil
}

// shown returns the fields of q.Show.
func (q Query) shown(fields Fields) (all []Shown, err error) {
	if len(q.Show) == 0 {
		return nil, nil
	}
	known := fields.Shown()
	for _, f := range q.Show {
		i := slices.IndexFunc(known, func(s Shown) bool { return s.Name == f.Name })
		s := Shown{Name: f.Name, form: word}
		switch {
		case f.Text:
			s.field, err = fields.Text(f.Name)
		case i >= 0:
			s = known[i]
		default: // an argument whose type is unknown, or whose name in the source is another
			s.field, err = fields.Number(f.Name)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// ShownValues returns the texts of the fields of a hit, as bpf/field.h reads them: texts has a bit for each field
// with a text. text returns the text of a field, which is the nth one. A string that could not be read is shown as
// its address.
func ShownValues(shown []Shown, texts uint32, numbers []uint64, text func(field, nth int) []byte) []string {
	all := make([]string, len(shown))
	n := 0
	for i, f := range shown {
		if texts>>i&1 == 0 {
			all[i] = f.Number(numbers[i])
			continue
		}
		all[i] = f.Text(text(i, n))
		n++
	}
	return all
}

// form is the format of a number.
type form uint8

const (
	decimal form = iota
	hexadecimal
	// word is a number that may be an address.
	word
)

// smallWord is the limit below which a word is not an address: programs map nothing there,
// and the addresses of the kernel are negative and far below.
const smallWord = 1 << 32

// Number returns the text of a number.
func (s Shown) Number(n uint64) string {
	if s.form == hexadecimal || s.form == word && s.field.Size == 8 && (int64(n) >= smallWord || int64(n) <= -smallWord) {
		return "0x" + strconv.FormatUint(n, 16)
	}
	if s.field.IsSigned != 0 {
		return strconv.FormatInt(int64(n), 10)
	}
	return strconv.FormatUint(n, 10)
}

// Text returns a string that the programs read, which ends with a NUL, as
// [plain.Terminal] shows it. If it may be longer than they read, it ends with "…".
func (Shown) Text(b []byte) string {
	end := bytes.IndexByte(b, 0)
	if end < 0 {
		end = len(b)
	}
	text := plain.Terminal(string(b[:end]))
	if end >= len(b)-1 {
		text += "…"
	}
	return text
}
