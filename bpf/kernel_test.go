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

	"fulgur/bpf"
	"fulgur/internal/testenv"
)

var update = flag.Bool("update", false, "write testdata/kernels/SERIES-ARCH.txt for the running kernel")

// TestKernelTypes compares everything that the programs read of the kernel with the
// kernel's BTF, and names each field that they would read wrongly:
//
//   - one that is of another kind or size than kernel.h says, unless the program asks
//     the kernel for the field's size, or, where its kind differs, whether it exists;
//   - one that is not there, unless the program asks whether it exists, or a kernel of
//     testdata lacks it, under which the programs are known to load.
//
// Beside that, what the kernel has is compared with testdata, which holds it for each
// series of kernels that fulgur promises: in the rig's machines whatever differs there
// is a failure. Elsewhere, kernels are built in other ways, and the differences from
// the nearest series are only logged.
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

// readGoldens returns the lines of the files in testdata, by path.
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
		t.Fatalf("the kernel's release %q does not begin with a version", uts.Release)
	}
	return series
}

// nearest returns the golden file of the architecture of name with the newest series
// that is not newer than that of name, or the oldest one.
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

// use is something of the kernel that programs use: a field, an enumerator, or the
// arguments of what they are attached to.
type use struct {
	key string
	// check looks it up and describes it, and says what is wrong with it. Fields
	// that are missing are right if knownAbsent says so.
	check func(kernel *btf.Spec, knownAbsent func() bool) (string, []error)
}

// kernelUses returns what all programs use, by key.
func kernelUses(t *testing.T) map[string]*use {
	t.Helper()
	uses := map[string]*use{}
	fields := map[string]*field{}
	for _, load := range []func() (*ebpf.CollectionSpec, error){
		bpf.LoadOnCPU, bpf.LoadUnwind, bpf.LoadOffCPU, bpf.LoadFaults, bpf.LoadBlockIO, bpf.LoadSoftIRQ, bpf.LoadBranch, bpf.LoadKSym,
	} {
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
	kind       string   // as btf names it: byte_off, byte_sz, field_exists, ...
	record     string   // name of the kernel's type
	path       []string // names of members from there, none for the type itself
	local      btf.Type // what kernel.h says it is
	enumerator string   // of the enum called record
	source     string   // line of the program
}

var relocationText = regexp.MustCompile(`^CORERelocation\((\w+), .*\[([0-9:]+)\], local_id=(\d+)\)$`)

// relocations returns the CO-RE relocations of a program. Their parts are not exported
// by the library but for its text.
func relocations(t *testing.T, types *btf.Spec, p *ebpf.ProgramSpec) []relocation {
	t.Helper()
	var list []relocation
	var source string // the last line that an instruction has
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
			t.Fatalf("the text of relocations has changed: %s", meta)
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
		// A name with three underscores is one of several forms of a type.
		record, _, _ := strings.Cut(local.TypeName(), "___")
		r := relocation{kind: found[1], record: record, source: source}
		if err := r.follow(local, strings.Split(found[2], ":")); err != nil {
			t.Fatalf("%s: %s: %v", p.Name, meta, err)
		}
		list = append(list, r)
	}
	return list
}

// follow takes the way that an accessor goes from type local. Its first index is of
// an array of these.
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

// enumerated returns the use of an enumerator. Its value does not matter.
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

// absent describes what the kernel does not have.
const absent = "absent"

// field is a field of the kernel with all that programs do with it.
type field struct {
	record string
	path   []string
	reads  []read
	// programs that ask the kernel for the field's size, and whether it exists
	sized, asked map[string]bool
}

// read is a place in a program where a field is read, or its address taken.
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
	var said []string // each is said once
	wrong := func(r read, format string, args ...any) {
		text := name + ": " + fmt.Sprintf(format, args...)
		if !slices.Contains(said, text) {
			said = append(said, text)
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

// compareTypes reports whether two types are of the same kind, as libbpf sees it, and
// of the same size. Of records only the fields matter, and of arrays the elements, and
// that the kernel's is not shorter.
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

// lookUp returns the type of a field of a kernel's record, or nil. Then elsewhere says
// where in the record there is a field of that name, if there is one.
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

// members returns what a record consists of.
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

// member returns the type of a record's member, also if it is one of a record in it
// without a name, or nil.
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

// search returns the way to a member that is called name, at most depth records down.
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

// describe returns a type in the words of C, with the size of what is not a record.
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

// noSize matches the size of what a pointer points to, which does not matter.
var noSize = regexp.MustCompile(` \(\d+ bytes\)$`)

// attachment returns the use of what a program is attached to, whose arguments it
// takes, or nil. Programs choose among these, so that none has to be there.
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
