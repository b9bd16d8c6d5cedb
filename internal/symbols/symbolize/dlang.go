package symbolize

import (
	"strconv"
	"strings"
)

// demangleD returns the name of a function or variable of D, such as app.Shape.area for
// _D3app5Shape4areaMFZi, or false for other linker names. It leaves out the types of parameters if
// asked to. See https://dlang.org/spec/abi.html#name_mangling; the result is that of c++filt.
func demangleD(linkage string, parameters bool) (string, bool) {
	if linkage == "_Dmain" {
		return "D main", true
	}
	if !strings.HasPrefix(linkage, "_D") {
		return "", false
	}
	d := dName{s: linkage, lastBack: len(linkage), work: maxDWork, quiet: !parameters}
	name := d.mangled()
	if d.failed || d.at != len(d.s) || name == "" {
		return "", false
	}
	return name, true
}

// Limits for crafted names: a name may refer to its own parts, so it can become exponentially long.
const (
	maxDWork  = 8 * maxName // bytes that are made, and steps
	maxDDepth = 256
)

// dName parses a linker name of D. The parsing functions return text, and set failed if the name is not
// valid; they then return soon.
type dName struct {
	s        string
	at       int  // next byte
	lastBack int  // where the innermost back reference that is being followed stands
	quiet    bool // leave out the parameters of the function itself
	work     int  // left
	depth    int
	failed   bool
}

// peek returns the byte at distance n, or 0 at the end.
func (d *dName) peek(n int) byte {
	if d.failed || d.at+n >= len(d.s) {
		return 0
	}
	return d.s[d.at+n]
}

// has reports whether the rest begins with prefix.
func (d *dName) has(prefix string) bool { return !d.failed && strings.HasPrefix(d.s[d.at:], prefix) }

// skip passes over prefix if the rest begins with it.
func (d *dName) skip(prefix string) bool {
	ok := d.has(prefix)
	if ok {
		d.at += len(prefix)
	}
	return ok
}

// fail marks the name as invalid.
func (d *dName) fail() string {
	d.failed = true
	return ""
}

// spend returns text that was made, within the limit.
func (d *dName) spend(text string) string {
	if d.work -= 1 + len(text); d.work < 0 {
		return d.fail()
	}
	return text
}

// enter begins a construct that can contain itself. leave ends it.
func (d *dName) enter() bool {
	d.depth++
	if d.work--; d.work < 0 || d.depth > maxDDepth {
		d.failed = true
	}
	return !d.failed
}

func (d *dName) leave() { d.depth-- }

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// number parses a decimal number.
func (d *dName) number() int {
	begin := d.at
	for isDigit(d.peek(0)) {
		d.at++
	}
	n, err := strconv.Atoi(d.s[begin:d.at])
	if err != nil || d.failed || d.at == len(d.s) {
		d.failed = true
		return 0
	}
	return n
}

// backReference parses the distance of a back reference, whose "Q" is at the given place, and returns where it
// leads.
func (d *dName) backReference() int {
	from, n := d.at, 0
	for d.at++; ; d.at++ {
		switch c := d.peek(0); {
		case 'A' <= c && c <= 'Z' && n < len(d.s):
			n = 26*n + int(c-'A')
			continue
		case 'a' <= c && c <= 'z' && n < len(d.s):
			n = 26*n + int(c-'a')
			d.at++
			if n > 0 && n <= from {
				return from - n
			}
		}
		d.failed = true
		return 0
	}
}

// follow calls parse at the place to which the back reference here leads. Those within it must lead further back,
// so they end.
func (d *dName) follow(parse func() string) string {
	if d.at >= d.lastBack {
		return d.fail()
	}
	last := d.lastBack
	d.lastBack = d.at
	to := d.backReference()
	after := d.at
	d.at = to
	text := ""
	if !d.failed {
		text = parse()
	}
	d.at, d.lastBack = after, last
	return text
}

// mangled parses a whole linker name.
func (d *dName) mangled() string {
	if !d.skip("_D") {
		return d.fail()
	}
	name := d.qualified(true)
	if !d.skip("Z") {
		quiet := d.quiet
		d.quiet = false
		d.typ() // of the variable, or the function's result
		d.quiet = quiet
	}
	return name
}

// startsSymbol reports whether a name begins here.
func (d *dName) startsSymbol() bool {
	switch {
	case isDigit(d.peek(0)), d.has("__T"), d.has("__U"):
		return true
	case d.peek(0) != 'Q':
		return false
	}
	ahead := *d
	to := ahead.backReference()
	return !ahead.failed && isDigit(d.s[to])
}

// startsCall reports whether the type of a function begins here.
func (d *dName) startsCall() bool {
	c := d.peek(0)
	return c != 0 && strings.IndexByte("FUVWRY", c) >= 0
}

// qualified parses a name with the names that contain it. modifiers of its methods are written if asked to.
func (d *dName) qualified(modifiers bool) string {
	if !d.enter() {
		return ""
	}
	defer d.leave()
	name := ""
	for first := true; first || d.startsSymbol(); first = false {
		if !first {
			name += "."
		}
		for d.skip("0") { // an anonymous symbol
		}
		prefix, part := d.identifier()
		if prefix != "" {
			name = prefix + strings.TrimSuffix(name, ".")
		}
		name += part
		if d.failed {
			return ""
		}
		if d.peek(0) != 'M' && !d.startsCall() {
			continue
		}
		// The parameters of a function, or else the type of a variable.
		ahead := *d
		mods := ""
		if ahead.skip("M") {
			mods = ahead.modifiers()
		}
		_, parameters, _ := ahead.function()
		if ahead.failed || ahead.at == len(d.s) {
			d.work = ahead.work
			continue
		}
		*d = ahead
		if !d.quiet {
			name += parameters
			if modifiers {
				name += mods
			}
		}
	}
	return d.spend(name)
}

// specialD are names that the compiler generates: text to write before the name that contains them.
var specialD = map[string]string{
	"__initZ": "initializer for ", "__vtblZ": "vtable for ", "__ClassZ": "ClassInfo for ",
	"__InterfaceZ": "Interface for ", "__ModuleInfoZ": "ModuleInfo for ",
}

// identifier parses one name. prefix belongs before the names that contain it.
func (d *dName) identifier() (prefix, name string) {
	if !d.enter() {
		return "", ""
	}
	defer d.leave()
	if d.peek(0) == 'Q' {
		to := d.backReference()
		after := d.at
		if d.failed {
			return "", ""
		}
		d.at = to
		n := d.number()
		prefix, name = d.simple(n)
		d.at = after
		return prefix, name
	}
	if d.has("__T") || d.has("__U") {
		return "", d.template(-1)
	}
	n := d.number()
	if d.failed || n == 0 || n > len(d.s)-d.at {
		return "", d.fail()
	}
	text := d.s[d.at : d.at+n]
	switch {
	case n >= 5 && (d.has("__T") || d.has("__U")):
		return "", d.template(n)
	case n >= 4 && strings.HasPrefix(text, "__S") && strings.Trim(text[3:], "0123456789") == "":
		d.at += n // a parent that only makes the name unique
		return d.identifier()
	}
	return d.simple(n)
}

// simple parses a name of n bytes.
func (d *dName) simple(n int) (prefix, name string) {
	if d.failed || n == 0 || n > len(d.s)-d.at {
		return "", d.fail()
	}
	name = d.s[d.at : d.at+n]
	switch name {
	case "__ctor":
		d.at += n
		return "", "this"
	case "__dtor":
		d.at += n
		return "", "~this"
	case "__postblit":
		if d.has("__postblitMFZ") {
			d.at += n + len("MFZ")
			return "", "this(this)"
		}
	}
	if prefix = specialD[name+"Z"]; prefix != "" && d.has(name+"Z") {
		d.at += n
		return prefix, ""
	}
	d.at += n
	return "", d.spend(name)
}

// template parses an instance of a template. n is its length if not negative.
func (d *dName) template(n int) string {
	begin := d.at
	d.at += len("__T")
	if !d.startsSymbol() || d.peek(0) == '0' {
		return d.fail()
	}
	quiet := d.quiet
	d.quiet = false
	defer func() { d.quiet = quiet }()
	_, name := d.identifier()
	var arguments []string
	for !d.failed && !d.skip("Z") {
		d.skip("H") // a specialized parameter
		switch {
		case d.skip("S"):
			arguments = append(arguments, d.symbolArgument())
		case d.skip("T"):
			arguments = append(arguments, d.typ())
		case d.skip("V"):
			kind := d.peek(0)
			if kind == 'Q' {
				ahead := *d
				if to := ahead.backReference(); !ahead.failed {
					kind = d.s[to]
				}
			}
			typ := d.typ()
			arguments = append(arguments, d.value(typ, kind))
		case d.skip("X"):
			size := d.number()
			if d.failed || size > len(d.s)-d.at {
				return d.fail()
			}
			arguments = append(arguments, d.s[d.at:d.at+size])
			d.at += size
		default:
			return d.fail()
		}
	}
	if n >= 0 && d.at-begin != n {
		return d.fail()
	}
	return d.spend(name + "!(" + strings.Join(arguments, ", ") + ")")
}

// symbolArgument parses an argument of a template that is a symbol.
func (d *dName) symbolArgument() string {
	switch {
	case d.has("_D"):
		return d.mangled()
	case d.peek(0) == 'Q':
		return d.qualified(false)
	}
	// The length of the symbol may precede the length of its first name.
	begin := d.at
	size := d.number()
	digits := d.at - begin
	for ; !d.failed && digits > 0; digits-- {
		ahead := *d
		ahead.at = begin + digits
		from := ahead.at
		text := ""
		switch {
		case ahead.startsSymbol():
			text = ahead.qualified(false)
		case ahead.has("_D"):
			text = ahead.mangled()
		default:
			ahead.failed = true
		}
		if d.work = ahead.work; !ahead.failed && ahead.at-from == size {
			*d = ahead
			return text
		}
		size /= 10
	}
	d.at = begin
	return d.qualified(false)
}

// modifiers parses the modifiers of a method.
func (d *dName) modifiers() (text string) {
	for {
		switch {
		case d.skip("x"):
			return text + " const"
		case d.skip("y"):
			return text + " immutable"
		case d.skip("O"):
			text += " shared"
		case d.skip("Ng"):
			text += " inout"
		case d.peek(0) == 'N':
			return d.fail()
		default:
			return text
		}
	}
}

var dConventions = map[byte]string{
	'F': "", 'U': "extern(C) ", 'W': "extern(Windows) ", 'V': "extern(Pascal) ", 'R': "extern(C++) ", 'Y': "extern(Objective-C) ",
}

var dAttributes = map[byte]string{
	'a': "pure ", 'b': "nothrow ", 'c': "ref ", 'd': "@property ", 'e': "@trusted ", 'f': "@safe ", 'i': "@nogc ", 'j': "return ", 'l': "scope ", 'm': "@live ",
}

// function parses the type of a function without its result.
func (d *dName) function() (convention, parameters, attributes string) {
	if !d.startsCall() {
		return "", d.fail(), ""
	}
	convention = dConventions[d.peek(0)]
	d.at++
	for d.peek(0) == 'N' {
		// Ng, Nh, Nk and Nn belong to the first parameter.
		attribute := dAttributes[d.peek(1)]
		if attribute == "" {
			break
		}
		attributes += attribute
		d.at += 2
	}
	var all []string
	for !d.failed {
		switch {
		case d.skip("X"): // (T t...)
			return convention, d.spend("(" + strings.Join(all, ", ") + "...)"), attributes
		case d.skip("Y"): // (T t, ...)
			return convention, d.spend("(" + strings.Join(append(all, "..."), ", ") + ")"), attributes
		case d.skip("Z"):
			return convention, d.spend("(" + strings.Join(all, ", ") + ")"), attributes
		}
		parameter := ""
		for d.has("M") || d.has("Nk") {
			if d.skip("M") {
				parameter += "scope "
			} else {
				d.at += len("Nk")
				parameter += "return "
			}
		}
		switch {
		case d.skip("I"):
			parameter += "in "
			if d.skip("K") {
				parameter += "ref "
			}
		case d.skip("J"):
			parameter += "out "
		case d.skip("K"):
			parameter += "ref "
		case d.skip("L"):
			parameter += "lazy "
		}
		all = append(all, parameter+d.typ())
	}
	return "", "", ""
}

// functionType parses the type of a function.
func (d *dName) functionType() string {
	convention, parameters, attributes := d.function()
	result := d.typ()
	return d.spend(convention + result + parameters + " " + attributes)
}

var dBasicTypes = map[byte]string{
	'n': "typeof(null)", 'v': "void", 'g': "byte", 'h': "ubyte", 's': "short", 't': "ushort", 'i': "int", 'k': "uint", 'l': "long", 'm': "ulong",
	'f': "float", 'd': "double", 'e': "real", 'o': "ifloat", 'p': "idouble", 'j': "ireal", 'q': "cfloat", 'r': "cdouble", 'c': "creal",
	'b': "bool", 'a': "char", 'u': "wchar", 'w': "dchar",
}

// typ parses a type.
func (d *dName) typ() string {
	if !d.enter() {
		return ""
	}
	defer d.leave()
	quiet := d.quiet
	d.quiet = false
	defer func() { d.quiet = quiet }()
	for _, of := range []struct{ code, text string }{{"O", "shared("}, {"x", "const("}, {"y", "immutable("}, {"Ng", "inout("}, {"Nh", "__vector("}} {
		if d.skip(of.code) {
			return d.spend(of.text + d.typ() + ")")
		}
	}
	if d.startsCall() {
		return d.functionType() + "function"
	}
	c := d.peek(0)
	if c == 'Q' {
		return d.follow(d.typ)
	}
	d.at++
	switch c {
	case 'N':
		if d.skip("n") {
			return "typeof(*null)"
		}
	case 'A':
		return d.spend(d.typ() + "[]")
	case 'G':
		begin := d.at
		for isDigit(d.peek(0)) {
			d.at++
		}
		size := d.s[begin:d.at]
		return d.spend(d.typ() + "[" + size + "]")
	case 'H':
		key := d.typ()
		return d.spend(d.typ() + "[" + key + "]")
	case 'P':
		if d.startsCall() {
			return d.functionType() + "function"
		}
		return d.spend(d.typ() + "*")
	case 'C', 'S', 'E', 'T':
		return d.qualified(false)
	case 'D':
		mods := d.modifiers()
		var text string
		if d.peek(0) == 'Q' {
			text = d.follow(d.functionType)
		} else {
			text = d.functionType()
		}
		return d.spend(text + "delegate" + mods)
	case 'B':
		n := d.number()
		var all []string
		for i := 0; i < n && !d.failed; i++ {
			all = append(all, d.typ())
		}
		return d.spend("Tuple!(" + strings.Join(all, ", ") + ")")
	case 'z':
		switch {
		case d.skip("i"):
			return "cent"
		case d.skip("k"):
			return "ucent"
		}
	default:
		if name := dBasicTypes[c]; name != "" && !d.failed {
			return d.spend(name)
		}
	}
	return d.fail()
}

// value parses a value of a type, whose code begins with kind.
func (d *dName) value(typ string, kind byte) string {
	if !d.enter() {
		return ""
	}
	defer d.leave()
	switch c := d.peek(0); {
	case d.skip("n"):
		return "null"
	case d.skip("N"):
		return "-" + d.integer(kind)
	case d.skip("i"):
		return d.integer(kind)
	case isDigit(c):
		return d.integer(kind)
	case d.skip("e"):
		return d.real()
	case d.skip("c"):
		re := d.real()
		if !d.skip("c") {
			return d.fail()
		}
		return re + "+" + d.real() + "i"
	case c == 'a' || c == 'u' || c == 'w' || c == 'd':
		return d.text()
	case d.skip("A"):
		return d.spend("[" + strings.Join(d.values(kind == 'H'), ", ") + "]")
	case d.skip("S"):
		return d.spend(typ + "(" + strings.Join(d.values(false), ", ") + ")")
	case d.skip("f"):
		return d.mangled()
	}
	return d.fail()
}

// values parses a number of values, or of pairs of them.
func (d *dName) values(pairs bool) (all []string) {
	n := d.number()
	for i := 0; i < n && !d.failed; i++ {
		text := d.value("", 0)
		if pairs {
			text += ":" + d.value("", 0)
		}
		all = append(all, text)
	}
	return all
}

// integer parses a value of an integral type.
func (d *dName) integer(kind byte) string {
	begin := d.at
	n := d.number()
	digits := d.s[begin:d.at]
	switch kind {
	case 'a':
		if n >= ' ' && n < 0x7f {
			return "'" + string(rune(n)) + "'"
		}
		return "'\\x" + hex(n, 2) + "'"
	case 'u':
		return "'\\u" + hex(n, 4) + "'"
	case 'w':
		return "'\\U" + hex(n, 8) + "'"
	case 'b':
		return strconv.FormatBool(n != 0)
	case 'h', 't', 'k':
		return digits + "u"
	case 'l':
		return digits + "L"
	case 'm':
		return digits + "uL"
	}
	return digits
}

func hex(n, width int) string {
	text := strconv.FormatInt(int64(n), 16)
	return strings.Repeat("0", max(0, width-len(text))) + text
}

// real parses a floating-point value.
func (d *dName) real() string {
	for _, of := range []struct{ code, text string }{{"NAN", "NaN"}, {"INF", "Inf"}, {"NINF", "-Inf"}} {
		if d.skip(of.code) {
			return of.text
		}
	}
	text := ""
	if d.skip("N") {
		text = "-"
	}
	digits := func(of string) string {
		begin := d.at
		for c := d.peek(0); c != 0 && strings.IndexByte(of, c) >= 0; c = d.peek(0) {
			d.at++
		}
		return d.s[begin:d.at]
	}
	mantissa := digits("0123456789ABCDEF")
	if mantissa == "" || !d.skip("P") {
		return d.fail()
	}
	text += "0x" + mantissa[:1] + "." + mantissa[1:] + "p"
	if d.skip("N") {
		text += "-"
	}
	return d.spend(text + digits("0123456789"))
}

// text parses a string.
func (d *dName) text() string {
	kind := d.peek(0)
	d.at++
	n := d.number()
	if !d.skip("_") || n > (len(d.s)-d.at)/2 {
		return d.fail()
	}
	var b strings.Builder
	b.WriteByte('"')
	for range n {
		digits := d.s[d.at : d.at+2]
		c, err := strconv.ParseUint(digits, 16, 8)
		if err != nil {
			return d.fail()
		}
		d.at += 2
		switch i := strings.IndexByte("\t\n\r\f\v", byte(c)); {
		case i >= 0:
			b.WriteString(`\` + "tnrfv"[i:i+1])
		case c >= ' ' && c < 0x7f:
			b.WriteByte(byte(c))
		default:
			b.WriteString(`\x` + digits)
		}
	}
	b.WriteByte('"')
	if kind != 'a' {
		b.WriteByte(kind)
	}
	return d.spend(b.String())
}
