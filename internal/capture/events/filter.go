package events

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"fulgur/internal/bpf"
)

// Limits of a filter.
const (
	maxTerms  = int(bpf.CountFieldLimitsFIELD_MAX_TERMS)
	maxText   = int(bpf.CountFieldLimitsFIELD_MAX_TEXT) - 2 // a longer string differs in the next byte
	maxTokens = 8 * maxTerms
)

// Ends of a filter.
const (
	pass = uint8(bpf.CountFieldLimitsFIELD_FILTER_PASS)
	fail = uint8(bpf.CountFieldLimitsFIELD_FILTER_FAIL)
)

// Filter is a condition for the fields of an event.
type Filter struct{ terms []term }

// term is a comparison. yes and no are the next terms, or the end.
type term struct {
	field   string
	compare bpf.CountFieldCompare
	isText  bool
	text    string
	// number is the value of a number, which is below 0 if negative is set.
	number   uint64
	negative bool
	yes, no  uint8
}

// compares are the operators, the longest first.
var compares = []struct {
	text string
	as   bpf.CountFieldCompare
}{
	{"==", bpf.CountFieldCompareCOMPARE_EQUAL},
	{"!=", bpf.CountFieldCompareCOMPARE_NOT_EQUAL},
	{"<=", bpf.CountFieldCompareCOMPARE_LESS_EQUAL},
	{">=", bpf.CountFieldCompareCOMPARE_GREATER_EQUAL},
	{"<", bpf.CountFieldCompareCOMPARE_LESS},
	{">", bpf.CountFieldCompareCOMPARE_GREATER},
}

// ParseFilter parses a filter such as
//
//	ret > 0 && (comm == "bash" || fd != 2)
//
// A comparison has a field, one of ==, !=, <, <=, >, >=, and an integer or a string.
// Strings can only be compared for equality. && binds more strongly than ||, and !
// negates what follows. "field:NAME" is the same as "NAME". An empty text is the filter
// that all hits pass.
func ParseFilter(s string) (Filter, error) {
	var f Filter
	words, err := tokens(s)
	if err != nil || len(words) == 0 {
		return f, err
	}
	p := parser{filter: &f}
	for len(words) > 0 {
		var err error
		if words, err = p.next(words); err != nil {
			return Filter{}, fmt.Errorf("filter: %w", err)
		}
	}
	if err := p.end(); err != nil {
		return Filter{}, fmt.Errorf("filter: %w", err)
	}
	return f, nil
}

// tokens splits a filter into words, operators and parentheses.
func tokens(s string) ([]string, error) {
	var list []string
	for s = strings.TrimLeft(s, " \t\n"); s != ""; s = strings.TrimLeft(s, " \t\n") {
		n := 0
		switch {
		case s[0] == '"':
			for n = 1; n < len(s) && s[n] != '"'; n++ {
				if s[n] == '\\' {
					n++
				}
			}
			n++
			if n > len(s) {
				return nil, errors.New("filter: a string does not end")
			}
		case strings.HasPrefix(s, "&&"), strings.HasPrefix(s, "||"), strings.HasPrefix(s, "=="), strings.HasPrefix(s, "!="), strings.HasPrefix(s, "<="), strings.HasPrefix(s, ">="):
			n = 2
		case strings.IndexByte("()!<>", s[0]) >= 0:
			n = 1
		default:
			for n < len(s) && strings.IndexByte(" \t\n()!<>=&|\"", s[n]) < 0 {
				n++
			}
			if n == 0 {
				return nil, fmt.Errorf("filter: unexpected %q; write ==, && and ||", s[:1])
			}
		}
		list = append(list, s[:n])
		s = s[n:]
		if len(list) > maxTokens {
			return nil, errors.New("filter: it is too long")
		}
	}
	return list, nil
}

// exit is a branch of a term that has no target yet.
type exit struct {
	term int
	yes  bool
}

// operand is a part of the filter: its first term, and the exits where it holds or not.
type operand struct {
	first   int
	yes, no []exit
}

// parser is an operator-precedence parser. It emits the terms in order, so that branches
// lead forward.
type parser struct {
	filter    *Filter
	operands  []operand
	operators []string // "||", "&&", "!", "("
	// operand is set after an operand, when an operator must follow.
	operand bool
}

// next parses the first words and returns the others.
func (p *parser) next(words []string) ([]string, error) {
	word := words[0]
	if p.operand {
		switch word {
		case "&&", "||":
			for len(p.operators) > 0 && binds(p.operators[len(p.operators)-1]) >= binds(word) {
				p.apply()
			}
			p.operators = append(p.operators, word)
			p.operand = false
		case ")":
			for len(p.operators) > 0 && p.operators[len(p.operators)-1] != "(" {
				p.apply()
			}
			if len(p.operators) == 0 {
				return nil, errors.New("\")\" has no \"(\"")
			}
			p.operators = p.operators[:len(p.operators)-1]
		default:
			return nil, fmt.Errorf("unexpected %q; && or || must follow a comparison", word)
		}
		return words[1:], nil
	}
	if word == "(" || word == "!" {
		p.operators = append(p.operators, word)
		return words[1:], nil
	}
	if len(words) < 3 {
		return nil, fmt.Errorf("%q is not a comparison, such as ret > 0", strings.Join(words, " "))
	}
	t, err := parseTerm(word, words[1], words[2])
	if err != nil {
		return nil, err
	}
	if len(p.filter.terms) == maxTerms {
		return nil, fmt.Errorf("more than %d comparisons", maxTerms)
	}
	at := len(p.filter.terms)
	p.filter.terms = append(p.filter.terms, t)
	p.operands = append(p.operands, operand{at, []exit{{at, true}}, []exit{{at, false}}})
	p.operand = true
	return words[3:], nil
}

// binds returns how strongly an operator binds.
func binds(operator string) int {
	return map[string]int{"(": 0, "||": 1, "&&": 2, "!": 3}[operator]
}

// apply applies the last operator.
func (p *parser) apply() {
	operator := p.operators[len(p.operators)-1]
	p.operators = p.operators[:len(p.operators)-1]
	last := len(p.operands) - 1
	b := p.operands[last]
	if operator == "!" {
		p.operands[last] = operand{b.first, b.no, b.yes}
		return
	}
	a := p.operands[last-1]
	p.operands = p.operands[:last]
	if operator == "&&" {
		p.lead(a.yes, uint8(b.first))
		p.operands[last-1] = operand{a.first, b.yes, append(a.no, b.no...)}
	} else {
		p.lead(a.no, uint8(b.first))
		p.operands[last-1] = operand{a.first, append(a.yes, b.yes...), b.no}
	}
}

// lead sets the target of exits.
func (p *parser) lead(exits []exit, to uint8) {
	for _, e := range exits {
		if e.yes {
			p.filter.terms[e.term].yes = to
		} else {
			p.filter.terms[e.term].no = to
		}
	}
}

// end completes the filter.
func (p *parser) end() error {
	if !p.operand {
		return errors.New("a comparison is missing at the end")
	}
	for len(p.operators) > 0 {
		if p.operators[len(p.operators)-1] == "(" {
			return errors.New("\")\" is missing")
		}
		p.apply()
	}
	p.lead(p.operands[0].yes, pass)
	p.lead(p.operands[0].no, fail)
	return nil
}

// fieldPrefix can precede the name of a field.
const fieldPrefix = "field:"

// FieldName returns the name of a field in a filter or a weight.
func FieldName(s string) string { return strings.TrimPrefix(s, fieldPrefix) }

func parseTerm(field, operator, value string) (term, error) {
	t := term{field: FieldName(field)}
	if strings.ContainsAny(field[:1], "0123456789-\"=<>&|)") {
		return t, fmt.Errorf("%q is not the name of a field: a comparison begins with the field", field)
	}
	known := false
	for _, c := range compares {
		if c.text == operator {
			t.compare, known = c.as, true
		}
	}
	if !known {
		return t, fmt.Errorf("%q is not one of ==, !=, <, <=, >, >=", operator)
	}
	if value[0] == '"' {
		text, err := strconv.Unquote(value)
		switch {
		case err != nil:
			return t, fmt.Errorf("%s is not a string", value)
		case len(text) > maxText || strings.ContainsRune(text, 0):
			return t, fmt.Errorf("the string %s is longer than %d bytes", value, maxText)
		case t.compare > bpf.CountFieldCompareCOMPARE_NOT_EQUAL:
			return t, fmt.Errorf("strings can be compared with == and != only, not with %s", operator)
		}
		t.isText, t.text = true, text
		return t, nil
	}
	if n, err := strconv.ParseUint(value, 0, 64); err == nil {
		t.number = n
		return t, nil
	}
	n, err := strconv.ParseInt(value, 0, 64)
	if err != nil {
		return t, fmt.Errorf("%s is not an integer or a string in double quotes", value)
	}
	t.number, t.negative = uint64(n), true
	return t, nil
}

// Empty reports whether all hits pass.
func (f Filter) Empty() bool { return len(f.terms) == 0 }

// layout are the fields of a place as the programs read them: the weight, the field of
// each term of the filter, and the fields to show.
type layout [bpf.CountFieldLimitsFIELD_PLACE_FIELDS]Field

// Query selects the fields to read at each hit.
type Query struct {
	Filter Filter
	// Weight is the field to sum, or Key the one to compare with another event's; "" for none.
	Weight, Key string
	// Shown is set to show each hit with its fields, and to distinguish attach points.
	Shown bool
	// Show are the fields to show if Shown is not set, see [ParseShow].
	Show []ShowField
	// ByPoint is set to distinguish attach points. PacedByPoint is set to distinguish them in
	// programs only, which count one of N hits of each.
	ByPoint, PacedByPoint bool
	// Calls is set to measure the calls of functions of programs. For the points of Go
	// functions, see [Probe.Go].
	Calls bool
}

// layout returns the layout of a place with the given fields, and the fields to show.
func (q Query) layout(fields Fields) (l layout, shown []Shown, err error) {
	if q.Shown {
		shown = fields.Shown()
		shown = shown[:min(len(shown), maxShown)]
	} else if shown, err = q.shown(fields); err != nil {
		return l, nil, err
	}
	for i, s := range shown {
		l[firstShown+i] = s.field
	}
	l, err = q.fill(l, fields)
	return l, shown, err
}

// fill fills in the weight or the key, and the fields of the filter.
func (q Query) fill(l layout, fields Fields) (_ layout, err error) {
	if given := cmp.Or(q.Weight, q.Key); given != "" {
		name := FieldName(given)
		if l[0], err = fields.Number(name); err != nil {
			return l, err
		}
		if typed, ok := fields.(interface{ isPointer(name string) bool }); q.Weight != "" && ok && typed.isPointer(name) {
			return l, fmt.Errorf("field %s is a pointer, so its sum means nothing", name)
		}
	}
	for i, t := range q.Filter.terms {
		find := fields.Number
		if t.isText {
			find = fields.Text
		}
		if l[i+1], err = find(t.field); err != nil {
			return l, err
		}
		if f := l[i+1]; !t.isText && !t.fits(f) {
			return l, fmt.Errorf("field %s cannot be %s: it has %d bytes, %s", t.field, t.literal(), f.Size, map[uint8]string{0: "unsigned", 1: "signed"}[f.IsSigned])
		}
	}
	return l, nil
}

// fits reports whether a number is in the range of a field.
func (t term) fits(f Field) bool {
	bits := 8 * uint(f.Size)
	switch {
	case f.Size == 0 || f.Size > 8:
		return true // a constant
	case t.negative:
		return f.IsSigned != 0 && int64(t.number) >= -1<<(bits-1)
	case f.IsSigned != 0:
		return t.number <= 1<<(bits-1)-1
	}
	return bits == 64 || t.number < 1<<bits
}

func (t term) literal() string {
	if t.negative {
		return strconv.FormatInt(int64(t.number), 10)
	}
	return strconv.FormatUint(t.number, 10)
}

// Terms returns the filter as the programs read it.
func (f Filter) Terms() []bpf.CountFilterTerm {
	var terms []bpf.CountFilterTerm
	for _, t := range f.terms {
		compiled := bpf.CountFilterTerm{Number: t.number, Compare: uint8(t.compare), Yes: t.yes, No: t.no}
		copy(compiled.Text[:], t.text)
		terms = append(terms, compiled)
	}
	return terms
}
