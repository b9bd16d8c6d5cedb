package cpython

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"

	"fulgur/internal/runtimes"
	"fulgur/internal/testenv"
)

// dump prints the interpreter's version and, for all code in some modules, the first
// line, the line table, and the line of each instruction.
const dump = `
import asyncio.base_events, argparse, dis, inspect, json, sys, textwrap, typing
minor, out, seen = sys.version_info[1], [], set()
def visit(code):
    if id(code) in seen: return
    seen.add(id(code))
    if minor == 9:
        table, lines, line = code.co_lnotab, [], code.co_firstlineno
        starts = dict(dis.findlinestarts(code))
        for at in range(0, len(code.co_code), 2):
            line = starts.get(at, line)
            lines.append([at, line])
    else:
        table, lines = code.co_linetable, []
        for start, end, line in code.co_lines():
            lines += [[at // 2, line] for at in range(start, end, 2)]
    out.append([code.co_firstlineno, table.hex(), lines])
    for c in code.co_consts:
        if inspect.iscode(c): visit(c)
for module in (argparse, asyncio.base_events, dis, inspect, textwrap, typing):
    with open(module.__file__, encoding="utf-8") as f: visit(compile(f.read(), module.__file__, "exec"))
print(json.dumps([minor, out]))
`

// Lines match the interpreter's.
func TestLine(t *testing.T) {
	programs := append(strings.Fields(os.Getenv("FULGUR_TEST_MORE_PYTHONS")), testenv.Tool(t, "python3"))
	for _, program := range programs {
		text, err := exec.Command(program, "-c", dump).Output()
		if err != nil {
			t.Fatalf("%s: %v", program, err)
		}
		var parts [2]json.RawMessage
		var minor uint32
		var codes [][3]json.RawMessage
		decode(t, text, &parts)
		decode(t, parts[0], &minor)
		decode(t, parts[1], &codes)
		compared := 0
		for _, code := range codes {
			var first int
			var table string
			var lines [][2]*int
			decode(t, code[0], &first)
			decode(t, code[1], &table)
			decode(t, code[2], &lines)
			b, err := hex.DecodeString(table)
			if err != nil {
				t.Fatal(err)
			}
			c := runtimes.Code{Version: minor, FirstLine: first, Lines: string(b)}
			for _, l := range lines {
				want := first
				if l[1] != nil {
					want = *l[1]
				}
				if got := (Runtime{}).Line(&c, *l[0]); got != want {
					t.Fatalf("%s: got line %d at position %d of code that begins in line %d, want %d", program, got, *l[0], first, want)
				}
				compared++
			}
			if got := (Runtime{}).Line(&c, -1); got != first {
				t.Fatalf("%s: got line %d before the first instruction, want %d", program, got, first)
			}
		}
		t.Logf("%s: %d positions of 3.%d", program, compared, minor)
		if compared < 10000 {
			t.Errorf("%s: got only %d positions", program, compared)
		}
	}
}

// Line tables of versions that may not be installed, from the documents that define them:
// Objects/lnotab_notes.txt of CPython 3.9, and PEP 626.
func TestOldLines(t *testing.T) {
	for name, test := range map[string]struct {
		version uint32
		table   []byte
		lines   map[int]int // by position
	}{
		"3.9": {9, []byte{6, 1, 44, 5}, map[int]int{0: 1, 5: 1, 6: 2, 49: 2, 50: 7, 99: 7}},
		// A step of more than 127 lines, and one back.
		"3.9, far":  {9, []byte{2, 127, 0, 73, 2, 0xfe}, map[int]int{0: 1, 1: 1, 2: 201, 3: 201, 4: 199}},
		"3.10":      {10, []byte{4, 0, 2, 1, 4, 0xff}, map[int]int{0: 1, 1: 1, 2: 2, 3: 1, 4: 1, 5: 0}},
		"3.10, far": {10, []byte{2, 0, 0, 127, 2, 73}, map[int]int{0: 1, 1: 201, 2: 0}},
		// An instruction without a line gets the function's first line.
		"3.10, none": {10, []byte{2, 5, 2, 0x80, 2, 1}, map[int]int{0: 6, 1: 1, 2: 7}},
	} {
		c := runtimes.Code{Version: test.version, FirstLine: 1, Lines: string(test.table)}
		for position, want := range test.lines {
			if got := (Runtime{}).Line(&c, position); got != want {
				t.Errorf("%s: got line %d at position %d, want %d", name, got, position, want)
			}
		}
	}
}

func decode(t *testing.T, text []byte, to any) {
	t.Helper()
	if err := json.Unmarshal(text, to); err != nil {
		t.Fatal(err)
	}
}

// Arbitrary tables give a line or none. The length of a table bounds the time to search
// it.
func FuzzLine(f *testing.F) {
	f.Add(uint8(9), []byte{2, 1, 4, 255, 0, 127}, 3)
	f.Add(uint8(10), []byte{2, 1, 4, 128, 6, 255}, 3)
	f.Add(uint8(11), []byte{0x80, 0, 0xd8, 4, 8, 0xf0, 0x7f, 0x7f, 0x7f, 1, 2, 3, 0xe8, 0x41, 3, 0xff}, 3)
	f.Fuzz(func(t *testing.T, version uint8, table []byte, position int) {
		c := runtimes.Code{Version: uint32(version), FirstLine: 7, Lines: string(table)}
		if line := (Runtime{}).Line(&c, position); line < 0 || line > maxLine {
			t.Errorf("got line %d, want 0 to maxLine", line)
		}
	})
}
