package ksym

import (
	"bufio"
	"errors"
	"maps"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"

	"fulgur/internal/symbols/symbolize"
	"fulgur/internal/testenv"
)

func TestParse(t *testing.T) {
	for _, test := range []struct {
		text, name, module string
		offset             uint64
		ok                 bool
	}{
		{"do_idle+0x1a/0x20", "do_idle", "", 0x1a, true},
		{"f+0x0/0x0", "f", "", 0, true},
		{"ext4_map+0x10/0x200 [ext4]", "ext4_map", "ext4", 0x10, true},
		{"f+0x10/0x200 [ext4 0123456789abcdef]", "f", "ext4", 0x10, true},
		{"a+0x1+0x10/0x200", "a+0x1", "", 0x10, true},
		{"0xffffffff81000000", "", "", 0, false},
		{"+0x10/0x20", "", "", 0, false},
		{"f+0x10", "f", "", 0x10, false},
		{"f+0xzz/0x20", "f", "", 0, false},
		{"", "", "", 0, false},
	} {
		name, module, offset, ok := parse([]byte(test.text))
		if ok != test.ok || ok && (string(name) != test.name || string(module) != test.module || offset != test.offset) {
			t.Errorf("%q: got %q, %q, %#x, %t; want %q, %q, %#x, %t", test.text, name, module, offset, ok, test.name, test.module, test.offset, test.ok)
		}
	}
}

// Names match /proc/kallsyms.
func TestLookupBatch(t *testing.T) {
	testenv.EveryKernel(t)
	testenv.Root(t)
	table := open(t)
	functions, names, generated := kernelFunctions(t)
	if len(functions) < 1000 {
		t.Fatalf("got only %d functions in kallsyms", len(functions))
	}
	own := ownAddress(t, table)
	if names[own] == nil {
		t.Fatalf("kallsyms lacks the test's own program at %#x", own)
	}
	step := 1
	if testenv.InVM() {
		step = 100 // emulation is slow
	}
	addrs := []uint64{1, ^uint64(0), own}
	for i := 0; i < len(functions); i += step {
		addrs = append(addrs, functions[i])
	}
	slices.Sort(addrs)
	frames, err := table.LookupBatch(addrs)
	if err != nil {
		t.Fatal(err)
	}
	if len(frames) != len(addrs) {
		t.Fatalf("got %d results, want %d", len(frames), len(addrs))
	}
	for i, addr := range addrs {
		if generated[addr] && addr != own {
			continue // programs come and go, and the same one can return to the same address
		}
		if addr == 1 || addr == ^uint64(0) {
			if frames[i] != nil {
				t.Errorf("%#x: got name %v, want none", addr, frames[i])
			}
			continue
		}
		if len(frames[i]) != 1 || !slices.Contains(names[addr], frames[i][0].SystemName) || frames[i][0].Offset != 0 {
			t.Errorf("%#x: got %+v, want one of %q", addr, frames[i], names[addr])
		}
	}
}

// ownAddress returns the address of a program of the table.
func ownAddress(t *testing.T, table *Table) uint64 {
	t.Helper()
	info, err := table.objects.NameKsyms.Info()
	if err != nil {
		t.Fatal(err)
	}
	addrs, ok := info.JitedKsymAddrs()
	if !ok || len(addrs) == 0 {
		t.Fatalf("got addresses %#x of a program, want at least one", addrs)
	}
	return uint64(addrs[0])
}

// open returns a table and closes it at the end of the test.
func open(t *testing.T) *Table {
	t.Helper()
	if errors.Join(features.HaveProgramType(ebpf.Syscall), features.HaveProgramHelper(ebpf.PerfEvent, asm.FnLoop)) != nil {
		testenv.Unsupported(t, "needs programs of type syscall and bpf_loop, Linux 5.17")
	}
	table, err := Open(symbolize.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := table.Close(); err != nil {
			t.Error(err)
		}
	})
	return table
}

// Addresses match /proc/kallsyms.
func TestAddresses(t *testing.T) {
	testenv.EveryKernel(t)
	testenv.Root(t)
	_, names, _ := kernelFunctions(t)
	want := map[string]uint64{"no such symbol": 0, strings.Repeat("x", 503): 0}
	for addr, all := range names {
		for _, name := range all {
			switch name {
			case "_stext", "_etext", "init_task", "schedule":
				want[name] = addr
			}
		}
	}
	if want["schedule"] == 0 {
		t.Fatalf("got %v from kallsyms, want the address of schedule among them", want)
	}
	table := open(t)
	asked := slices.Sorted(maps.Keys(want))
	addrs, err := table.Addresses(asked)
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range asked {
		if addrs[i] != want[name] {
			t.Errorf("%s: got %#x, want %#x", name, addrs[i], want[name])
		}
	}
	if addrs, err := table.Addresses([]string{strings.Repeat("x", 504)}); err == nil {
		t.Errorf("a name that is too long: got %#x, want an error", addrs)
	}
}

// kernelFunctions returns the functions of kallsyms with all their names, and which of them are
// BPF programs or other code that the kernel generates.
func kernelFunctions(t *testing.T) (addrs []uint64, names map[uint64][]string, generated map[uint64]bool) {
	t.Helper()
	f, err := os.Open("/proc/kallsyms")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	names, generated = map[uint64][]string{}, map[uint64]bool{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 3 {
			t.Fatalf("got line %q, want three fields", lines.Text())
		}
		addr, err := strconv.ParseUint(fields[0], 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		kind, name := fields[1], fields[2]
		// The kernel's is_ksym_addr excludes the ends of the code, the header before it on
		// arm64, and the trampolines listed as built in.
		header := runtime.GOARCH == "arm64" && (name == "_text" || name == "__pi__text")
		if !header && (kind == "t" || kind == "T") && name != "_etext" && name != "_einittext" && !strings.HasSuffix(lines.Text(), "[__builtin__ftrace]") {
			addrs = append(addrs, addr)
		}
		names[addr] = append(names[addr], name)
		if len(fields) > 3 && (fields[3] == "[bpf]" || strings.HasPrefix(fields[3], "[__builtin__")) {
			generated[addr] = true
		}
	}
	return addrs, names, generated
}
