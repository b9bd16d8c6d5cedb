package decode

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/folded"
)

// sniff detects the format of an input that begins with head. The error of an input that is not
// read says what it is, and what to do.
func sniff(head []byte) (Format, error) {
	if k := foreignKind(head); k != nil {
		return "", k
	}
	text := bytes.TrimLeft(head, " \t\r\n")
	switch {
	case allStacks(head):
		return Folded, nil
	case jsonObject.Match(text):
		return sniffJSON(text)
	case isMarkup(text):
		return sniffMarkup(text)
	case isOTLP(head), isOTLPMessages(head):
		return OTLP, nil
	case bytes.ContainsFunc(head, isBinary):
		return sniffBinary(head)
	case isLegacyPprof(head):
		return Pprof, nil
	}
	return sniffText(head)
}

// isBinary reports whether a character does not occur in text.
func isBinary(r rune) bool { return r < ' ' && !strings.ContainsRune("\t\r\n\f\x1b", r) }

// foreign is the error of a kind of file that is not read. It says what the file is, and what to
// do.
type foreign struct{ is, remedy string }

// Error implements error.
func (f *foreign) Error() string { return "is " + f.is + ": " + f.remedy }

// Kinds of files that are recognized by more than their beginnings.
var (
	ftraceText   = foreign{"an ftrace or systrace text", "record with perf record -g instead"}
	dtraceStacks = foreign{"stacks of DTrace", "convert them with stackcollapse.pl of the FlameGraph tools"}
)

// Remedies of several kinds of files.
const (
	unpackFirst  = "unpack it first"
	giveProfile  = "give the profile of a program, not the program"
	giveFolded   = "it has no stacks to read; give the data that it was made from, such as folded stacks"
	noConversion = "fulgur does not read this format"
)

// signature is what a kind of file begins with: a regular expression of bytes, which are characters
// up to \xff here.
type signature struct {
	begins string
	kind   foreign
}

// signatures are the kinds of files that are recognized by their beginnings.
var signatures = compile([]signature{
	// Packed files, besides those of package unpack.
	{`PK(\x03\x04|\x05\x06)`, foreign{"a zip archive", unpackFirst}},
	{`\x04\x22\x4d\x18|\x02\x21\x4c\x18`, foreign{"compressed with lz4", "unpack it with lz4 -d first"}},
	{`7z\xbc\xaf\x27\x1c`, foreign{"a 7-Zip archive", unpackFirst}},
	{`\x5d\x00\x00`, foreign{"compressed with lzma", "unpack it with xz -d --format=lzma first"}},
	{`\x1f[\x9d\xa0]`, foreign{"compressed with compress", "unpack it with gzip -d first"}},
	{`LZIP`, foreign{"compressed with lzip", "unpack it with lzip -d first"}},
	{`\xff\x06\x00\x00sNaPpY`, foreign{"compressed with snappy", unpackFirst}},
	{`\x89LZO\x00`, foreign{"compressed with lzop", "unpack it with lzop -d first"}},
	{`Rar!\x1a\x07`, foreign{"a RAR archive", unpackFirst}},
	{`[\x00-\xff]{257}ustar`, foreign{"a tar archive", unpackFirst}},

	// Programs and pictures.
	{`\x7fELF[\x00-\xff]{12}(\x04\x00|\x00\x04)`, foreign{"a core dump", "it has the state of a process at one moment, and no profile"}},
	{`\x7fELF`, foreign{"an ELF file (a program, library or object)", giveProfile}},
	{`MZ[\x00-\xff]{62}|\xcf\xfa\xed\xfe|\xfe\xed\xfa\xcf`, foreign{"a program of Windows or macOS", giveProfile}},
	{`\x89PNG|GIF8|\xff\xd8\xff|%PDF-|RIFF[\x00-\xff]{4}WEBP`, foreign{"a picture or document", giveFolded}},
	{`SQLite format 3\x00`, foreign{"an SQLite database", noConversion}},

	// Other profilers.
	{`PERFILE2|2ELIFREP|PERFFILE`, foreign{"perf.data", "send it through perf script"}}, // its own readers come first
	{`QPERFSTREAM\x00`, foreign{"data of hotspot (perfparser)", "give perf.data itself"}},
	{`FLR\x00`, foreign{"a Java Flight Recorder file (JFR)", "convert it with jfrconv of async-profiler: jfrconv -o collapsed IN OUT.folded"}},
	{`JAVA PROFILE 1\.0`, foreign{"a file of Java's HPROF agent", "a heap dump has no stacks to count; for CPU time, use async-profiler"}},
	{`Nettrace|!Microsoft\.`, foreign{"a .nettrace file", "record the process with fulgur instead"}},
	{`\x17\x08Dtracing`, foreign{"a trace.dat file of trace-cmd", "record with perf record -g instead"}},
	{`\xc1\x1f\xfc\xc1|\xc1\xfc\x1f\xc1|/\* CTF `, foreign{"a CTF trace", "record with perf record -g instead"}},
	{`# tracer: `, ftraceText},
	{`gmon[\x00-\x02]|Flat profile:\r?\n|\s*Call graph \(`, foreign{"a profile of gprof", "it has no stacks; record with fulgur instead"}},
	{`go 1\.[0-9]+ trace\x00`, foreign{"an execution trace of Go", "make profiles of it with go tool trace -pprof=TYPE"}},
	{`SIMPLEPERF|sample:\r?\n +event_type: `, foreign{"a file of simpleperf report-sample", "use report_sample.py of simpleperf, whose text is that of perf script"}},
	{`\*version\n|SLOW[\x01-\x03\xf1-\xf3]`, foreign{"a method trace of Android", noConversion}},
	{`# callgrind format|version: [0-9]+\r?\ncreator: |desc: |events: |positions: |cmd: `, foreign{"a file of valgrind (callgrind, cachegrind or massif)", "it has no stacks; record with fulgur instead"}},
	{`v8-version,|shared-library,|code-creation,`, foreign{"a log of node --prof", "record node with fulgur instead, or send it through node --prof-process --preprocess for other viewers"}},
	{`heap_v2/`, foreign{"a heap profile of jemalloc", "convert it with jeprof --collapsed PROGRAM IN"}},
	{`--- symbol\n`, foreign{"a symbolized profile of gperftools (pprof --raw)", "convert it with pprof -proto"}},
	{`Showing (nodes|top) |\s*flat\s+flat%\s+sum%|Total: [0-9.]+\S* ?samples`, foreign{"a text report of pprof", "write the profile with pprof -proto"}},
	{`[^\n]*Time and Allocation Profiling Report`, foreign{"a profile of GHC", "convert it with inferno-collapse-ghcprof"}},
	{`PeriodType: |File: [^\n]*\n(Build ID: [^\n]*\n)?Type: |Type: [^\n]*\n(Time|Showing)`, foreign{"a text report of pprof", "write the profile with pprof -proto"}},
	{`goroutine [0-9]+ (gp=\S+ )?[^\n]*\[[^\n]*\]:\r?\n`, foreign{"a list of goroutines", "fetch it without ?debug=2"}},
	{`(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\r?\n)?Full thread dump|"[^"\n]*" (#\d+ )?(daemon )?prio=`, foreign{"a thread dump of Java", "it has the state of a process at one moment, and no profile"}},
	{`# To display the perf\.data header info|#\r?\n# Total Lost Samples|# Overhead `, foreign{"the table of perf report", "send perf.data through perf script"}},
	{`\s*CPU\s+ID\s+FUNCTION:NAME`, dtraceStacks},
	{`\s*\{"type": ?"[a-z_]+", ?"(data|msg)": ?`, foreign{"bpftrace's output in JSON", "run bpftrace without -f json"}},
	{`\x0a[\x00-\xff]{1,2}\x0a[\x00-\xff]{1,2}\x08[\x00-\x7f]\x10([\x40-\x7f]|[\x80-\xff]\x01)\x18`, foreign{"perf.data as a protocol buffer (of quipper or ChromeOS)", "give perf.data itself"}},
	{`v [0-9a-f]+ [0-9a-f]+\r?\n[XIs] `, foreign{"a file of heaptrack", "write its stacks with heaptrack_print -F OUT.folded IN"}},
	{`--- Execution profile ---`, foreign{"a text of async-profiler", "write it with -o collapsed"}},
	{`Process \d+: [^\n]*\nPython v`, foreign{"a dump of py-spy", "it has the state of a process at one moment; use py-spy record -f raw"}},
	{`([^\n]*\n)*# (HELP|TYPE) [a-zA-Z_:]\w* `, foreign{"metrics of Prometheus", "they have no stacks"}},
	{`memray\x00`, foreign{"a file of memray", noConversion}},
	{`MOJO[\x00-\x1f]`, foreign{"a binary file of Austin", "convert it with mojo2austin"}},
	{`Function Stack,|[^\n]*,CPU Time:Self`, foreign{"a table of VTune", "convert it with inferno-collapse-vtune"}},
	{`Level,Function Name,Number of Calls,`, foreign{"a table of Visual Studio", "convert it with inferno-collapse-vsprof"}},
	{`(<\?xml[^>]*>\s*)?<trace-query-result`, foreign{"Instruments' data as XML (xctrace export)", "convert it with inferno-collapse-xctrace"}},
	{`Weight\t+Self Weight\t|Running Time\t+Self|Bytes Used\t+Count\t|Cycles\t+Self`, foreign{"a deep copy of Instruments", noConversion}},
	{`@ \S+ \[\d+ samples\]\r?\n`, foreign{"the call graph of pmcstat", "convert it with stackcollapse-pmc.pl of the FlameGraph tools"}},
	{`(\[pid +\d+\] |\d+ +)?([0-9:.]+ )?[a-z]\w*\([^\n]*\) += (-?\d|\?)`, foreign{"the output of strace", "it has system calls but no stacks"}},
	{`Analysis of sampling `, foreign{"the report of macOS's sample", "convert it with stackcollapse-sample.awk of the FlameGraph tools"}},

	// Profiles for compilers.
	{`[\xff\x81][Ll]?(lprofi|[Rr]forpl)[\x81\xff]`, foreign{LLVMCounts, "it has counts but no stacks"}},
	{`[\x00-\xff]{2}\xd0\xb1\xf4\xc9\x94\xa8S`, foreign{LLVMSamples, "it has counts but no stacks"}},
	{`:(ir|fe|csir)\r?\n`, foreign{LLVMCounts, "it has counts but no stacks"}},
	{`adcg[\x00-\xff]{4}|oncg[\x00-\xff]{4}`, foreign{GCCProfile, "it has counts but no stacks"}},
	{`boltedcollection\r?\n|no_lbr( |\r?\n)|[0145] \S+ [0-9a-f]+ [0145] \S+ [0-9a-f]+ \d+ \d+\r?\n`, foreign{Fdata, "it has branches but no stacks"}},
	{`([BFSTR] ((X:)?[0-9a-f]{4,} )+[0-9]+( [0-9]+)?|E:\S*)\r?\n`, foreign{"a profile for llvm-bolt (preagg)", "it has branches but no stacks; fulgur merge reads it"}},
})

// compiledSignature is a signature with its compiled expression.
type compiledSignature struct {
	begins *regexp.Regexp
	kind   foreign
}

// compile compiles the expressions of signatures.
func compile(list []signature) (compiled []compiledSignature) {
	for _, s := range list {
		compiled = append(compiled, compiledSignature{regexp.MustCompile(`\A(?s:` + s.begins + `)`), s.kind})
	}
	return compiled
}

// Kinds of profiles for compilers and llvm-bolt, see [Kind].
const (
	LLVMSamples = "a sample profile of clang (AutoFDO)"
	LLVMCounts  = "a profile of LLVM's instrumentation"
	GCCProfile  = "a profile of GCC (AutoFDO or gcov)"
	Fdata       = "a profile for llvm-bolt (fdata)"
)

// Kind names the kind of a file that is not read and that begins with head, "" if it is unknown.
func Kind(head []byte) string {
	if kind := foreignKind(head); kind != nil {
		return kind.is
	}
	return ""
}

// foreignKind returns the kind of an input that is recognized by its beginning and not read, nil for
// others.
func foreignKind(head []byte) *foreign {
	const enough = 4096 // a line with a long name
	var chars strings.Builder
	for _, b := range head[:min(len(head), enough)] {
		chars.WriteRune(rune(b))
	}
	for i := range signatures {
		if s := &signatures[i]; s.begins.MatchString(chars.String()) {
			return &s.kind
		}
	}
	if sampleText.Match(head) && (bytes.ContainsFunc(head, isBinary) || !bytesHave(head, ";")) {
		return &foreign{LLVMSamples, "it has counts but no stacks"}
	}
	return nil
}

// sampleText matches the first line of a sample profile of clang as text. Its name may be long.
var sampleText = regexp.MustCompile(`\A(?:[ \t]*(?:#.*)?\r?\n)*\S+:[0-9]+:[0-9]+[ \t]*\r?(?:\n|\z)`)

func bytesHave(head []byte, text string) bool { return bytes.Contains(head, []byte(text)) }

// isMarkup reports whether text begins like HTML or XML. Frames such as "<module>" also begin with
// "<".
func isMarkup(text []byte) bool { return markup.Match(text) || bytesHave(text, pageScript) }

var markup = regexp.MustCompile(`\A(?i:<!doctype|<html|<svg|<\?xml|<!--|<head|<body|<script)`)

// sniffMarkup recognizes HTML and XML. The data of fulgur's pages is far from their beginning.
func sniffMarkup(text []byte) (Format, error) {
	switch {
	case svg.Match(text):
		return "", &foreign{"an SVG picture, not a flame graph page of fulgur", giveFolded}
	case html.Match(text), bytesHave(text, pageScript):
		return Page, nil
	}
	return "", &foreign{"XML", noConversion}
}

var (
	svg  = regexp.MustCompile(`(?i)\A(<\?xml[^>]*>\s*|<!doctype svg[^>]*>\s*|<!--(?s:.*?)-->\s*)*<svg`)
	html = regexp.MustCompile(`(?i)\A(<!--(?s:.*?)-->\s*)*<(!doctype html|html|head|body|script)`)
)

// jsonKind is a kind of JSON.
type jsonKind struct {
	// keys are members of the outermost object, or "a.b" of an object in it. All must be
	// there.
	keys []string
	kind foreign
}

var firefoxTools = foreign{"a profile of Firefox's older developer tools", "open it at https://profiler.firefox.com and download it from there"}

// jsonKinds are the kinds of JSON that are not read, the more specific first.
var jsonKinds = []jsonKind{
	{[]string{"traceEvents"}, foreign{"a trace of Chrome", noConversion}},
	{[]string{"shared.frames", "profiles"}, foreign{"a profile of speedscope", "its viewer cannot export it; give the profile that it was made from"}},
	{[]string{"nodes", "timeDeltas"}, foreign{"a .cpuprofile of V8", noConversion}},
	{[]string{"head.functionName"}, foreign{"a .cpuprofile of V8", noConversion}},
	{[]string{"nodes", "startTime"}, foreign{"a .cpuprofile of V8", noConversion}},
	{[]string{"head.callFrame"}, foreign{"a .heapprofile of V8", noConversion}},
	{[]string{"snapshot.meta"}, foreign{"a heap snapshot of V8", "it has objects but no stacks"}},
	{[]string{"sampleType", "stringTable"}, foreign{"a pprof profile as JSON", "give its protocol buffer (.pb.gz)"}},
	{[]string{"sample_type", "string_table"}, foreign{"a pprof profile as JSON", "give its protocol buffer (.pb.gz)"}},
	{[]string{"resourceSpans"}, foreign{"OpenTelemetry's traces", "they have no stacks"}},
	{[]string{"resourceLogs"}, foreign{"OpenTelemetry's logs", "they have no stacks"}},
	{[]string{"resourceMetrics"}, foreign{"OpenTelemetry's metrics", "they have no stacks"}},
	{[]string{"flamebearer"}, foreign{"a flame graph of Pyroscope", "export the profile as pprof"}},
	{[]string{"linux-perf-json-version"}, foreign{"perf data convert --to-json", "give perf.data itself"}},
	{[]string{"findings", "functions"}, foreign{"a report of fulgur", "give the profile that it was made from"}},
	{[]string{"mode", "interval", "frames"}, foreign{"a dump of Ruby's stackprof", "convert it with stackprof --flamegraph or record with fulgur instead"}},
	{[]string{"recording"}, foreign{"a recording of Safari", noConversion}},
	{[]string{"nodes"}, foreign{"a .cpuprofile of V8", noConversion}},
	{[]string{"program", "cost_centres"}, foreign{"a profile of GHC", "convert it with inferno-collapse-ghcprof"}},
	{[]string{"profile.meta"}, firefoxTools},
	{[]string{"label", "duration", "markers"}, firefoxTools},
	{[]string{"string_table", "data"}, foreign{"the symbols beside a profile of samply", "give the profile"}},
	{[]string{"dhatFileVersion"}, foreign{"a heap profile of valgrind (DHAT)", noConversion}},
	{[]string{"root_frame"}, foreign{"a session of pyinstrument", noConversion}},
	{[]string{"name", "value", "children"}, foreign{"a tree for d3-flame-graph", "give the profile that it was made from"}},
}

// jsonObject matches the beginning of an object. PHP's frames such as "{main}" also begin with "{".
var jsonObject = regexp.MustCompile(`\A\{\s*(["}]|\z)`)

// Keys of the formats that are read.
const firefoxVersionKey = "meta.preprocessedProfileVersion"

// sniffJSON recognizes JSON by the keys in its beginning.
func sniffJSON(text []byte) (Format, error) {
	keys, complete := jsonKeys(text)
	switch {
	case keys["resourceProfiles"], keys["dictionary"]:
		return OTLPJSON, nil
	case keys[firefoxVersionKey]:
		return Firefox, nil
	}
	if kind := jsonKindWith(func(key string) bool { return keys[key] }); kind != nil {
		return "", kind
	}
	switch {
	case keys["meta.version"] && (keys["libs"] || keys["threads"] || keys["meta.processType"] || keys["meta.interval"]):
		return "", &foreign{"an unprocessed profile of Firefox (Gecko)", "open it at https://profiler.firefox.com and download it from there"}
	case !complete && (keys["meta"] || keys["libs"] || keys["shared"] || keys["threads"] || len(keys) == 0 && len(text) > sniffed/2):
		return Firefox, nil // its version comes later
	}
	return "", &unknownJSON
}

// unknownJSON is the kind of JSON without keys of a known kind.
var unknownJSON = foreign{"JSON, but not of the Firefox Profiler or OpenTelemetry", "meta.preprocessedProfileVersion and resourceProfiles are missing"}

// jsonKindWith returns the kind of JSON whose keys has knows, nil if there is none.
func jsonKindWith(has func(key string) bool) *foreign {
	for i := range jsonKinds {
		k := &jsonKinds[i]
		if !slices.ContainsFunc(k.keys, func(key string) bool { return !has(key) }) {
			return &k.kind
		}
	}
	return nil
}

// notFirefox returns the error of JSON that was taken for a profile of Firefox by its beginning, but has
// no version. keys are those of the outermost object that were read.
func notFirefox(keys map[string]bool) error {
	kind := jsonKindWith(func(key string) bool {
		outer, _, _ := strings.Cut(key, ".")
		return keys[outer]
	})
	return cmp.Or(kind, &unknownJSON)
}

// jsonKeys returns the keys in the beginning of an object, and whether it is there as a whole. Keys of
// objects in it are "a.b".
func jsonKeys(text []byte) (keys map[string]bool, complete bool) {
	keys = map[string]bool{}
	j := jsonReader{r: bufio.NewReader(bytes.NewReader(text))}
	err := j.object(func(key string) error {
		keys[key] = true
		c, err := j.token()
		if err != nil {
			return err
		}
		j.back()
		if c != '{' {
			return j.skip()
		}
		return j.object(func(inner string) error {
			keys[key+"."+inner] = true
			return j.skip()
		})
	})
	return keys, err == nil
}

// sniffBinary recognizes pprof's profiles.
func sniffBinary(head []byte) (Format, error) {
	if isPprof(head) || isLegacyCPU(head) {
		return Pprof, nil
	}
	if !bytesHave(head, "\x00") { // names may have control characters
		if format, err := sniffText(head); err == nil {
			return format, nil
		}
	}
	return "", errUnknown
}

// errUnknown is the error of an input of an unknown kind.
var errUnknown = errors.New("no known format: fulgur reads perf.data, pprof, OTLP, the Firefox Profiler's format, its own pages, folded stacks, and the text of perf script and bpftrace")

// isPprof reports whether binary data begins with pprof's profile: all fields that are there as a
// whole have numbers and types of proto/profile.proto.
func isPprof(head []byte) bool {
	fields := 0
	for len(head) > 0 {
		number, kind := head[0]>>3, head[0]&7
		_, n := uvarint(head[1:])
		switch {
		case n == 0:
			return fields > 0 // the head ends here
		case number == 0 || number > 15 || head[0] >= 0x80:
			return false
		case kind == 0 && number >= 7 && number != 11:
			head = head[1+n:]
		case kind == 2 && (number <= 6 || number == 11 || number == 13):
			size, _ := uvarint(head[1:])
			if content := head[1+n:]; number == 1 && size > 0 && len(content) > 0 && content[0] != 1<<3 && content[0] != 2<<3 {
				return false // not a ValueType
			}
			if size > uint64(len(head)-1-n) {
				return fields > 0 || size < profile.MaxHeld
			}
			head = head[1+n+int(size):]
		default:
			return false
		}
		fields++
	}
	return fields > 0
}

// isLegacyCPU reports whether data begins with the header of a CPU profile of gperftools: words with
// the values 0, 3, 0 (or 1 for Java), a period and 0, of 4 or 8 bytes in either byte order.
func isLegacyCPU(head []byte) bool {
	for _, size := range []int{4, 8} {
		for _, order := range []binary.ByteOrder{binary.LittleEndian, binary.BigEndian} {
			if len(head) < 5*size {
				continue
			}
			word := func(i int) uint64 {
				if size == 4 {
					return uint64(order.Uint32(head[4*i:]))
				}
				return order.Uint64(head[8*i:])
			}
			if word(0) == 0 && word(1) == 3 && word(2) <= 1 && word(3) < 1<<31 && word(4) == 0 {
				return true
			}
		}
	}
	return false
}

// isLegacyPprof reports whether text begins like a profile in one of pprof's legacy formats, such as
// Go's with ?debug=1. Comments may precede them.
func isLegacyPprof(head []byte) bool { return legacyPprof.Match(head) }

var legacyPprof = regexp.MustCompile(`\A(\s*(#[^\n]*)?\n)*(heap profile: *\d+:|\S+ profile: total \d+\s*\n|--- (contentionz?|mutex|heapz?|growthz?|fragmentationz?|threadz|Thread)\b)`)

// stackAlone matches a stack without a number.
var stackAlone = regexp.MustCompile(`^[^\s;]+(;[^\s;]+)+$`)

// wholeLines returns the lines of the beginning of an input that are there as a whole.
func wholeLines(head []byte) []byte {
	if end := bytes.LastIndexByte(head, '\n') + 1; end > 0 && len(head) == sniffed {
		return head[:end]
	}
	return head
}

// allStacks reports whether all lines are folded stacks of several frames, which may begin like any
// other format, or comments. After fulgur's own comment the lines may be anything.
func allStacks(head []byte) bool {
	found := false
	for text := range bytes.Lines(wholeLines(head)) {
		line := strings.TrimSpace(string(text))
		if _, ok := folded.ParseHeader(line); ok {
			return true
		}
		if line == "" || folded.IsComment(line) {
			continue
		}
		if found = folded.IsStack(line) && strings.Contains(line, ";"); !found {
			return false
		}
	}
	return found
}

// bccText matches the end of a stack as bcc's tools print it without -f: each frame on a line of its
// own, then the task, and the number on a line of its own.
var bccText = regexp.MustCompile(`(?m)^ {2,4}\S[^\n]*\n {4,8}\d+\r?\n(\r?\n|\z)`)

// dtraceText matches the end of a stack as DTrace prints it: frames with their modules, and the number on a
// line of its own.
var dtraceText = regexp.MustCompile("(?m)^ +[^\\s`]+`\\S[^\\n]*\\n +\\d+\\r?\\n(\\r?\\n|\\z)")

// ftraceLine matches an event of ftrace: a task with its ID, a CPU, maybe flags, a time, and what
// happened.
var ftraceLine = regexp.MustCompile(`(?m)^ *\S.*-\d+ +(\([ \d-]+\) +)?\[\d{3,}\] +([dDbBXn.][^ ]{3,4} +)?\d+\.\d{6}: \S+ +\S`)

// sniffText recognizes formats of text by their lines.
func sniffText(head []byte) (Format, error) {
	switch {
	case bpftraceMap.Match(head), bpftraceBare.Match(head): // possibly after messages
		return Bpftrace, nil
	case dtraceText.Match(head):
		return "", &dtraceStacks
	case bccText.Match(head):
		return "", &foreign{"stacks of a tool of bcc on several lines", "run the tool with -f, which writes folded stacks"}
	case ftraceLine.Match(head):
		return "", &ftraceText
	case chainHead.Match(head): // its head may have no fields but a number
		return PerfScript, nil
	}
	stacks, others := 0, 0 // others have no number
	if len(head) == sniffed && !bytesHave(head, "\n") && bytesHave(head, ";") {
		return Folded, nil // its first line is long
	}
	head = wholeLines(head)
	for line := range bytes.Lines(head) {
		switch line := string(bytes.TrimRight(line, "\r\n")); {
		case strings.TrimSpace(line) == "" || folded.IsComment(line):
			continue
		case isPerfScript(line):
			return PerfScript, nil
		case folded.IsStack(line):
			if stacks++; strings.Contains(line, ";") {
				return Folded, nil
			}
		case stackAlone.MatchString(line):
			return Folded, nil // its reader reports the line
		default:
			others++
		}
	}
	if stacks > 0 && stacks >= others || stacks+others == 0 { // an input of comments has no stacks
		return Folded, nil
	}
	if text := bytes.TrimLeft(head, " \t\r\n"); text[0] == '[' {
		return "", &foreign{"a JSON array, such as a trace of Chrome", noConversion}
	}
	return "", fmt.Errorf("text of %w", errUnknown)
}
