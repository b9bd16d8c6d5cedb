package bpf_test

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"fulgur/internal/bpf"
	"fulgur/internal/testenv"
)

var update = flag.Bool("update", false, "write testdata/kernels/SERIES-ARCH.txt for the running kernel")

// families holds the programs of each source file NAME.bpf.c.
var families = map[string]func() (*ebpf.CollectionSpec, error){
	"alloc": bpf.LoadAlloc, "blockio": bpf.LoadBlockIO, "branch": bpf.LoadBranch, "count": bpf.LoadCount,
	"faults": bpf.LoadFaults, "goroutine": bpf.LoadGoroutine, "jump": bpf.LoadJump, "ksym": bpf.LoadKSym, "latency": bpf.LoadLatency,
	"offcpu": bpf.LoadOffCPU, "oncpu": bpf.LoadOnCPU, "pidns": bpf.LoadPIDNS, "rules": bpf.LoadRules, "softirq": bpf.LoadSoftIRQ, "unwind": bpf.LoadUnwind,
}

// The list of families is complete, so that TestKernelTypes checks all programs.
func TestFamilies(t *testing.T) {
	testenv.AnyKernel(t)
	const suffix = ".bpf.c"
	sources, err := filepath.Glob("*" + suffix)
	if err != nil {
		t.Fatal(err)
	}
	if len(sources) < len(families) {
		t.Errorf("got %d source files, want %d or more", len(sources), len(families))
	}
	for _, source := range sources {
		if families[strings.TrimSuffix(source, suffix)] == nil {
			t.Errorf("%s is not in the list of families", source)
		}
	}
}

// TestKernelTypes compares all kernel types that the programs use with the kernel's BTF.
// It reports each field that the programs would read wrongly:
//
//   - a field whose kind or size differs from kernel.h, unless the program has a
//     relocation for its size, or, for another kind, for its existence;
//   - a missing field, unless the program has a relocation for its existence, or a kernel
//     in testdata, on which the programs are known to load, also lacks it.
//
// It also compares the kernel's types with testdata, which has them for each supported
// series of kernels. In the rig's VMs, a difference is an error. Other kernels have other
// configurations, so their differences from the nearest series are only logged.
func TestKernelTypes(t *testing.T) {
	testenv.EveryKernel(t)
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		testenv.Unsupported(t, "the kernel has no BTF: %v", err)
	}
	uses := kernelUses(t)
	goldens := readGoldens(t)
	var have []string
	for _, key := range slices.Sorted(maps.Keys(uses)) {
		u := uses[key]
		line, errs := u.check(kernel, func() bool {
			for _, golden := range goldens {
				if slices.Contains(golden, key+"\tabsent") {
					return true
				}
			}
			return false
		})
		for _, err := range errs {
			t.Error(err)
		}
		have = append(have, key+"\t"+line)
	}

	series := kernelSeries(t)
	name := filepath.Join(goldenDir, series+"-"+runtime.GOARCH+".txt")
	if *update {
		if err := os.MkdirAll(goldenDir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(strings.Join(have, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	report := t.Errorf
	if !testenv.InVM() || goldens[name] == nil {
		report, name = t.Logf, nearest(name, slices.Collect(maps.Keys(goldens)))
	}
	if name == "" {
		t.Log("testdata has no kernel of this architecture to compare with")
		return
	}
	old := map[string]string{}
	for _, line := range goldens[name] {
		key, value, _ := strings.Cut(line, "\t")
		old[key] = value
	}
	for _, line := range have {
		key, value, _ := strings.Cut(line, "\t")
		if want, ok := old[key]; !ok {
			t.Logf("%s is not in %s; -update under that kernel adds it (CONTRIBUTING.md)", key, name)
		} else if value != want {
			report("%s is %s, and in %s it is %s", key, value, name, want)
		}
		delete(old, key)
	}
	for key := range old {
		t.Logf("%s is in %s, and no program reads it", key, name)
	}
}

const goldenDir = "testdata/kernels"

// readGoldens returns the lines of the golden files in testdata, by path.
func readGoldens(t *testing.T) map[string][]string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(goldenDir, "*.txt"))
	if err != nil {
		t.Fatal(err)
	}
	goldens := map[string][]string{}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		goldens[name] = strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	}
	return goldens
}

// kernelSeries returns the first two numbers of the kernel's release.
func kernelSeries(t *testing.T) string {
	t.Helper()
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		t.Fatal(err)
	}
	series := regexp.MustCompile(`^\d+\.\d+`).FindString(unix.ByteSliceToString(uts.Release[:]))
	if series == "" {
		t.Fatalf("got kernel release %q, want a version at its start", uts.Release)
	}
	return series
}

// nearest returns the golden file with the same architecture as name and the newest
// series that is not newer than name's, or else the oldest series.
func nearest(name string, goldens []string) string {
	version := func(path string) (v [2]int, arch string) {
		series, arch, _ := strings.Cut(strings.TrimSuffix(filepath.Base(path), ".txt"), "-")
		major, minor, _ := strings.Cut(series, ".")
		v[0], _ = strconv.Atoi(major)
		v[1], _ = strconv.Atoi(minor)
		return v, arch
	}
	compare := func(a, b string) int {
		va, _ := version(a)
		vb, _ := version(b)
		return slices.Compare(va[:], vb[:])
	}
	_, arch := version(name)
	goldens = slices.DeleteFunc(goldens, func(g string) bool { _, a := version(g); return a != arch })
	slices.SortFunc(goldens, compare)
	best := ""
	for i, golden := range goldens {
		if i == 0 || compare(golden, name) <= 0 {
			best = golden
		}
	}
	return best
}

// use is a part of the kernel that programs use: a field, an enumerator, or the arguments
// of an attach point.
type use struct {
	key string
	// check looks up the part in the kernel's types. It returns its description and what
	// is wrong with it. A missing field is an error unless knownAbsent returns true.
	check func(kernel *btf.Spec, knownAbsent func() bool) (string, []error)
}

// kernelUses returns all uses in all programs, by key.
func kernelUses(t *testing.T) map[string]*use {
	t.Helper()
	uses := map[string]*use{}
	fields := map[string]*field{}
	for _, load := range families {
		spec, err := load()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range spec.Programs {
			if u := attachment(p); u != nil {
				uses[u.key] = u
			}
			for _, r := range relocations(t, spec.Types, p) {
				if r.enumerator != "" {
					u := r.enumerated()
					uses[u.key] = u
					continue
				}
				key := "field " + r.record + strings.Join(append([]string{""}, r.path...), ".")
				if fields[key] == nil {
					fields[key] = &field{record: r.record, path: r.path}
				}
				fields[key].add(p.Name, r)
			}
		}
	}
	for key, f := range fields {
		uses[key] = &use{key, f.check}
	}
	return uses
}

// relocation is a CO-RE relocation.
type relocation struct {
	kind       string   // name in btf: byte_off, byte_sz, field_exists, ...
	record     string   // name of the kernel's type
	path       []string // names of nested members; none for the type itself
	local      btf.Type // type in kernel.h
	enumerator string   // for an enum named record
	source     string   // source line of the program
}

var relocationText = regexp.MustCompile(`^CORERelocation\((\w+), .*\[([0-9:]+)\], local_id=(\d+)\)$`)

// relocations returns the CO-RE relocations of a program. The library exports them only
// as text.
func relocations(t *testing.T, types *btf.Spec, p *ebpf.ProgramSpec) []relocation {
	t.Helper()
	var list []relocation
	var source string // line of the latest instruction that has one
	for i := range p.Instructions {
		ins := &p.Instructions[i]
		if s := ins.Source(); s != nil {
			source = strings.TrimSpace(s.String())
		}
		meta := btf.CORERelocationMetadata(ins)
		if meta == nil {
			continue
		}
		found := relocationText.FindStringSubmatch(meta.String())
		if found == nil {
			t.Fatalf("the format of relocations has changed: %s", meta)
		}
		id, err := strconv.ParseUint(found[3], 10, 32)
		if err != nil {
			t.Fatal(err)
		}
		local, err := types.TypeByID(btf.TypeID(id))
		if err != nil {
			t.Fatal(err)
		}
		if found[1] == "local_type_id" {
			continue
		}
		local = btf.UnderlyingType(local)
		// A suffix with three underscores distinguishes variants of a type.
		record, _, _ := strings.Cut(local.TypeName(), "___")
		r := relocation{kind: found[1], record: record, source: source}
		if err := r.follow(local, strings.Split(found[2], ":")); err != nil {
			t.Fatalf("%s: %s: %v", p.Name, meta, err)
		}
		list = append(list, r)
	}
	return list
}

// follow resolves an accessor from type local. Its first index is into an array of that
// type.
func (r *relocation) follow(local btf.Type, accessor []string) error {
	if strings.HasPrefix(r.kind, "enumval_") {
		enum, ok := local.(*btf.Enum)
		i, err := strconv.Atoi(accessor[0])
		if !ok || err != nil || i >= len(enum.Values) {
			return fmt.Errorf("no such enumerator (%w)", err)
		}
		r.enumerator, _, _ = strings.Cut(enum.Values[i].Name, "___")
		return nil
	}
	r.local = local
	for _, index := range accessor[1:] {
		i, err := strconv.Atoi(index)
		if err != nil {
			return err
		}
		switch v := btf.UnderlyingType(r.local).(type) {
		case *btf.Array:
			r.local = v.Type
			if n := len(r.path); n > 0 {
				r.path[n-1] = strings.TrimSuffix(r.path[n-1], "[]") + "[]"
			}
		case *btf.Struct:
			r.local = v.Members[i].Type
			r.addPath(v.Members[i].Name)
		case *btf.Union:
			r.local = v.Members[i].Type
			r.addPath(v.Members[i].Name)
		default:
			return fmt.Errorf("%s has no members", describe(v))
		}
	}
	return nil
}

func (r *relocation) addPath(name string) {
	if name != "" {
		r.path = append(r.path, name)
	}
}

// enumerated returns the use of an enumerator. The value does not matter.
func (r *relocation) enumerated() *use {
	key := "enumerator " + r.record + "." + r.enumerator
	asked := r.kind == "enumval_exists"
	return &use{key, func(kernel *btf.Spec, knownAbsent func() bool) (string, []error) {
		var enum *btf.Enum
		err := kernel.TypeByName(r.record, &enum)
		if err == nil && slices.ContainsFunc(enum.Values, func(v btf.EnumValue) bool { return v.Name == r.enumerator }) {
			return "there", nil
		}
		if asked || knownAbsent() {
			return absent, nil
		}
		return absent, []error{fmt.Errorf("%s: the kernel has no such enumerator", key)}
	}}
}

// absent is the description of a missing part.
const absent = "absent"

// field is a field of the kernel and how programs use it.
type field struct {
	record string
	path   []string
	reads  []read
	// programs that have relocations for the field's size, or its existence
	sized, asked map[string]bool
}

// read is a place in a program that reads a field or takes its address.
type read struct {
	program string
	relocation
}

func (f *field) add(program string, r relocation) {
	if f.sized == nil {
		f.sized, f.asked = map[string]bool{}, map[string]bool{}
	}
	switch r.kind {
	case "byte_off":
		f.reads = append(f.reads, read{program, r})
	case "byte_sz", "lshift_u64", "rshift_u64", "signed", "type_size":
		f.sized[program] = true
	case "field_exists", "type_exists", "type_matches":
		f.asked[program] = true
	}
}

// check finds the field in the kernel's types.
func (f *field) check(kernel *btf.Spec, knownAbsent func() bool) (string, []error) {
	have, elsewhere := lookUp(kernel, f.record, f.path)
	name := strings.Join(append([]string{f.record}, f.path...), ".")
	var errs []error
	var reported []string // texts, to report each only once
	wrong := func(r read, format string, args ...any) {
		text := name + ": " + fmt.Sprintf(format, args...)
		if !slices.Contains(reported, text) {
			reported = append(reported, text)
			errs = append(errs, fmt.Errorf("%s (program %s: %s)", text, r.program, r.source))
		}
	}
	if have == nil {
		for _, r := range f.reads {
			if !f.asked[r.program] && !knownAbsent() {
				wrong(r, "kernel.h has %s, the kernel has no such field%s", describe(r.local), elsewhere)
			}
		}
		return absent, errs
	}
	for _, r := range f.reads {
		switch kind, size := compareTypes(r.local, have); {
		case !kind && !f.asked[r.program]:
			wrong(r, "kernel.h has %s, the kernel %s", describe(r.local), describe(have))
		case kind && !size && !f.sized[r.program]:
			wrong(r, "kernel.h has %s, the kernel %s, and the program does not ask for the size", describe(r.local), describe(have))
		}
	}
	return describe(have), errs
}

// compareTypes reports whether two types have the same kind, as in libbpf, and the same
// size. Only the fields of records are compared. The kernel's arrays may be longer.
func compareTypes(local, kernel btf.Type) (kind, size bool) {
	local, kernel = btf.UnderlyingType(local), btf.UnderlyingType(kernel)
	if fmt.Sprintf("%T", local) != fmt.Sprintf("%T", kernel) {
		return false, false
	}
	switch l := local.(type) {
	case *btf.Struct, *btf.Union:
		return true, true
	case *btf.Array:
		k := kernel.(*btf.Array)
		kind, size = compareTypes(l.Type, k.Type)
		return kind, size && l.Nelems <= k.Nelems
	}
	a, errA := btf.Sizeof(local)
	b, errB := btf.Sizeof(kernel)
	return true, errA == nil && errB == nil && a == b
}

// lookUp returns the type of a field in a kernel record, or nil. If it is nil, elsewhere
// is the path to a field of the same name in the record, if there is one.
func lookUp(kernel *btf.Spec, record string, path []string) (have btf.Type, elsewhere string) {
	types, err := kernel.AnyTypesByName(record)
	if err != nil {
		return nil, ""
	}
	for _, t := range types {
		if len(path) == 0 {
			if _, forward := t.(*btf.Fwd); !forward {
				return t, ""
			}
			continue
		}
		if len(members(t)) == 0 {
			continue
		}
		at := t
		for _, name := range path {
			name, isElement := strings.CutSuffix(name, "[]")
			at = member(at, name)
			if array, ok := btf.UnderlyingType(at).(*btf.Array); ok && isElement {
				at = array.Type
			}
			if at == nil {
				break
			}
		}
		if at != nil {
			return at, ""
		}
		if place := search(t, strings.TrimSuffix(path[len(path)-1], "[]"), 4); place != "" {
			elsewhere = fmt.Sprintf(", but %s%s", record, place)
		}
	}
	return nil, elsewhere
}

// members returns the members of a struct or union.
func members(t btf.Type) []btf.Member {
	if t == nil {
		return nil
	}
	switch v := btf.UnderlyingType(t).(type) {
	case *btf.Struct:
		return v.Members
	case *btf.Union:
		return v.Members
	}
	return nil
}

// member returns the type of a member, which may be in an anonymous struct or union, or
// nil.
func member(t btf.Type, name string) btf.Type {
	for _, m := range members(t) {
		if m.Name == name {
			return m.Type
		}
		if m.Name == "" {
			if found := member(m.Type, name); found != nil {
				return found
			}
		}
	}
	return nil
}

// search returns the path to a member with the given name, at most depth records down.
func search(t btf.Type, name string, depth int) string {
	if depth == 0 {
		return ""
	}
	for _, m := range members(t) {
		if m.Name == name {
			return "." + name
		}
	}
	for _, m := range members(t) {
		if way := search(m.Type, name, depth-1); way != "" {
			return "." + cmp.Or(m.Name, "<unnamed>") + way
		}
	}
	return ""
}

// describe returns a type in C syntax, with the size unless it is a record.
func describe(t btf.Type) string {
	switch v := btf.UnderlyingType(t).(type) {
	case *btf.Struct:
		return strings.TrimSpace("struct " + v.Name)
	case *btf.Union:
		return strings.TrimSpace("union " + v.Name)
	case *btf.Fwd:
		return v.Kind.String() + " " + v.Name
	case *btf.Pointer:
		return "pointer to " + noSize.ReplaceAllString(describe(v.Target), "")
	case *btf.Array:
		return fmt.Sprintf("%d of %s", v.Nelems, describe(v.Type))
	case *btf.Enum:
		return fmt.Sprintf("%s (%d bytes)", strings.TrimSpace("enum "+v.Name), v.Size)
	case *btf.Int:
		return fmt.Sprintf("%s (%d bytes)", v.Name, v.Size)
	case *btf.FuncProto:
		var params []string
		for _, p := range v.Params {
			params = append(params, describe(p.Type))
		}
		return "function of " + strings.Join(params, ", ")
	case *btf.Void:
		return "void"
	default:
		return fmt.Sprintf("%v", v)
	}
}

// noSize matches the size of a pointer's target, which does not matter.
var noSize = regexp.MustCompile(` \(\d+ bytes\)$`)

// attachment returns the use of the arguments of a program's attach point, or nil if the
// program takes none. The attach points of alternative programs need not exist.
func attachment(p *ebpf.ProgramSpec) *use {
	var kind, name string
	switch p.AttachType {
	case ebpf.AttachTraceRawTp:
		kind, name = "tracepoint", "btf_trace_"+p.AttachTo
	case ebpf.AttachTraceFEntry, ebpf.AttachTraceFExit:
		kind, name = "function", p.AttachTo
	default:
		return nil
	}
	return &use{kind + " " + p.AttachTo, func(kernel *btf.Spec, _ func() bool) (string, []error) {
		types, err := kernel.AnyTypesByName(name)
		if err != nil && !errors.Is(err, btf.ErrNotFound) {
			return "", []error{err}
		}
		for _, t := range types {
			switch v := t.(type) {
			case *btf.Typedef:
				if pointer, ok := v.Type.(*btf.Pointer); ok {
					return describe(pointer.Target), nil
				}
			case *btf.Func:
				return describe(v.Type), nil
			}
		}
		return absent, nil
	}}
}
