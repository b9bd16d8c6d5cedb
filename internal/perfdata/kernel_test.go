package perfdata

import (
	"bytes"
	"debug/elf"
	"fmt"
	"iter"
	"path/filepath"
	"strings"
	"testing"

	"fulgur/internal/bolt"
	"fulgur/internal/profile"
	"fulgur/internal/symbols/elffile"
	"fulgur/internal/symbols/elffile/elftest"
)

// kernelBinary returns a kernel with 64 KiB of code at kernelStart. _stext is 0x100 after
// _text.
func kernelBinary(t *testing.T) *bolt.Binary {
	t.Helper()
	table, strings := elftest.Symbols(elf.SHT_SYMTAB, 3,
		elftest.Symbol{Name: "_text", Section: 1, Value: kernelStart}, elftest.Symbol{Name: "_stext", Section: 1, Value: kernelStart + 0x100})
	image := elftest.File{
		Type:     elf.ET_EXEC,
		Segments: []elftest.Segment{{Type: elf.PT_LOAD, Section: 1, Prog64: elf.Prog64{Flags: uint32(elf.PF_R | elf.PF_X)}}},
		Sections: []elftest.Section{
			{Name: ".text", Flags: elf.SHF_ALLOC | elf.SHF_EXECINSTR, Addr: kernelStart, Content: make([]byte, 1<<16)},
			table, strings,
		},
	}
	f, err := elffile.Open(writeFile(t, filepath.Join(t.TempDir(), "vmlinux"), image.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	b, err := bolt.NewBinary(f)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err != nil || !b.Kernel() {
		t.Fatalf("got %+v, error %v; want a kernel", b, err)
	}
	return b
}

// The kernel's branches count in every process, wherever the kernel has moved itself.
func TestKernel(t *testing.T) {
	const moved = 0x1c000000
	const start = kernelStart + moved
	kernel := func(offset uint64, symbol string) func(*builder) {
		return func(b *builder) { b.mmap(-1, start, 1<<24, offset, profile.KernelPath+symbol) }
	}
	for _, tc := range []struct {
		name string
		mmap func(*builder)
		want string // an error, or ""
	}{
		{"_text", kernel(start, "_text"), ""},
		{"_stext", kernel(start+0x100, "_stext"), ""},
		{"old", kernel(0, "_text"), ""},
		{"unknown", kernel(start, "_sinittext"), `has no symbol "_sinittext"`},
		{"guest", func(b *builder) { b.mmap(-1, start, 1<<24, start, "[guest.kernel.kallsyms]_text") }, "none"},
		{"another build", func(b *builder) {
			kernel(start, "_text")(b)
			b.buildID(profile.KernelPath, "0011223344")
		}, "none"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBuilder(false)
			b.mmap(-1, kernelStart+1<<30, 0x1000, 0, "[ext4]")
			tc.mmap(b)
			b.mmap2(7, base1&^0xfff, 0x1000, 0, "/usr/bin/prog")
			for _, pid := range []int32{0, 7} { // newest first: to the module, in the kernel, from user space
				b.sample(pid, []bolt.Entry{{From: start + 0x30, To: kernelStart + 1<<30 + 1}, {From: start + 0x10, To: start + 0x20}, {From: base1, To: start}})
			}
			bin := kernelBinary(t)
			bin.BuildID = "5566"
			c := bolt.NewCollector(bolt.Options{ForeignKernel: true})
			defer c.Close()
			c.Register(bin)
			in := b.file(b.plain())
			stats, err := collectFrom(t.Context(), bytes.NewReader(in), int64(len(in)), "in", c, Options{Find: Match(bin)})
			switch {
			case tc.want == "none":
				if err != nil || stats.Mappings != 0 || c.Stats().Inside != 0 {
					t.Errorf("got %+v, %+v, error %v; want no mapping", stats, c.Stats(), err)
				}
				return
			case tc.want != "":
				if err == nil || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("got error %v, want %s", err, tc.want)
				}
				return
			case err != nil:
				t.Fatal(err)
			}
			var got []string
			err = c.Each(func(_ *bolt.Binary, traces iter.Seq2[bolt.Trace, error]) error {
				for trace, err := range traces {
					if err != nil {
						return err
					}
					got = append(got, fmt.Sprintf("%x %x %x %d", trace.From, trace.To, trace.End, trace.Count))
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			want := []string{"0 ffffffff81000000 ffffffff81000010 2", "ffffffff81000010 ffffffff81000020 ffffffff81000030 2", "ffffffff81000030 0 0 2"}
			if strings.Join(got, "\n") != strings.Join(want, "\n") || stats.Mappings != 1 {
				t.Errorf("got %d mappings and %q, want 1 and %q", stats.Mappings, got, want)
			}
		})
	}
}
