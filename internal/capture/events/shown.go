package events

import (
	"bytes"
	"strconv"

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
