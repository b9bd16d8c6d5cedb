package symbolize

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fulgur/internal/testenv"
)

const kallsymsText = `0000000000000000 A fixed_percpu_data
0000000000001000 A cpu_debug_store
ffffffff81000000 T _stext
ffffffff81000000 T srso_alias_untrain_ret
ffffffff81000000 T _text
ffffffff81000100 t helper
ffffffff81000100 W __weak_helper
ffffffff81000200 T entry_SYSCALL_64
ffffffff81000300 t _RNvCs1234_7mycrate3foo
ffffffff81001000 D some_data
ffffffff81002000 T _etext_end
not a symbol
ffffffffc0200000 t ext4_read	[ext4]
ffffffffc0200400 t ext4_write	[ext4]
ffffffffc0100000 t nf_hook	[nf_tables]
ffffffffc0300000 t bpf_prog_6deef7357e7b4530_on_sample	[bpf]
`

// openText opens a kallsyms table with the given content.
func openText(t testing.TB, text string) (*Kernel, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kallsyms")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return OpenKernel(path, Options{})
}

func TestKernel(t *testing.T) {
	k, err := openText(t, kallsymsText)
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		addr uint64
		want string
	}{
		{0, ""},
		{0x1010, ""}, // per-CPU data
		{0xffffffff81000000, "srso_alias_untrain_ret+0x0 "}, // fewest underscores
		{0xffffffff810000ff, "srso_alias_untrain_ret+0xff "},
		{0xffffffff81000100, "helper+0x0 "}, // not weak
		{0xffffffff81000101, "helper+0x1 "},
		{0xffffffff81000101, "helper+0x1 "}, // looked up twice
		{0xffffffff81000234, "entry_SYSCALL_64+0x34 "},
		{0xffffffff81000310, "mycrate::foo+0x10 "},
		{0xffffffff81001000, ""}, // data
		{0xffffffff81001fff, ""},
		{0xffffffff81002000, "_etext_end+0x0 "},
		{0xffffffff81003fff, "_etext_end+0x1fff "},
		{0xffffffff81004000, ""}, // far above the last symbol
		{0xffffffffc0100010, "nf_hook+0x10 nf_tables"},
		{0xffffffffc01fffff, ""}, // between modules
		{0xffffffffc02003ff, "ext4_read+0x3ff ext4"},
		{0xffffffffc0200400, "ext4_write+0x0 ext4"},
		{0xffffffffc0300001, "bpf_prog_6deef7357e7b4530_on_sample+0x1 bpf"},
		{0xffffffffc0400000, ""},
	}
	var addrs []uint64
	for _, tt := range tests {
		addrs = append(addrs, tt.addr)
	}
	frames, err := k.LookupBatch(addrs)
	if err != nil {
		t.Fatal(err)
	}
	show := func(frames []Frame) string {
		if len(frames) == 0 {
			return ""
		}
		return fmt.Sprintf("%s+%#x %s", frames[0].Name, frames[0].Offset, frames[0].Module)
	}
	for i, tt := range tests {
		if got := show(frames[i]); got != tt.want {
			t.Errorf("%#x: got %q, want %q", tt.addr, got, tt.want)
		}
		// A single lookup must return the same.
		single, err := k.LookupBatch([]uint64{tt.addr})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(frames[i], single[0]); diff != "" {
			t.Errorf("%#x: a single lookup differs from the batch:\n%s", tt.addr, diff)
		}
	}
}

func TestKernelHidden(t *testing.T) {
	_, err := openText(t, "0000000000000000 A fixed_percpu_data\n0000000000000000 T _text\n")
	if !errors.Is(err, ErrKernelHidden) {
		t.Errorf("hidden addresses: got %v, want %v", err, ErrKernelHidden)
	}
	if _, err := OpenKernel(filepath.Join(t.TempDir(), "none"), Options{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no table: got %v, want %v", err, fs.ErrNotExist)
	}
}

func TestKernelOfThisMachine(t *testing.T) {
	k, err := OpenKernel("/proc/kallsyms", Options{NoDemangle: true})
	if errors.Is(err, ErrKernelHidden) {
		testenv.Skip(t, "needs root: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("/proc/kallsyms")
	if err != nil {
		t.Fatal(err)
	}
	names := map[uint64][]string{}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) > 3 && f[3] == "[bpf]" {
			continue // BPF programs may be added or removed
		}
		if addr, err := strconv.ParseUint(f[0], 16, 64); err == nil && strings.Contains("tTwW", f[1]) {
			names[addr] = append(names[addr], f[2])
		}
	}
	var addrs []uint64
	for addr := range names {
		addrs = append(addrs, addr)
	}
	slices.Sort(addrs)
	frames, err := k.LookupBatch(addrs)
	if err != nil {
		t.Fatal(err)
	}
	for i, addr := range addrs {
		if len(frames[i]) == 1 && frames[i][0].Module == "bpf" {
			continue // above the last symbol, so added in the meantime
		}
		if len(frames[i]) != 1 || frames[i][0].Offset != 0 || !slices.Contains(names[addr], frames[i][0].Name) {
			t.Errorf("%#x: got %+v, want one of %v", addr, frames[i], names[addr])
		}
	}
	if len(addrs) < 1000 {
		t.Errorf("got only %d functions", len(addrs))
	}
}

// kernelAddresses returns n addresses spread over the kernel's functions.
func kernelAddresses(b *testing.B, k *Kernel, n int) []uint64 {
	var all []uint64
	if err := k.each(func(s kernelSymbol) bool {
		if s.text {
			all = append(all, s.addr)
		}
		return true
	}); err != nil {
		b.Fatal(err)
	}
	slices.Sort(all)
	addrs := make([]uint64, n)
	for i := range addrs {
		addrs[i] = all[i*len(all)/n] + 1
	}
	return addrs
}

func BenchmarkKernel(b *testing.B) {
	k, err := OpenKernel("/proc/kallsyms", Options{})
	if err != nil {
		testenv.Skip(b, "needs root: %v", err)
	}
	addrs := kernelAddresses(b, k, 1000)
	// Also read a copy, because the kernel takes long to generate the table.
	text, err := os.ReadFile("/proc/kallsyms")
	if err != nil {
		b.Fatal(err)
	}
	copied, err := openText(b, string(text))
	if err != nil {
		b.Fatal(err)
	}
	for _, bb := range []struct {
		name string
		k    *Kernel
	}{{"proc", k}, {"copy", copied}} {
		b.Run(bb.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := bb.k.LookupBatch(addrs); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func FuzzKernel(f *testing.F) {
	f.Add([]byte(kallsymsText), uint64(0xffffffff81000100))
	f.Fuzz(func(t *testing.T, text []byte, addr uint64) {
		k := &Kernel{path: filepath.Join(t.TempDir(), "kallsyms")}
		if err := os.WriteFile(k.path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		addrs := []uint64{addr / 2, addr, max(addr, addr+1)}
		frames, err := k.LookupBatch(addrs)
		if err != nil {
			t.Fatal(err)
		}
		for i, fs := range frames {
			if len(fs) > 0 && fs[0].Offset > addrs[i] {
				t.Fatalf("%#x: got offset %#x in %s", addrs[i], fs[0].Offset, fs[0].Name)
			}
		}
	})
}
