package hotspot

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"regexp"
	"strings"

	"fulgur/internal/bpf"
	"fulgur/internal/runtimes"
)

// Limits on the data that a reader reads and caches per process. Real programs stay below
// them.
const (
	maxKept    = 32 << 20 // bytes
	maxSection = 1 << 20  // bytes of a section of an nmethod
	maxName    = 256      // bytes of a name of a class, a method or a file
	maxConst   = 1 << 18  // bytes of a ConstMethod
	maxMethods = 1 << 16  // in a class; the limit of Java
	pageSize   = 4096     // at least
	entrySize  = 256      // bytes of an entry of a map, about
)

// reader implements [runtimes.Reader].
type reader struct {
	*layout
	memory   runtimes.Memory
	methods  map[identity]*method
	nmethods map[identity]*nmethod
	classes  map[classKey]class
	names    map[uint64]string // of blobs, by address: constants of the JVM
	bytes    int               // of all of these
}

// identity identifies a method or a blob in a process.
type identity struct {
	address uint64
	check   uint32
}

func newReader(l *layout, m runtimes.Memory) *reader {
	return &reader{
		layout: l, memory: m, methods: map[identity]*method{}, nmethods: map[identity]*nmethod{},
		classes: map[classKey]class{}, names: map[uint64]string{},
	}
}

// Kept implements [runtimes.Reader].
func (r *reader) Kept() int { return r.bytes }

// keep counts n bytes that the reader is about to cache. Above the limit, it empties the
// caches first.
func (r *reader) keep(n int) {
	if r.bytes+n > maxKept {
		clear(r.methods)
		clear(r.nmethods)
		clear(r.classes)
		clear(r.names)
		r.bytes = 0
	}
	r.bytes += n
}

// method is a cached Method.
type method struct {
	code  runtimes.Code
	lines lines
}

// nmethod is a cached blob. It has no method if it is a stub.
type nmethod struct {
	id       identity
	stub     runtimes.Code
	method   uint64
	code     uint64 // address of its code
	pcs      []byte
	scopes   []byte
	metadata []byte // addresses of methods, among others
	known    map[uint64]*method
}

// classKey identifies a class by the addresses of its parts, and the source file's index.
type classKey struct {
	pool, klass, name, id uint64
	source                int
}

// class is a cached InstanceKlass.
type class struct{ name, file string }

// Places implements [runtimes.Reader].
func (r *reader) Places(f runtimes.Frame) (places []runtimes.Place, final bool) {
	if f.Address == 0 {
		return nil, true // the kernel side identifies all code
	}
	id := identity{f.Address, f.Check}
	if f.Check&1 == 0 {
		m, err := r.methodOf(id)
		if err != nil {
			return nil, false
		}
		return []runtimes.Place{r.place(m, f.Position)}, true
	}
	n, err := r.nmethodOf(id)
	if err != nil {
		return nil, false
	}
	if n.method == 0 {
		return []runtimes.Place{{Function: n.stub}}, true
	}
	places, err = r.inlined(n, f.PC)
	if err != nil {
		return nil, false
	}
	return places, true
}

func (r *reader) place(m *method, bci int) runtimes.Place {
	p := runtimes.Place{Function: m.code}
	if bci >= 0 {
		p.Line = m.lines.at(bci)
	}
	return p
}

// inlined returns the places of an address in an nmethod.
func (r *reader) inlined(n *nmethod, pc uint64) (places []runtimes.Place, err error) {
	list := scopes(n.scopes, r.version, scopeAt(n.pcs, int64(pc-n.code)))
	for _, s := range list {
		if s.method <= 0 || s.method*8 > len(n.metadata) {
			list = nil
			break
		}
	}
	// The outermost scope is the method itself. Native methods have no scopes.
	if len(list) == 0 || n.methodAt(list[len(list)-1].method) != n.method {
		list = nil
	}
	if list == nil {
		m, err := r.methodIn(n, n.method)
		if err != nil {
			return nil, err
		}
		return append(places, r.place(m, -1)), nil
	}
	for _, s := range list {
		m, err := r.methodIn(n, n.methodAt(s.method))
		if err != nil {
			return nil, err
		}
		places = append(places, r.place(m, s.bci))
	}
	return places, nil
}

// methodIn returns a method of an nmethod. An nmethod keeps its methods alive: if it still
// exists after the method was read, nothing has replaced the method.
func (r *reader) methodIn(n *nmethod, addr uint64) (*method, error) {
	if m := n.known[addr]; m != nil {
		return m, nil
	}
	m, err := r.current(addr)
	if err != nil {
		return nil, err
	}
	if check, _, err := r.checkBlob(n.id.address); err != nil || check != n.id.check {
		return nil, fmt.Errorf("%w: the code was freed", errLayout)
	}
	r.keep(entrySize)
	n.known[addr] = m
	return m, nil
}

// methodAt returns the method with an index, which counts from 1.
func (n *nmethod) methodAt(index int) uint64 {
	return binary.LittleEndian.Uint64(n.metadata[8*(index-1):])
}

// read reads n bytes of an object, whose address must be even.
func (r *reader) read(addr uint64, n int) (object, error) {
	if addr == 0 || addr%2 != 0 {
		return nil, fmt.Errorf("%w: an object at %#x", errLayout, addr)
	}
	return r.data(addr, n)
}

// data reads n bytes at any address.
func (r *reader) data(addr uint64, n int) (object, error) {
	if n < 0 || n > maxSection {
		return nil, fmt.Errorf("%w: %d bytes at %#x", errLayout, n, addr)
	}
	b := make(object, n)
	return b, r.memory.Read(b, addr)
}

// object is the bytes of an object. A field beyond the end is 0, since offsets may be forged.
type object []byte

func (o object) field(at, size int) []byte {
	if at < 0 || at > len(o)-size {
		return make([]byte, size)
	}
	return o[at : at+size]
}

func (o object) word(at int) uint64 { return binary.LittleEndian.Uint64(o.field(at, 8)) }
func (o object) half(at int) int    { return int(binary.LittleEndian.Uint16(o.field(at, 2))) }
func (o object) number(at int) int  { return int(int32(binary.LittleEndian.Uint32(o.field(at, 4)))) }

// parts are the objects that identify a method.
type parts struct {
	at       uint64 // address of the ConstMethod
	constant object
	poolAt   uint64
	pool     object
	klassAt  uint64
	klass    object
	name     uint64 // address of its Symbol
	check    uint32
}

// partsOf reads the parts of the method at an address. Their check is computed like in
// hotspot_check() of bpf/hotspot.h.
func (r *reader) partsOf(addr uint64) (p parts, err error) {
	m, err := r.read(addr, r.methodConst+8)
	if err != nil {
		return p, err
	}
	p.at = m.word(r.methodConst)
	if p.constant, err = r.read(p.at, r.constLen); err != nil {
		return p, err
	}
	p.poolAt = p.constant.word(r.constPool)
	if p.pool, err = r.read(p.poolAt, r.poolSize); err != nil {
		return p, err
	}
	p.klassAt = p.pool.word(r.poolHolder)
	if p.klass, err = r.read(p.klassAt, r.klassRead); err != nil {
		return p, err
	}
	name, err := r.read(p.poolAt+uint64(r.poolSize+8*p.constant.half(r.constName)), 8)
	if err != nil {
		return p, err
	}
	p.name = name.word(0)
	p.check = runtimes.Hash(p.at, p.poolAt, p.klass.word(r.klassID)>>r.klassIDShift, p.name) &^ 1
	return p, nil
}

// current returns the method that is at an address.
func (r *reader) current(addr uint64) (*method, error) {
	p, err := r.partsOf(addr)
	if err != nil {
		return nil, err
	}
	return r.methodOf(identity{addr, p.check})
}

// methodOf returns a method, from the cache if possible.
func (r *reader) methodOf(id identity) (*method, error) {
	if m, ok := r.methods[id]; ok {
		return m, nil
	}
	m, err := r.readMethod(id)
	if err != nil {
		return nil, err
	}
	r.keep(entrySize + len(m.code.Name) + len(m.lines)*lineSize)
	r.methods[id] = m
	return m, nil
}

// readMethod reads a method. It checks that the class's list of methods contains the method,
// and that class and constant pool refer to each other.
func (r *reader) readMethod(id identity) (*method, error) {
	p, err := r.partsOf(id.address)
	if err != nil {
		return nil, err
	}
	if p.check != id.check {
		return nil, fmt.Errorf("%w: another method is at its address", errLayout)
	}
	name, err := r.symbolAt(p, p.constant.half(r.constName))
	if err != nil {
		return nil, err
	}
	class, err := r.class(p)
	if err != nil {
		return nil, err
	}
	listed := r.listed(p.klass.word(r.klassMethods), id.address, p.constant.half(r.constID))
	if p.klass.word(r.klassPool) != p.poolAt || !listed {
		// Intrinsics of method handles are in no list, and have a separate pool.
		if class.name != "java.lang.invoke.MethodHandle" {
			return nil, fmt.Errorf("%w: a method that its class lacks", errLayout)
		}
	}
	m := &method{code: runtimes.Code{Kind: bpf.RuntimeHotSpot, Name: class.name + "." + name, File: class.file}}
	if p.constant.number(r.constFlags)&r.hasLines != 0 {
		start, end := r.constLen+p.constant.half(r.constCode), 8*p.constant.number(r.constWords)
		if end < start || end > maxConst {
			return nil, fmt.Errorf("%w: a method of %d bytes", errLayout, end)
		}
		table, err := r.data(p.at+uint64(start), end-start)
		if err != nil {
			return nil, err
		}
		m.lines = readLines(table, r.version)
		m.code.FirstLine = m.lines.at(0)
	}
	if again, err := r.partsOf(id.address); err != nil || again.check != id.check || !bytes.Equal(p.constant, again.constant) {
		return nil, fmt.Errorf("%w: the method changed", errLayout)
	}
	return m, nil
}

// class returns the class of a method.
func (r *reader) class(p parts) (c class, err error) {
	key := classKey{p.poolAt, p.klassAt, p.klass.word(r.klassName), p.klass.word(r.klassID) >> r.klassIDShift, p.pool.half(r.poolSource)}
	if c, ok := r.classes[key]; ok {
		return c, nil
	}
	if c.name, err = r.symbol(key.name); err != nil {
		return c, err
	}
	c.name = className(c.name)
	// Intrinsics of method handles have a pool without a file.
	if key.source != 0 && key.source < p.pool.number(r.poolLength) {
		if c.file, err = r.symbolAt(p, key.source); err != nil {
			return c, err
		}
	}
	r.keep(entrySize + len(c.name) + len(c.file))
	r.classes[key] = c
	return c, nil
}

// listed reports whether a class's list of methods contains a method. It is usually at index
// id.
func (r *reader) listed(list, method uint64, id int) bool {
	head, err := r.read(list, r.arrayLength+4)
	if err != nil {
		return false
	}
	n := head.number(r.arrayLength)
	if n <= 0 || n > maxMethods {
		return false
	}
	if id < n {
		if b, err := r.read(list+uint64(r.arrayMethods+8*id), 8); err == nil && b.word(0) == method {
			return true
		}
	}
	b, err := r.read(list+uint64(r.arrayMethods), 8*n)
	for i := 0; err == nil && i < n; i++ {
		if b.word(8*i) == method {
			return true
		}
	}
	return false
}

// utf8Tag marks the elements of a constant pool that are symbols.
const utf8Tag = 1

// symbolAt returns a symbol of a method's constant pool.
func (r *reader) symbolAt(p parts, index int) (string, error) {
	if n := p.pool.number(r.poolLength); index <= 0 || index >= n {
		return "", fmt.Errorf("%w: constant %d of %d", errLayout, index, n)
	}
	tag, err := r.data(p.pool.word(r.poolTags)+uint64(r.arrayBytes+index), 1)
	if err != nil {
		return "", err
	}
	if tag[0] != utf8Tag {
		return "", fmt.Errorf("%w: constant of type %d instead of text", errLayout, tag[0])
	}
	b, err := r.read(p.poolAt+uint64(r.poolSize+8*index), 8)
	if err != nil {
		return "", err
	}
	return r.symbol(b.word(0))
}

// symbol returns the text of a Symbol, with "…" at its end if it is truncated.
func (r *reader) symbol(addr uint64) (string, error) {
	const short = 48 // bytes of most symbols; the next page may not be readable
	head, err := r.read(addr, min(short, pageSize-int(addr%pageSize)))
	if err != nil {
		return "", err
	}
	if len(head) < max(r.symbolLength+2, r.symbolCount+4) {
		return "", fmt.Errorf("%w: a symbol that crosses a page", errLayout)
	}
	n := head.half(r.symbolLength)
	if head.half(r.symbolCount) == 0 || n == 0 { // the lower half is the number of references
		return "", fmt.Errorf("%w: a freed symbol", errLayout)
	}
	b := head[min(r.symbolBody, len(head)):]
	if size := min(n, maxName); size <= len(b) {
		b = b[:size]
	} else if b, err = r.data(addr+uint64(r.symbolBody), size); err != nil {
		return "", err
	}
	s := strings.ToValidUTF8(string(b), "\uFFFD")
	if n > maxName {
		s += runtimes.Cut
	}
	return s, nil
}

// hidden matches the part of a hidden class's name that differs in each run.
var hidden = regexp.MustCompile(`(\$\$Lambda)?(\$\d+)?[+/]0x[0-9a-f]+$`)

// className returns the name of a class as in Java.
func className(internal string) string {
	return strings.ReplaceAll(hidden.ReplaceAllString(internal, "$1"), "/", ".")
}

// Names of blobs of methods.
const (
	nmethodName = "nmethod"
	nativeName  = "native nmethod"
)

// heapFrames is the name of a frame that replaces the frames of a virtual thread that are in
// the heap.
const heapFrames = "(frames in the Java heap)"

// stubName returns the name to show for a blob of stubs. When a virtual thread waits, HotSpot
// moves its frames to the heap. Later it moves only the most recent frames back to a stack.
// The oldest of these returns to a continuation stub.
func stubName(blob string) string {
	if strings.HasPrefix(blob, "StubRoutines (continuation") {
		return heapFrames
	}
	return blob
}

// checkBlob reads the header of a blob and its name. It returns the same check as
// hotspot_compiled() of bpf/hotspot.h.
func (r *reader) checkBlob(addr uint64) (check uint32, b object, err error) {
	if b, err = r.read(addr, bpf.HotSpotHead); err != nil {
		return 0, nil, err
	}
	name := b.word(r.blobName)
	s, err := r.blobText(name)
	if err != nil {
		return 0, nil, err
	}
	id := uint64(0)
	if s == nmethodName || s == nativeName {
		if b, err = r.read(addr, r.nmethodSize); err != nil {
			return 0, nil, err
		}
		id = uint64(uint32(b.number(r.compileID)))<<32 | b.word(r.nmethodMethod)&0xffffffff
	}
	return runtimes.Hash(name, id) | 1, b, nil
}

// blobText returns the name of a blob.
func (r *reader) blobText(addr uint64) (string, error) {
	if s, ok := r.names[addr]; ok {
		return s, nil
	}
	p := pages{memory: r.memory}
	s, err := p.text(addr)
	if err != nil {
		return "", err
	}
	r.keep(entrySize + len(s))
	r.names[addr] = s
	return s, nil
}

// nmethodOf returns a blob, from the cache if possible.
func (r *reader) nmethodOf(id identity) (*nmethod, error) {
	if n, ok := r.nmethods[id]; ok {
		return n, nil
	}
	n, err := r.readBlob(id)
	if err != nil {
		return nil, err
	}
	r.keep(entrySize + len(n.pcs) + len(n.scopes) + len(n.metadata))
	r.nmethods[id] = n
	return n, nil
}

// readBlob reads a blob.
func (r *reader) readBlob(id identity) (*nmethod, error) {
	check, b, err := r.checkBlob(id.address)
	if err != nil {
		return nil, err
	}
	if check != id.check {
		return nil, fmt.Errorf("%w: other code is at its address", errLayout)
	}
	n := &nmethod{id: id, known: map[uint64]*method{}}
	name, err := r.blobText(b.word(r.blobName))
	if err != nil {
		return nil, err
	}
	if name != nmethodName && name != nativeName {
		n.stub = runtimes.Code{Kind: bpf.RuntimeHotSpot, Name: stubName(name)}
		return n, nil
	}
	n.method = b.word(r.nmethodMethod)
	n.code = b.word(r.code)
	if r.codeOffset {
		n.code = id.address + uint64(uint32(n.code))
	}
	section := func(start, end uint64) []byte {
		if err != nil || start > end || end-start > maxSection {
			err = fmt.Errorf("%w: a section of %d bytes", errLayout, end-start)
			return nil
		}
		var s []byte
		s, err = r.data(start, int(end-start))
		return s
	}
	at := func(base uint64, offset int) uint64 { return base + uint64(uint32(b.number(offset))) }
	if r.immutable >= 0 {
		data, mutable := b.word(r.immutable), b.word(r.mutable)
		n.pcs = section(at(data, r.scopesPCs), at(data, r.scopesData))
		n.scopes = section(at(data, r.scopesData), at(data, r.scopesEnd))
		n.metadata = section(at(mutable, r.relocations), at(mutable, r.mutableSize))
	} else {
		data := b.word(r.scopesData)
		n.metadata = section(at(id.address, r.metadata), data)
		n.scopes = section(data, at(id.address, r.scopesPCs))
		n.pcs = section(at(id.address, r.scopesPCs), at(id.address, r.scopesPCsEnd))
	}
	if err != nil {
		return nil, err
	}
	if check, _, err := r.checkBlob(id.address); err != nil || check != id.check {
		return nil, fmt.Errorf("%w: the code was freed", errLayout)
	}
	return n, nil
}
