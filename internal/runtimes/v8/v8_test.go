package v8

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"fulgur/internal/bpf"
	"fulgur/internal/runtimes"
	"fulgur/internal/symbols/elffile"
	"fulgur/internal/testenv"
)

// TestPositions decodes tables that V8 created. The positions are from node --print-bytecode.
func TestPositions(t *testing.T) {
	for _, c := range []struct {
		name   string
		format positionFormat
		table  string
		want   map[int]int // by the offset of the bytecode
	}{
		{"node 24", positionsSigned, "0138022003180a240b38091b0830020c071c061c", map[int]int{0: 21, 1: 27, 4: 27, 6: 36, 11: 50, 15: 43, 19: 55, 20: 58, 23: 65, 26: 72}},
		{"node 26", positionsFlagged, "0238072006181b241638121b1330070c0e1c0f1c", map[int]int{0: 21, 1: 27, 5: 27, 7: 36, 12: 50, 16: 43, 20: 55, 21: 58, 24: 65, 27: 72}},
	} {
		table, err := hex.DecodeString(c.table)
		if err != nil {
			t.Fatal(err)
		}
		for offset, want := range c.want {
			if at, inlined := c.format.position(table, offset); at != want || inlined != noPosition {
				t.Errorf("%s: position %d in call %d at offset %d, want %d", c.name, at, inlined, offset, want)
			}
		}
	}
	if at, inlined := positionsSigned.position(nil, 5); at != noPosition || inlined != noPosition {
		t.Errorf("position %d in call %d without a table", at, inlined)
	}
}

// FuzzPosition searches a table generated from known pairs.
func FuzzPosition(f *testing.F) {
	f.Add([]byte{1, 10, 2, 20}, 1, true)
	f.Add([]byte{0, 0, 255, 255, 3, 128}, 300, false)
	f.Fuzz(func(t *testing.T, steps []byte, offset int, flagged bool) {
		format, table := positionsSigned, []byte(nil)
		if flagged {
			format = positionsFlagged
		}
		format.position(steps, offset) // any bytes
		code, source, want := -1, int64(0), noPosition
		for pair := range slices.Chunk(steps, 2) {
			if len(pair) < 2 {
				break
			}
			step, change := uint64(pair[0]), int64(int8(pair[1]))
			if source+2*change < 0 {
				change = 0
			}
			// Every second pair is an expression.
			isStatement := len(table)%2 == 0
			switch {
			case flagged:
				table = binary.AppendUvarint(table, step<<2|2)
			case isStatement:
				table = binary.AppendUvarint(table, step<<1)
			default:
				table = binary.AppendUvarint(table, step<<1|1) // -(step + 1)
			}
			table = binary.AppendUvarint(table, uint64(2*change<<1)^uint64(2*change>>63))
			code, source = code+int(step), source+2*change
			if code <= offset && (code >= 0 || offset >= -1) {
				want = int(source>>1) - 1
			}
		}
		if at, _ := format.position(table, offset); at != want {
			t.Errorf("position %d, want %d", at, want)
		}
	})
}

func TestLineEnds(t *testing.T) {
	l := lineEnds("a\nb\r\nc\r\u2028𝄞\nx")
	if want := (lines{1, 4, 6, 7, 10}); !slices.Equal(l, want) {
		t.Fatalf("line ends %v, want %v", l, want)
	}
	for position, want := range map[int]int{-1: 0, 0: 1, 1: 1, 2: 2, 4: 2, 5: 3, 8: 5, 11: 6} {
		if got := l.at(position); got != want {
			t.Errorf("line %d at position %d, want %d", got, position, want)
		}
	}
	if got := lines(nil).at(3); got != 0 {
		t.Errorf("line %d without a text", got)
	}
}

func TestPath(t *testing.T) {
	for name, want := range map[string]string{"/a/b.js": "/a/b.js", "file:///a%20b/%C3%A9.mjs": "/a b/é.mjs", "file:///%zz": "file:///%zz", "node:fs": "node:fs"} {
		if got := path(name); got != want {
			t.Errorf("path %q of %q, want %q", got, name, want)
		}
	}
}

// The system's program has V8 with a known layout.
func TestDetect(t *testing.T) {
	f, err := elffile.Open(testenv.Tool(t, "node"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := Runtime{}.Detect(f)
	if err != nil {
		t.Fatal(err)
	}
	if b == nil || b.Unknown != "" || b.Entry.V8.SharedType == 0 || b.Entry.V8.Interpreter.Start == 0 || b.Open == nil {
		t.Errorf("%+v", b)
	}
	other, err := elffile.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if b, err := (Runtime{}).Detect(other); b != nil || err != nil {
		t.Errorf("the test has V8: %+v, %v", b, err)
	}
}

// Programs that load extensions of Node.js, but lack V8's symbols, are reported by what they are.
func TestDetectWithoutSymbols(t *testing.T) {
	const extends, start = "void node_module_register(void) {}", "void _ZN4node5StartEiPPc(void) {}"
	for source, want := range map[string]string{
		extends + start: "node without",
		extends:         "other than node",
		extends + "__attribute__((section(\".bun\"))) int program = 1;": "bun",
		start: "",
	} {
		program := filepath.Join(t.TempDir(), "a.so")
		compile := exec.Command(testenv.Tool(t, "gcc"), "-shared", "-fPIC", "-o", program, "-xc", "-")
		compile.Stdin = strings.NewReader(source)
		if out, err := compile.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		f, err := elffile.Open(program)
		if err != nil {
			t.Fatal(err)
		}
		b, err := Runtime{}.Detect(f)
		f.Close()
		if err != nil || (b != nil) != (want != "") || b != nil && !strings.Contains(b.Unknown, want) {
			t.Errorf("%s: got %+v, error %v, want %q", source, b, err, want)
		}
	}
}

func TestSupported(t *testing.T) {
	for v, want := range map[version]bool{{major: 10, minor: 1}: false, {major: 10, minor: 2}: true, {major: 14, minor: 6}: true, {major: 14, minor: 7}: false, {major: 15}: false} {
		if got := v.supported(); got != want {
			t.Errorf("V8 %s: %v", v, got)
		}
	}
}

// base is the address of a fake heap.
const base = 0x1000

// fake is the memory of a process: bytes from base on. It counts the reads.
type fake struct {
	bytes []byte
	reads int
	sizes int
	// fails is the number of the read that fails once, as if the process did not respond.
	fails int
	// moves is the number of the read before which move is called.
	moves int
	move  func()
}

func (f *fake) Read(b []byte, addr uint64) error {
	f.reads++
	f.sizes += len(b)
	if f.reads == f.moves {
		f.move()
	}
	if f.reads == f.fails {
		return errors.New("no answer")
	}
	if addr < base || addr-base > uint64(len(f.bytes)) || uint64(len(f.bytes))-(addr-base) < uint64(len(b)) {
		return unix.EFAULT
	}
	copy(b, f.bytes[addr-base:])
	return nil
}

// testLayout is the layout of V8 13.6, in Node.js 24.
var testLayout = layout{
	kernel:     bpf.UnwindV8Process{FunctionFirst: 2065, FunctionLast: 2081, SharedType: 282, BytecodeType: 186, MapType: 12, FunctionShared: 32, SharedScript: 40, SharedNumbers: 48, ScriptId: 64},
	sharedName: 24, sharedScript: 40, sharedData: 8, sharedFlags: 56,
	scriptName: 16, scriptSource: 8, scriptLineEnds: 56,
	bytecodeData: 64, bytecodeWrapper: 16, arrayLength: 8, arrayData: 16,
	stringLength: 12, stringChars: 16, consFirst: 16, consSecond: 24, thinActual: 16,
	slicedParent: 16, slicedOffset: 24, externalResource: 16, scopeFirst: 5,
	shared: 282, scopeInfo: 280, script: 167, fixedArray: 205, byteArray: 217, trustedByteArray: 196,
	bytecodes: 186, code: 187, interpreterData: 188, wasmExport: 199, nonString: 128, representation: 7,
	cons: 1, external: 2, sliced: 3, thin: 5, encoding: 8, oneByte: 8,
}

// builder makes objects in a fake heap.
type builder struct {
	fake
	texts []uint64 // strings of characters
}

// object adds an object of a type, with the given words after its map, and returns it.
func (b *builder) object(kind int, words ...uint64) uint64 {
	m := b.place(0, uint64(kind)<<32)
	return b.place(m+1, words) + 1
}

func (b *builder) place(words ...any) uint64 {
	at := base + uint64(len(b.bytes))
	for _, w := range words {
		switch w := w.(type) {
		case int:
			b.bytes = binary.LittleEndian.AppendUint64(b.bytes, uint64(w))
		case uint64:
			b.bytes = binary.LittleEndian.AppendUint64(b.bytes, w)
		case []uint64:
			for _, w := range w {
				b.bytes = binary.LittleEndian.AppendUint64(b.bytes, w)
			}
		}
	}
	return at
}

// text adds a string of Latin-1.
func (b *builder) text(s string) uint64 {
	object := b.object(8, uint64(len(s))<<32)
	b.texts = append(b.texts, object)
	b.bytes = append(b.bytes, s...)
	for len(b.bytes)%8 != 0 || len(s) < 16 && len(b.bytes)%64 != 0 {
		b.bytes = append(b.bytes, 0)
	}
	return object
}

// function adds a function and returns its identity.
func (b *builder) function() runtimes.Identity {
	name := b.object(1, 5<<32, b.text("na"), b.text("me!")) // a concatenation
	scope := b.object(280, 3<<12, 0, 1<<32, 3<<32, 90<<32, b.text("local"), 0, name, 0)
	script := b.object(167, b.text("x\ny\nz"), b.text("file:///s.mjs"), 0, 0, 0, 0, 0, 0)
	table := b.object(217, 2<<32, 0x0c01) // position 2 at the start of the code
	code := b.object(186, 0, 0, table, 0, 0, 0, 0)
	return b.identity(b.object(282, code, 0, scope, 0, script, 7, 9, 0))
}

// identity returns the identity of a function.
func (b *builder) identity(shared uint64) runtimes.Identity {
	h := heap{testLayout, b}
	words, err := h.read(shared, maxShared)
	if err != nil {
		panic(err)
	}
	check, err := h.check(words)
	if err != nil {
		panic(err)
	}
	return runtimes.Identity{Epoch: 1, Address: shared - 1, Check: check}
}

func TestPlaces(t *testing.T) {
	var b builder
	id := b.function()
	r := newReader(testLayout, &b)
	got, _ := r.Places(runtimes.Frame{Identity: id, Position: -1})
	want := runtimes.Code{Kind: bpf.RuntimeV8, Name: "name!", File: "/s.mjs", FirstLine: 2}
	if len(got) != 1 || got[0].Function != want || got[0].Line != 0 {
		t.Errorf("%+v, want %+v", got, want)
	}
	id.Check++ // another function was there
	if got, _ := r.Places(runtimes.Frame{Identity: id, Position: -1}); got != nil {
		t.Errorf("%+v for a function that is gone", got)
	}
}

// A function that WebAssembly exports is named after its index. It has no script.
func TestWasmName(t *testing.T) {
	var b builder
	id := b.identity(b.object(282, b.object(testLayout.wasmExport), 0, b.text("12"), 0, b.object(131, 0, 0, 0, 0, 0, 0, 0, 0), 7, 9, 0))
	got, _ := newReader(testLayout, &b).Places(runtimes.Frame{Identity: id, Position: -1})
	want := runtimes.Code{Kind: bpf.RuntimeV8, Name: "wasm-function[12]"}
	if len(got) != 1 || got[0].Function != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// A read that times out once loses nothing permanently: either the places are not final, or
// they are complete.
func TestPlacesLater(t *testing.T) {
	want := ""
	for fails := 0; ; fails++ {
		var b builder
		id := b.function()
		b.reads, b.fails = 0, fails
		r := newReader(testLayout, &b)
		f := runtimes.Frame{Identity: id, Position: testLayout.bytecodeData - 1}
		places, final := r.Places(f)
		if !final {
			if places, final = r.Places(f); !final {
				t.Errorf("read %d fails once, and the places are never final", fails)
			}
		}
		got := fmt.Sprint(places)
		if fails == 0 {
			want = got
		}
		if got != want {
			t.Errorf("read %d fails: got %s, want %s", fails, got, want)
		}
		if fails > b.reads {
			t.Logf("%d reads", b.reads)
			break
		}
	}
	if !strings.Contains(want, "/s.mjs 2 0 } 2") {
		t.Errorf("got %s, want line 2", want)
	}
}

// moveTexts moves all strings. Other strings take their places.
func (b *builder) moveTexts() {
	for _, from := range b.texts {
		to := uint64(base + len(b.bytes) + 1)
		old := b.bytes[from-1-base:][:testLayout.stringChars+16]
		b.bytes = append(b.bytes, old...)
		for at := 0; at < len(b.bytes); at += word {
			if w := b.bytes[at:]; binary.LittleEndian.Uint64(w) == from {
				binary.LittleEndian.PutUint64(w, to)
			}
		}
		old = b.bytes[from-1-base:][:testLayout.stringChars+16] // append may have copied it
		old[word] ^= 1                                          // the hash
		for i := range old[testLayout.stringChars:] {
			old[testLayout.stringChars+i] = '?'
		}
	}
}

// If V8 moves strings while a function is read, its places are not final, or they are right.
func TestPlacesMoved(t *testing.T) {
	for moves := 1; ; moves++ {
		var b builder
		id := b.function()
		b.reads, b.moves, b.move = 0, moves, b.moveTexts
		r := newReader(testLayout, &b)
		f := runtimes.Frame{Identity: id, Position: testLayout.bytecodeData - 1}
		places, final := r.Places(f)
		if !final && len(places) == 0 {
			if places, final = r.Places(f); !final {
				t.Errorf("strings move before read %d, and the places are never final", moves)
			}
		}
		want := runtimes.Code{Kind: bpf.RuntimeV8, Name: "name!", File: "/s.mjs", FirstLine: 2}
		if len(places) != 1 || places[0].Function != want {
			t.Errorf("strings move before read %d: got %+v, want %+v", moves, places, want)
		}
		if moves > b.reads {
			t.Logf("%d reads", b.reads)
			break
		}
	}
}

// FuzzPlaces modifies the memory of a process with a function. Names remain valid text, and
// the work is bounded.
func FuzzPlaces(f *testing.F) {
	f.Add(uint16(0), []byte{}, uint16(0))
	f.Add(uint16(100), []byte{1, 2, 3, 4, 5, 6, 7, 8}, uint16(300))
	f.Add(uint16(200), []byte("%80"), uint16(487)) // in the file's URL
	f.Fuzz(func(t *testing.T, at uint16, change []byte, more uint16) {
		var b builder
		id := b.function()
		for _, at := range []uint16{at, more} {
			copy(b.bytes[int(at)%len(b.bytes):], change)
		}
		h := heap{testLayout, &b}
		if words, err := h.read(id.Address+1, maxShared); err == nil {
			if check, err := h.check(words); err == nil {
				id.Check = check
			}
		}
		b.reads = 0
		places, _ := newReader(testLayout, &b).Places(runtimes.Frame{Identity: id, Position: int(more)})
		for _, p := range places {
			for _, s := range []string{p.Function.Name, p.Function.File} {
				if !utf8.ValidString(s) || utf8.RuneCountInString(s) > maxFile+1 {
					t.Errorf("text %q", s)
				}
			}
			if p.Function.Name == "" || strings.Count(p.Function.Name, "") > maxName+3 || p.Line < 0 {
				t.Errorf("%+v", p)
			}
		}
		if b.reads > 8*maxPieces {
			t.Errorf("%d reads", b.reads)
		}
	})
}
