package unwind

import (
	"bufio"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"fulgur/internal/symbols/elffile"
	"fulgur/internal/testenv"
)

// readelfRow is a row in the output of `readelf --debug-dump=frames-interp`.
type readelfRow struct {
	addr, end uint64 // the row applies to [addr, end)
	cfa       string // "rsp+8", "exp"
	// "c-16", "u", "s", "exp", "" if not mentioned
	fp, ra, base, sp string
}

var parentheses = regexp.MustCompile(` \(\w+\)`)

// readelfFrames calls yield with the rows of each FDE in readelf's output.
func readelfFrames(out io.Reader, fpName string, yield func(eh bool, start, end uint64, rows []readelfRow)) error {
	type block struct {
		isFDE      bool
		start, end uint64
		rows       []readelfRow
		cie        string
	}
	var (
		eh      bool
		at      block
		cieID   string
		cies    = map[string][]readelfRow{}
		columns []string
	)
	flush := func() {
		switch {
		case cieID != "":
			cies[cieID] = at.rows
		case at.isFDE:
			rows := at.rows
			if len(rows) == 0 {
				rows = append(rows, cies[at.cie]...)
				if len(rows) > 0 {
					rows[0].addr = at.start
				}
			}
			for i := range rows {
				rows[i].end = at.end
				if i > 0 {
					rows[i-1].end = rows[i].addr
				}
			}
			yield(eh, at.start, at.end, rows)
		}
		at, cieID = block{}, ""
	}
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		fields := strings.Fields(parentheses.ReplaceAllString(line, "")) // "r5 (rdi)"
		switch {
		case strings.HasPrefix(line, "Contents of the "):
			flush()
			clear(cies)
			eh = strings.Contains(line, ".eh_frame")
		case len(fields) > 3 && fields[3] == "CIE":
			flush()
			cieID = fields[0]
		case len(fields) > 4 && fields[3] == "FDE":
			flush()
			at.isFDE = true
			at.cie = strings.TrimPrefix(fields[4], "cie=")
			pc := strings.TrimPrefix(fields[len(fields)-1], "pc=")
			lo, hi, _ := strings.Cut(pc, "..")
			at.start, _ = strconv.ParseUint(lo, 16, 64)
			at.end, _ = strconv.ParseUint(hi, 16, 64)
		case len(fields) > 1 && fields[0] == "LOC":
			columns = fields
		case len(fields) == len(columns) && len(fields) > 1 && len(fields[0]) == 16:
			row := readelfRow{cfa: fields[1]}
			row.addr, _ = strconv.ParseUint(fields[0], 16, 64)
			for i, c := range columns {
				switch c {
				case fpName:
					row.fp = fields[i]
				case "ra":
					row.ra = fields[i]
				case "rbx":
					row.base = fields[i]
				case "rsp", "sp":
					row.sp = fields[i]
				}
			}
			at.rows = append(at.rows, row)
		}
	}
	flush()
	return lines.Err()
}

// asReadelf compares a rule with readelf's row. It returns "" if they agree, or the
// difference.
func asReadelf(a *arch, r Rule, want readelfRow) string {
	names := map[Kind]string{KindSP: "rsp", KindFP: "rbp"}
	if a == arm64 {
		names = map[Kind]string{KindSP: "sp", KindFP: "x29"}
	}
	undefined := want.ra == "u" || want.ra == ""
	if want.sp != "" && want.sp != "u" && want.sp != "s" && r.Kind > KindEnd && r.Kind != KindSignal {
		return asReadelfElsewhere(r, want)
	}
	switch r.Kind {
	case KindEnd:
		if !undefined {
			return "end"
		}
		return ""
	case KindUnsupported:
		return "unsupported"
	case KindNone:
		return "none"
	case KindSP, KindFP:
		if got := fmt.Sprintf("%s%+d", names[r.Kind], r.CFA); got != want.cfa {
			return "cfa"
		}
		if a.base != maxRegister && !baseAgrees(r.Arg, want.base) {
			return "base"
		}
	case KindRegister:
		reg := want.cfa[:max(strings.IndexAny(want.cfa, "+-"), 0)]
		if got := fmt.Sprintf("%s%+d", reg, r.CFA); got != want.cfa || want.cfa == "exp" || registerNumber(reg) != int(r.Arg) {
			return "cfa"
		}
	default:
		if want.cfa != "exp" {
			return "cfa"
		}
		if r.Kind == KindSignal {
			return ""
		}
	}
	if !slotAgrees(r.FPSlot, r.FP, want.fp) {
		return "fp"
	}
	if undefined && !a.link || !slotAgrees(r.RASlot, r.RA, want.ra) {
		return "ra"
	}
	return ""
}

// asReadelfElsewhere compares a rule with readelf's row if the caller's stack pointer is not the
// CFA. readelf shows its place, but no expression of its value.
func asReadelfElsewhere(r Rule, want readelfRow) string {
	if reg := registerNumber(want.sp); reg >= 0 && (r.Kind != KindRegister || int(r.Arg) != reg || r.CFA != 0) {
		return "sp"
	}
	for _, c := range []struct {
		slot Slot
		off  int32
		want string
	}{{r.FPSlot, r.FP, want.fp}, {r.RASlot, r.RA, want.ra}} {
		if reg := registerNumber(c.want); (c.slot == SlotRegister) != (reg >= 0) || reg >= 0 && int(c.off) != reg {
			return "register"
		}
	}
	return ""
}

func baseAgrees(arg uint8, want string) bool {
	switch arg {
	case 0:
		return want == "u" || want == "s" || want == ""
	case BaseLost: // readelf shows nothing for an undefined register
		return want != "s" && !strings.HasPrefix(want, "c")
	}
	return want == fmt.Sprintf("c-%d", 8*int(arg))
}

func slotAgrees(s Slot, off int32, want string) bool {
	switch s {
	case SlotSame:
		return want == "u" || want == "s" || want == ""
	case SlotCFA:
		return want == fmt.Sprintf("c%+d", off)
	case SlotSP, SlotFP:
		return want == "exp"
	case SlotRegister:
		return registerNumber(want) == int(off)
	}
	return want == "u" || want == "exp" || want == "vexp" || strings.HasPrefix(want, "v")
}

func registerNumber(name string) int {
	if n, err := strconv.Atoi(strings.TrimLeft(name, "xr")); err == nil {
		return n
	}
	return slices.Index([]string{"rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp"}, name)
}

// agreement is the result of a comparison.
type agreement struct {
	rows, equal, unsupported, overlapped, outside int
	differences                                   []string
}

// compareWithReadelf looks up the first and last byte of each of readelf's rows.
func compareWithReadelf(t testing.TB, path string, table *Table, a *arch, code *codeRanges) agreement {
	t.Helper()
	cmd := exec.Command(testenv.Tool(t, "readelf"), "--debug-dump=frames-interp", path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	fp := "rbp"
	if a == arm64 {
		fp = "x29"
	}
	var sum agreement
	owner := map[uint64]bool{}
	var ehEnd uint64
	err = readelfFrames(out, fp, func(eh bool, start, end uint64, rows []readelfRow) {
		if _, ok := code.end(start); !ok || start == 0 || start >= end {
			sum.outside += len(rows)
			return
		}
		if owner[start] {
			sum.overlapped += len(rows)
			return
		}
		owner[start] = true
		if eh {
			ehEnd = max(ehEnd, end)
		}
		for _, row := range rows {
			if row.addr >= row.end {
				continue
			}
			sum.rows++
			ok := true
			for _, addr := range []uint64{row.addr, row.end - 1} {
				rule := table.Lookup(addr)
				switch how := asReadelf(a, rule, row); how {
				case "":
				case "unsupported":
					sum.unsupported++
					sum.differences = append(sum.differences, fmt.Sprintf("%#x: unsupported: %+v", addr, row))
					ok = false
				default:
					sum.differences = append(sum.differences, fmt.Sprintf("%#x: %s: %v, readelf %+v", addr, how, rule, row))
					ok = false
				}
				if !ok {
					break
				}
			}
			if ok {
				sum.equal++
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // readelf complains about other sections of some files
	return sum
}

// TestReadelf compares tables with readelf's interpretation of the same file. The files
// are the C library and the dynamic loader, or all ELF files below the paths in
// FULGUR_UNWIND_FILES, separated by spaces.
func TestReadelf(t *testing.T) {
	testenv.Slow(t)
	roots := strings.Fields(os.Getenv("FULGUR_UNWIND_FILES"))
	if len(roots) == 0 {
		for _, pattern := range []string{
			"/lib/x86_64-linux-gnu/libc.so.6", "/lib/x86_64-linux-gnu/libcrypto.so.?", "/lib64/ld-linux-x86-64.so.2",
			"/lib/aarch64-linux-gnu/libc.so.6", "/usr/aarch64-linux-gnu/lib/libc.so.6",
		} {
			found, _ := filepath.Glob(pattern)
			roots = append(roots, found...)
		}
	}
	files, total := 0, agreement{}
	for _, root := range roots {
		_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || path != root && !d.Type().IsRegular() || d.IsDir() {
				return nil
			}
			f, err := elffile.Open(path)
			if err != nil {
				return nil
			}
			defer f.Close()
			if f.Type() != elf.ET_EXEC && f.Type() != elf.ET_DYN {
				return nil
			}
			table, err := Compile(f, Options{})
			if errors.Is(err, ErrNoTable) {
				return nil
			}
			if err != nil {
				t.Errorf("%v", err)
				return nil
			}
			if table.Stats.Damaged > 0 {
				t.Logf("%s: %d damaged: %v", path, table.Stats.Damaged, table.Stats.Damage)
			}
			sum := compareWithReadelf(t, path, table, archOf(f.Machine()), newCodeRanges(f))
			files++
			total.rows += sum.rows
			total.equal += sum.equal
			total.unsupported += sum.unsupported
			total.overlapped += sum.overlapped
			total.outside += sum.outside
			for i, d := range sum.differences {
				if i == 5 {
					t.Logf("%s: and %d more", path, len(sum.differences)-i)
					break
				}
				t.Logf("%s: %s", path, d)
			}
			if wrong := sum.rows - sum.equal - sum.unsupported; wrong > 0 {
				t.Errorf("%s: %d of %d rows differ from readelf's", path, wrong, sum.rows)
			}
			return nil
		})
	}
	if files == 0 {
		testenv.Skip(t, "needs a C library in one of its usual places")
	}
	if total.equal == 0 {
		t.Error("got no row that equals readelf's")
	}
	t.Logf("%d files, %d rows, %d equal, %d unsupported; not compared: %d at an address described before, %d outside the code",
		files, total.rows, total.equal, total.unsupported, total.overlapped, total.outside)
}

// TestReadelfSeparate compares a program whose unwind information is in a compressed
// debug file.
func TestReadelfSeparate(t *testing.T) {
	dir := t.TempDir()
	program, debug := filepath.Join(dir, "program"), filepath.Join(dir, "program.debug")
	for _, command := range [][]string{
		{"gcc", "-O2", "-g", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables", "-o", program, filepath.Join("testdata", "frames.c")},
		{"objcopy", "--only-keep-debug", "--compress-debug-sections=zlib-gabi", program, debug},
		{"objcopy", "--strip-all", program},
	} {
		if out, err := exec.Command(testenv.Tool(t, command[0]), command[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", command[0], err, out)
		}
	}
	open := func(path string) *elffile.File {
		f, err := elffile.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		return f
	}
	stripped, separate := open(program), open(debug)
	table, err := Compile(stripped, Options{Debug: func() (*elffile.File, error) { return separate, nil }})
	if err != nil {
		t.Fatal(err)
	}
	sum := compareWithReadelf(t, debug, table, archOf(stripped.Machine()), newCodeRanges(stripped))
	t.Logf("%d rows, %d equal", sum.rows, sum.equal)
	if sum.rows < 20 || sum.equal != sum.rows {
		t.Errorf("%d of %d rows differ:\n%s", sum.rows-sum.equal, sum.rows, strings.Join(sum.differences, "\n"))
	}
}
