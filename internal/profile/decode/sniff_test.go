package decode

import (
	"bytes"
	"encoding/binary"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"

	"fulgur/internal/branches/autofdo/sampleprof"
	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/encodetest"
	"fulgur/internal/profile/encode/flame"
	"fulgur/internal/profile/encode/otlp"
	"fulgur/internal/profile/encode/pprof"
	"fulgur/internal/testenv"
)

// Files that are not read are named as what they are.
func TestRefused(t *testing.T) {
	elf := func(kind byte) string {
		return "\x7fELF\x02\x01\x01" + strings.Repeat("\x00", 9) + string([]byte{kind, 0})
	}
	tar := strings.Repeat("\x00", 257) + "ustar\x0000"
	for in, want := range map[string]string{
		"PK\x03\x04":                               "is a zip archive: unpack it",
		"\x04\x22\x4d\x18":                         "is compressed with lz4: unpack it with lz4 -d",
		"7z\xbc\xaf\x27\x1c\x00\x04":               "7-Zip",
		"a" + tar[1:]:                              "tar archive",
		elf(3):                                     "is an ELF file",
		elf(4):                                     "is a core dump",
		"\x89PNG\r\n\x1a\n":                        "picture",
		"FLR\x00\x00\x02":                          "JFR",
		"QPERFSTREAM\x00\x13":                      "hotspot",
		"SLOW\xf3\x00\x20\x00":                     "method trace of Android",
		"JAVA PROFILE 1.0.2\x00":                   "HPROF",
		"Nettrace\x14\x00\x00\x00":                 ".nettrace",
		"\x17\x08Dtracing6\x00":                    "trace.dat",
		"# tracer: nop\n#\n":                       "ftrace",
		"PERFFILE\x00\x00\x00\x00":                 "is perf.data",
		"gmon\x01\x00\x00\x00":                     "gprof",
		"\x81rforpl\xff\x08\x00":                   "LLVM",
		"\xfflprofi\x81\x0b\x00":                   "LLVM",
		"\x84\xe4\xd0\xb1\xf4\xc9\x94\xa8\x53g":    "AutoFDO",
		"main:184019:0\n 4: 534\n":                 "AutoFDO",
		"adcg*704\x00\x00":                         "GCC",
		"1 main 5 1 foo 0 0 12\n":                  "fdata",
		"B 4b196f 4b19e0 2 0\n":                    "preagg",
		"heap_v2/524288\n  t*: 1: 2 [0: 0]\n":      "jemalloc",
		"goroutine 1 [running]:\nmain.main()\n":    "?debug=2",
		"# callgrind format\nversion: 1\n":         "valgrind",
		"PeriodType: cpu nanoseconds\nPeriod: 1\n": "pprof -proto",
		"<svg>": "is an SVG picture",
		"<?xml version=\"1.0\"?>\n<!-- x -->\n<svg width=\"1\">":      "is an SVG picture",
		"<?xml version=\"1.0\"?>\n<other>":                            "is XML",
		`{"traceEvents":[]}`:                                          "trace of Chrome",
		`[{"name":"a","ph":"X"}]`:                                     "JSON array",
		`{"exporter":"x","shared":{"frames":[]},"profiles":[]}`:       "speedscope",
		`{"nodes":[],"startTime":1,"endTime":2}`:                      ".cpuprofile",
		`{"resourceSpans":[]}`:                                        "traces",
		`{"flamebearer":{}}`:                                          "Pyroscope",
		`{"sampleType":[],"sample":[],"stringTable":[]}`:              "pprof profile as JSON",
		`{"meta":{"version":27,"interval":1},"libs":[],"threads":[]}`: "Gecko",
		"{": "is JSON, but not",
		"    work\n    main\n    -                prog (7)\n        12\n\n": "bcc",
		"write(1, \"a;b 1\\n\", 6)       = 6\n":                             "strace",
		"[pid 17] 10:11:12.5 read(3, \"\", 8) = -1 EAGAIN (Try again)\n":    "strace",
		"100 execve(\"/x\", [\"x\"]) = 0\n":                                 "strace",
		"\x0a\x20\x0a\x10\x08\x00\x10\x70\x18\x00":                          "perf.data as a protocol buffer",
		"\x0a\x20\x0a\x10\x08\x00\x10\x88\x01\x18\x00":                      "perf.data as a protocol buffer",
		"v 10400 3\nX ls /\nI 1000 5e2919\na 30 1\n":                        "heaptrack_print",
		"x 7\n# TYPE y counter\ny{path=\"/a;b\"} 10\n":                      "Prometheus",
		"--- Execution profile ---\nTotal samples       : 7\n":              "-o collapsed",
		"Process 42: python a.py\nPython v3.11.2 (/usr/bin/python3.11)\n":   "py-spy record",
		"sample:\n  event_type: cpu-clock\n  time: 21\n":                    "report_sample.py",
		"Flat profile:\n\nEach sample counts as 0.01 seconds.\n":            "gprof",
		"\"main\" #1 prio=5 os_prio=0 tid=0x7f\n":                           "thread dump",
		"memray\x00\x0c\x00":                                                "memray",
		"MOJO\x02":                                                          "mojo2austin",
		"Function Stack,CPU Time:Self,Module\nTotal,0.0,x\n":                "inferno-collapse-vtune",
		"Level,Function Name,Number of Calls,Module Name,\n":                "inferno-collapse-vsprof",
		"<?xml version=\"1.0\"?>\n<trace-query-result>\n<node/>":            "inferno-collapse-xctrace",
		"Bytes Used\tCount\t\tSymbol Name\n 1 MB 100.0%\t7\t \tstart\n":     "Instruments",
		`{"head":{"functionName":"(root)"},"startTime":1}`:                  ".cpuprofile",
		`{"label":"","duration":7,"markers":[],"frames":[]`:                 "Firefox's older developer tools",
		`{"string_table":["f"],"data":[]}`:                                  "samply",
		`{"dhatFileVersion":2,"mode":"heap"}`:                               "DHAT",
		"\n  libc.so`write+0x4\n  app`main+0x12\n        7\n\n":             "stackcollapse.pl",
		"just words\nand more words\n":                                      "text of no known format",
		"\x00\x01\x02\x03":                                                  "no known format",
		"\x0a\x03\x32\x01x\x0a\x03\x32\x01y":                                "no known format", // messages, but none of pprof
	} {
		format, err := sniff([]byte(in))
		if err == nil || format != "" || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got format %q and error %v, want an error about %q", in, format, err, want)
		}
	}
}

// Formats are recognized whatever their first byte or their first key.
func TestSniff(t *testing.T) {
	for in, want := range map[string]Format{
		"<module> (app.py:10);work (app.py:3) 139\n":         Folded,
		"<main> - a.rb:1 10\n":                               Folded,
		"{closure} 10\n":                                     Folded, // of PHP
		"[unknown];main 3\n":                                 Folded,
		"# a comment\n\nmain 10\n":                           Folded,
		"WARNING: 5 stacks lost\na;b 1\n":                    Folded,
		"{\"a\"};b 3\n":                                      Folded,
		"<html>;f 3\n# in Java\n<svg>;<?xml 1\n":             Folded,
		"[a];b 3\n":                                          Folded,
		"@:\n[1]                    2 |@@@@|\n":              Bpftrace,
		"@n: 7\n\n":                                          Bpftrace,
		"a\x01b;c 1\n":                                       Folded,
		`{"meta":{"preprocessedProfileVersion":70}}`:         Firefox,
		`{"libs":[` + strings.Repeat(`{"name":"x"},`, 10000): Firefox,
		`{ "schemaUrl": "x", "resourceProfiles": [] }`:       OTLPJSON,
		"\n{\n  \"dictionary\": {}}":                         OTLPJSON,
		"heap profile: 1: 64 [2: 128] @ heap/1048576\n":      Pprof,
		"goroutine profile: total 7\n1 @ 0x1 0x2\n":          Pprof,
		"--- contention:\ncycles/second=1\n":                 Pprof,
		"--- threadz 1 ---\n":                                Pprof,
	} {
		if format, err := sniff([]byte(in)); format != want || (err == nil) != (want != "") {
			t.Errorf("%.60q: got %q, %v; want %q", in, format, err, want)
		}
	}
	binaryCPU := func(order binary.AppendByteOrder) (b []byte) {
		for _, word := range []uint64{0, 3, 0, 10000, 0, 1, 1, 0x1000, 0, 1, 0} {
			b = order.AppendUint64(b, word)
		}
		return b
	}
	for _, data := range [][]byte{binaryCPU(binary.LittleEndian), binaryCPU(binary.BigEndian)} {
		if format, err := sniff(data); format != Pprof {
			t.Errorf("a CPU profile of gperftools: got %q, %v", format, err)
		}
	}
}

// Every format is read however it is compressed, and text in every encoding.
func TestPacked(t *testing.T) {
	p := encodetest.Typical()
	formats := map[Format][]byte{
		Folded: []byte(fold(t, p, 0)),
		Pprof:  encoded(t, func(w io.Writer) error { return pprof.Write(w, p, pprof.Options{}) }),
		OTLP:   encoded(t, func(w io.Writer) error { return otlp.Write(w, p, otlp.Options{}) }),
		Page:   encoded(t, func(w io.Writer) error { return flame.WriteHTML(w, p, flame.Options{}) }),
	}
	for format, data := range formats {
		want := decoded(t, data, format).Total(0)
		for _, tool := range []string{"gzip", "zstd", "xz", "bzip2"} {
			if format == Pprof && tool != "gzip" {
				continue // compressed by its writer
			}
			if format == Pprof {
				data = gunzip(t, data)
			}
			packed := pack(t, tool, data)
			if got := decoded(t, packed, format).Total(0); got != want {
				t.Errorf("%s compressed with %s: got a total of %d, want %d", format, tool, got, want)
			}
			if _, _, err := Read(t.Context(), bytes.NewReader(packed[:len(packed)/2]), "half"); err == nil {
				t.Errorf("%s: got no error for half of the data compressed with %s", format, tool)
			}
		}
	}
	text := "a;\u00e9\U0001f525 7\r\n"
	for name, order := range map[string]binary.AppendByteOrder{"little-endian": binary.LittleEndian, "big-endian": binary.BigEndian} {
		data := order.AppendUint16(nil, 0xfeff)
		for _, unit := range utf16.Encode([]rune(strings.Repeat(text, 5000))) {
			data = order.AppendUint16(data, unit)
		}
		got := decoded(t, data, Folded)
		if names := functions(got); got.Total(0) != 35000 || !slices.Contains(names, "\u00e9\U0001f525") {
			t.Errorf("UTF-16, %s: got a total of %d and functions %q", name, got.Total(0), names)
		}
	}
	if got := decoded(t, []byte(utf8Mark+text), Folded); got.Total(0) != 7 || slices.ContainsFunc(functions(got), func(n string) bool { return strings.Contains(n, utf8Mark) }) {
		t.Errorf("UTF-8 with a mark: got %q", functions(got))
	}
}

// pack returns data as a tool compresses it.
func pack(t *testing.T, tool string, data []byte) []byte {
	t.Helper()
	cmd := exec.Command(testenv.Tool(t, tool), "-c")
	cmd.Stdin = bytes.NewReader(data)
	packed, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return packed
}

// functions returns the names of the functions of a profile.
func functions(p *profile.Profile) (names []string) {
	for _, f := range p.Functions {
		names = append(names, f.Name)
	}
	return names
}

// gunzip returns the unpacked data of a gzip file.
func gunzip(t *testing.T, data []byte) []byte {
	t.Helper()
	in, err := unpacked(t.Context(), bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := io.ReadAll(in)
	if err != nil {
		t.Fatal(err)
	}
	return plain
}

func TestSampleProfiles(t *testing.T) {
	var p sampleprof.Profile
	p.Function("f").Head = 2
	for _, format := range []sampleprof.Format{sampleprof.Text, sampleprof.Binary} {
		var b bytes.Buffer
		if err := p.Write(&b, format); err != nil {
			t.Fatal(err)
		}
		if got := Kind(b.Bytes()); got != LLVMSamples {
			t.Errorf("%s: got %q", format, got)
		}
	}
	for data, want := range map[string]bool{
		"f:1:2\n 1: 20\n":                     true,
		"# comment\nf:1:2\n":                  true,
		"":                                    false,
		"T 11 12 13 4\n":                      false,
		"E cycles:u\n":                        false,
		"B X:1:2 3 4 5\n":                     false,
		"mode: set\nf.go:1.2,3.4 5 6\n":       false,
		strings.Repeat("x", 70000) + ":1:1\n": true,
	} {
		if got := Kind([]byte(data)) == LLVMSamples; got != want {
			t.Errorf("%.20q: got %v, want %v", data, got, want)
		}
	}
}
